/**
 * Calls of public functions, as a trace for shapes that may change sees them. What a function adds to the graph depends on the shapes it
 * meets, so it is the call that such a trace remembers and repeats.
 */
import { copiesHint, takenHint } from "./copies"
import { RegistryError } from "./errors"

/** Remembers calls. While one runs, calls within it are part of it and are not reported. */
export interface CallRecorder {
  /** Runs a call and remembers it. */
  call<A extends readonly unknown[], R>(name: string, f: (...args: A) => R, args: A): R
  /**
   * Sizes of an array were looked at: what is done with them holds for these alone. `isShown` says that the traced function sees them, by
   * the number of items that it is given.
   */
  readSizes(isShown?: boolean): void
  /** It looked at the number of an array's axes. */
  readRank(): void
}

/** The recorder of calls, if there is one. */
export const calls: { recorder: CallRecorder | null } = { recorder: null }

/** Functions that can be called by name: programs in files name their calls. Nothing that takes or makes code is among them. */
const named = new Map<string, Call>()
/** The versions of packages whose calls said theirs. */
const versions = new Map<string, string>()
type Call = (...args: never[]) => unknown

/** The primitive that a call applies; a function's name stays. */
export const primitiveNameOf = (call: string): string =>
  call.replace(/^primitive /, "").replace(/, all outputs$/, "")

/** The package whose primitive or function a call names: core, where the name is bare. */
export function packageOf(call: string): string {
  const name = primitiveNameOf(call)
  return name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "@lazuli/core"
}

/**
 * Gives a call its name: bare for core's, `<npm package>/<name>` for everyone else's, so that packages cannot take each other's.
 * @throws RegistryError where the name is taken
 */
export function nameCall(name: string, f: Call, version: string | null = null): void {
  if (named.has(name))
    throw new RegistryError(name, "is already defined, and is defined again", {
      hint: copiesHint() ?? takenHint(packageOf(name)),
    })
  named.set(name, f)
  if (version !== null) versions.set(packageOf(name), version)
}

/** The call of that name; undefined where no loaded package has one. */
export const callNamed = (name: string): Call | undefined => named.get(name)

/** The version of a loaded package, where its calls say it. */
export const versionOf = (name: string): string | null => versions.get(name) ?? null

/**
 * `f`, reported as one call where calls are remembered. `stored` is what programs in files call by that name, whose arguments nobody has
 * checked; null where they may not, since it takes code.
 */
export function asCall<A extends readonly unknown[], R>(
  name: string,
  f: (...args: A) => R,
  stored: ((...args: A) => R) | null = f,
): (...args: A) => R {
  if (stored !== null) nameCall(name, stored as Call)
  return (...args) => (calls.recorder === null ? f(...args) : calls.recorder.call(name, f, args))
}

/** Lists that functions read and change without being given them, such as the random generator's state. */
export const implicitState: (readonly unknown[])[] = []
