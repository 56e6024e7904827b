/**
 * Error reporting at the boundary of public functions: these call each other, and errors name the one that the user called.
 */
import { LazuliError } from "./errors"

/** Errors that are not renamed: those of user code or of another call's work. */
const named = new WeakSet<Error>()

/**
 * Renames an error to the function that the user called. Errors other than Lazuli's, and those marked by {@link keepName}, are unchanged.
 */
export function renamed(error: unknown, op: string): unknown {
  if (!(error instanceof LazuliError) || error.op === op || named.has(error)) return error
  const { message, stack } = error
  const now = `[${op}]${message.slice(error.op.length + 2)}`
  const at = stack === undefined ? -1 : stack.indexOf(message)
  error.message = now
  if (stack !== undefined && at >= 0)
    error.stack = stack.slice(0, at) + now + stack.slice(at + message.length)
  ;(error as { op: string }).op = op
  return error
}

/** Exempts an error from renaming by the functions it passes through. */
export function keepName<E>(error: E): E {
  if (error instanceof LazuliError) named.add(error)
  return error
}

/** Runs part of a public function and reports errors under its name. */
export function under<T>(op: string, body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw renamed(error, op)
  }
}

/** Runs a tree traversal that may call user functions: its own errors are reported under the name `op`, others keep theirs. */
export function ofTrees<T>(op: string, body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw error instanceof LazuliError && error.op === "tree" ? renamed(error, op) : error
  }
}

/** Runs a user's function: its errors are not renamed. */
export function ofUser<T>(body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw keepName(error)
  }
}
