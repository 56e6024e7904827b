/**
 * Recording of calls of public functions, for shape-polymorphic traces. The graph that a function builds depends on the shapes of its
 * inputs, so such a trace records and replays calls instead.
 */
import { copiesHint, takenHint } from "./copies"
import { RegistryError } from "./errors"

/** Records calls. Calls nested in a recorded call are not recorded. */
export interface CallRecorder {
  /** Runs and records a call. */
  call<A extends readonly unknown[], R>(name: string, f: (...args: A) => R, args: A): R
  /**
   * Called when sizes of an array are read, on which the trace then depends. `isShown`: the traced function sees them through the number of
   * items it receives.
   */
  readSizes(isShown?: boolean): void
  /** Called when the number of an array's axes is read. */
  readRank(): void
  /** Called when the values of a node are read: those of a recorded call, as of ones like an array, may be others for other sizes. */
  readValue(node: object): void
}

/** The active recorder, if any. */
export const calls: { recorder: CallRecorder | null } = { recorder: null }

/** Functions callable by name, as programs in files do. Excludes functions that take or return code. */
const named = new Map<string, Call>()
/** Versions of packages, where known. */
const versions = new Map<string, string>()
type Call = (...args: never[]) => unknown

/** The primitive that a call applies, or the function's name. */
export const primitiveNameOf = (call: string): string =>
  call.replace(/^primitive /, "").replace(/, all outputs$/, "")

/** The package of the primitive or function that a call names; core if unqualified. */
export function packageOf(call: string): string {
  const name = primitiveNameOf(call)
  return name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "@lazuli/core"
}

/**
 * Registers a call by name: unqualified for core, `<npm package>/<name>` otherwise, so that names of packages cannot collide.
 * @throws RegistryError if the name is taken
 */
export function nameCall(name: string, f: Call, version: string | null = null): void {
  if (named.has(name))
    throw new RegistryError(name, "is already defined, and is defined again", {
      hint: copiesHint() ?? takenHint(packageOf(name)),
    })
  named.set(name, f)
  if (version !== null) versions.set(packageOf(name), version)
}

/** The call of that name; undefined if no loaded package defines it. */
export const callNamed = (name: string): Call | undefined => named.get(name)

/** The version of a loaded package, if known. */
export const versionOf = (name: string): string | null => versions.get(name) ?? null

/**
 * `f`, recorded as one call. `stored` is the function that programs in files call by that name, with unchecked arguments; null if they may
 * not, since it takes code.
 */
export function asCall<A extends readonly unknown[], R>(
  name: string,
  f: (...args: A) => R,
  stored: ((...args: A) => R) | null = f,
): (...args: A) => R {
  if (stored !== null) nameCall(name, stored as Call)
  return (...args) => (calls.recorder === null ? f(...args) : calls.recorder.call(name, f, args))
}

/** Lists that functions read and modify implicitly, such as the PRNG state. */
export const implicitState: (readonly unknown[])[] = []
