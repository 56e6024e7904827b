/** Memory as an estimate of an evaluation sees it: what is there, or what would be. */
import type { Stream } from "../graph/device"
import type { Memory, Storage } from "../graph/storage"
import type { Held } from "./assignment"
import type { Evaluation } from "./undo"

/** Memory that nodes share. */
export class Block implements Held {
  /** See {@link Evaluation.kept}. */
  static readonly kept = new Block({} as Memory, 0, null, 0, null)

  readonly lender: Held | null
  readonly original: Held | null
  copies: readonly Held[] | null
  constructor(
    readonly memory: Memory,
    readonly nbytes: number,
    /** The stream that made it. */
    readonly stream: Stream | null,
    /** The number of nodes that show it. */
    public shown: number,
    /** The storage, of what is there already. */
    readonly storage: Storage | null,
  ) {
    this.lender = storage?.lender ?? null
    this.original = storage?.original ?? null
    this.copies = storage?.copies ?? null
  }
}
