/**
 * Keys: the arguments and the captured state of a call, as far as a cached program depends on them.
 */
import { currentStream } from "@lazuli/core/engine"
import {
  hasNumbers,
  keyOf,
  type ShapeDetail,
  type Signature,
  signatureOfConstants,
  signatureOfLeaves,
  signatureOfOutputs,
} from "./signature"
import { type ArrayLeaf, arrayLeaves, type Constant, constantsOf, type Path, rootClass } from "./state"

/** The kinds of arguments and state that a call has: the reason why it wants a cached program. */
export interface Wanted {
  readonly signature: Signature
  readonly stateSignature: Signature
}

export class ProgramKey implements Wanted {
  readonly stateSignature: Signature
  readonly constants: readonly Constant[]
  private readonly captured: Signature
  /** The key with all sizes, which finds a cached program. */
  readonly sizes: string
  /** Stands in the keys of what names streams: that is found by the current one, too. */
  readonly suffix = `@${currentStream().index}`

  /** `signature` is that of the arguments. */
  constructor(
    readonly signature: Signature,
    inputLeaves: readonly ArrayLeaf[],
    inputs: unknown,
    outputs: unknown,
  ) {
    this.constants = [...rootClass(inputs), ...constantsOf(inputs)]
    this.captured = [...signatureOfLeaves(inputLeaves), ...signatureOfConstants(this.constants)]
    this.stateSignature = this.leaving(arrayLeaves(outputs).map(({ path }) => path))
    this.sizes = this.with("sizes", this.stateSignature)
  }

  private withoutNumbers: string | null | undefined

  /** The key with all sizes and without JavaScript's numbers; null where there are none. Only calls without a program ask for it. */
  get butNumbers(): string | null {
    if (this.withoutNumbers === undefined) {
      const { signature, stateSignature } = this
      this.withoutNumbers =
        hasNumbers(signature) || hasNumbers(stateSignature)
          ? keyOf(signature, "sizes", false) + keyOf(stateSignature, "sizes", false)
          : null
    }
    return this.withoutNumbers
  }

  /** The key with less than all sizes. */
  of(detail: ShapeDetail): string {
    return this.with(detail, this.stateSignature)
  }

  /** The key of a call whose captured outputs hold arrays at these paths. */
  after(detail: ShapeDetail, targets: readonly Path[]): string {
    return this.with(detail, this.leaving(targets))
  }

  private leaving(targets: readonly Path[]): Signature {
    return [...this.captured, ...signatureOfOutputs(targets)]
  }

  private with(detail: ShapeDetail, state: Signature): string {
    return `${detail} ${keyOf(this.signature, detail)}${keyOf(state, detail)}`
  }
}
