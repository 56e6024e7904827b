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

/** `f`, reported as one call where calls are remembered. */
export function asCall<A extends readonly unknown[], R>(
  name: string,
  f: (...args: A) => R,
): (...args: A) => R {
  return (...args) => (calls.recorder === null ? f(...args) : calls.recorder.call(name, f, args))
}

/** Lists that functions read and change without being given them, such as the random generator's state. */
export const implicitState: (readonly unknown[])[] = []
