/**
 * The boundary of public functions: they are built on each other, and an error comes under the name of the one that the user called.
 */
import { LazuliError } from "./errors"

/** Errors that keep their name: they came from code of the user's, or from work of another call. */
const named = new WeakSet<Error>()

/**
 * The error as the called function gives it: functions are built on each other, and users know the one they called. Other errors than
 * Lazuli's stay as they are, and so do {@link keepName named} ones.
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

/** Lets an error keep its name when it passes through functions that were called before it came up. */
export function keepName<E>(error: E): E {
  if (error instanceof LazuliError) named.add(error)
  return error
}

/** Runs a part of a public function: errors come under the function's name. */
export function under<T>(op: string, body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw renamed(error, op)
  }
}

/** Runs what walks trees, and the user's functions: errors of the walk come under the name `op`, others keep theirs. */
export function ofTrees<T>(op: string, body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw error instanceof LazuliError && error.op === "tree" ? renamed(error, op) : error
  }
}

/** Runs what a user gave a public function: errors of it are not that function's. */
export function ofUser<T>(body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw keepName(error)
  }
}
