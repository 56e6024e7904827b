/** One kind of random attempts at breaking the library: how its cases are drawn, and one attempt. */
import type fc from "fast-check"

export interface Fuzzer<Case> {
  /** The cases; fast-check draws them from a seed and makes the failing ones small. */
  readonly cases: fc.Arbitrary<Case>
  /** One attempt. Gives the outcome in a word or two, which is counted. @throws Finding for what must not be */
  attempt(drawn: Case): string | Promise<string>
  /** Seconds of processor time that an attempt may take; 1 if not given. */
  readonly seconds?: number
  /** Bytes by which the process may grow at one attempt; 1 GB if not given. */
  readonly bytes?: number
}

/** An outcome that must not be. Rates are counted by its kind. */
export class Finding extends Error {
  constructor(
    /** A few words without what varies: `npy: raw error`. */
    readonly kind: string,
    detail: string,
    cause?: unknown,
  ) {
    super(detail, cause === undefined ? undefined : { cause })
    this.name = "Finding"
  }
}

/** Signs of a message that is not for users. */
const INTERNAL = [
  /^(?!\[[^\]]+\] )/,
  /\bundefined\b/,
  /\[object /,
  /Cannot read|is not a function|is not iterable|is not a constructor/,
  // A refusal of ours goes on with how much was asked for.
  /Maximum call stack|Invalid array length|out of memory(?!: )/,
  /\/src\/[a-z-]+\.ts/,
]
/** More characters than this are an echo of what came. */
const LONGEST = 2000

/** Says what in a message is not for users, if anything is; what it quotes of theirs does not count. */
export function internalText(message: string): string | null {
  const own = message.replace(/"(?:[^"\\]|\\.)*"/g, '""').replace(/received undefined\b/g, "received nothing")
  const sign = INTERNAL.find((pattern) => pattern.test(own))
  if (sign) return `it matches ${sign}`
  return message.length > LONGEST ? `it has ${message.length} characters` : null
}
