/**
 * Calls of public functions, as a trace for shapes that may change sees them. What a function adds to the graph depends on the shapes it
 * meets, so it is the call that such a trace remembers and repeats.
 */

/** Remembers calls. While one runs, calls within it are part of it and are not reported. */
export interface CallRecorder {
  /** Runs a call and remembers it. */
  call<A extends readonly unknown[], R>(name: string, f: (...args: A) => R, args: A): R
  /** The traced function looked at an array's sizes: what it does with them holds for these sizes alone. */
  readSizes(): void
}

/** Who remembers calls, if anybody. */
export const calls: { recorder: CallRecorder | null } = { recorder: null }

/** What can be called by name: programs in files name their calls. Nothing that takes or makes code is among them. */
const named = new Map<string, Call | null>()
type Call = (...args: never[]) => unknown

/** Gives a call its name. A name that two calls have stands for neither: packages cannot know of each other. */
export function nameCall(name: string, f: Call): void {
  named.set(name, named.has(name) ? null : f)
}

/** The call of that name; undefined where no loaded package has one, null where several do. */
export const callNamed = (name: string): Call | null | undefined => named.get(name)

/** The names that stand for nothing because several calls have them. */
export const sharedNames = (): string[] => [...named].flatMap(([name, f]) => (f === null ? [name] : []))

/** `f`, reported as one call where calls are remembered. */
export function asCall<A extends readonly unknown[], R>(
  name: string,
  f: (...args: A) => R,
  /** Whether programs in files may name it: its arguments are arrays and data. */
  inFiles = true,
): (...args: A) => R {
  if (inFiles) nameCall(name, f as Call)
  return (...args) => (calls.recorder === null ? f(...args) : calls.recorder.call(name, f, args))
}

/** Lists that functions read and change without being given them, such as the random generator's state. */
export const implicitState: (readonly unknown[])[] = []
