/**
 * The arrays of a checkpoint, in the files of the members that wrote it. Of each, a member reads what it needs, and no more at a time.
 */
import * as mx from "@lazuli/core"
import {
  readSafetensorsHeader,
  readTensor,
  type SafetensorsHeader,
  type StoredTensor,
  withFile,
} from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"

/** A range of an axis. */
type Range = readonly [from: number, to: number]

/** The file of a member. */
interface Part {
  readonly path: string
  readonly header: SafetensorsHeader
  readonly tensors: ReadonlyMap<string, StoredTensor>
}

/** An array of a checkpoint, as it was before it was split. */
export interface SavedArray {
  readonly name: string
  readonly dtype: mx.Dtype
  readonly shape: readonly number[]
  /** Its split; undefined where the first member has written all of it. */
  readonly shard?: nn.Shard
}

/** The parts of a checkpoint, by the ranks that wrote them. */
export class CheckpointParts {
  readonly arrays: readonly SavedArray[]
  /** The notes of the first member. */
  readonly metadata: Readonly<Record<string, string>>
  private readonly parts: readonly Part[]

  /** @throws FormatError if a file is malformed, or lacks an array of which it should have a part */
  constructor(
    private readonly op: string,
    paths: readonly string[],
  ) {
    this.parts = paths.map((path) => {
      const header = withFile(op, path, readSafetensorsHeader)
      return { path, header, tensors: new Map(header.tensors.map((each) => [each.name, each])) }
    })
    const [{ header, tensors }] = this.parts
    this.metadata = header.metadata
    const shards = JSON.parse(header.metadata.shards ?? "{}") as Record<string, nn.Shard>
    this.arrays = [...tensors.values()].map(({ name, dtype, shape }) => {
      const shard = Object.hasOwn(shards, name) ? shards[name] : undefined
      if (!shard) return { name, dtype, shape }
      for (const part of this.parts) this.checkPart(part, name, dtype, shape)
      return { name, dtype, shape: [...shape].with(shard.axis, lengthOf(shard)), shard }
    })
  }

  private checkPart({ path, tensors }: Part, name: string, dtype: mx.Dtype, shape: readonly number[]): void {
    const found = tensors.get(name)
    if (found?.dtype !== dtype || `${found.shape}` !== `${shape}`)
      throw new mx.FormatError(this.op, `${path} has no part of "${name}" like that of the first member`)
  }

  /** An array, or the part of it that a member of a group has of a parameter that is split. */
  read(saved: SavedArray, shard: nn.Shard | undefined, group: mx.distributed.Group): mx.Array {
    const { shape, dtype } = saved
    if (!shard) return assembled(this.pieces(saved, [0, lengthOf(saved.shard)]), saved.shard?.axis ?? 0)
    const { axis } = saved.shard ?? shard
    if (axis !== shard.axis) {
      // Each of the parts has all of the other axis.
      const pieces = this.pieces(saved, [0, lengthOf(saved.shard)])
      return assembled(
        pieces.map((piece) => taken(nn.partOf(piece, shard, group), piece)),
        axis,
      )
    }
    const pieces: mx.Array[] = []
    let at = 0
    for (const segment of shard.segments) {
      const each = nn.lengthOfPart({ axis, segments: [segment] }, group.size())
      const [from, to] = [group.rank(), group.rank() + 1].map((r) => Math.min(r * each, segment))
      pieces.push(...this.pieces(saved, [at + from, at + to], axis))
      if (to - from < each) pieces.push(mx.zeros([...shape].with(axis, each - (to - from)), dtype))
      at += segment
    }
    return assembled(pieces, axis)
  }

  /** The pieces that files have of a range of the axis by which an array was split, or of another one, if it was not. */
  private pieces({ name, shard }: SavedArray, [from, to]: Range, axis = shard?.axis ?? 0): mx.Array[] {
    if (!shard) return [this.piece(0, name, axis, to === WHOLE ? undefined : [from, to])]
    const pieces: mx.Array[] = []
    // Where a segment begins in the whole array, and its shares in the parts.
    let [begin, at] = [0, 0]
    for (const segment of shard.segments) {
      const each = nn.lengthOfPart({ axis, segments: [segment] }, this.parts.length)
      const [first, last] = [Math.max(from - begin, 0), Math.min(to - begin, segment)]
      for (let rank = Math.floor(first / each); first < last && rank * each < last; rank++) {
        const [low, high] = [Math.max(first, rank * each), Math.min(last, (rank + 1) * each)]
        pieces.push(this.piece(rank, name, axis, [at + low - rank * each, at + high - rank * each]))
      }
      begin += segment
      at += each
    }
    return pieces
  }

  /** A range of an axis of what a member wrote of an array. */
  private piece(rank: number, name: string, axis: number, range?: Range): mx.Array {
    const { path, header, tensors } = this.parts[rank]
    const tensor = tensors.get(name) as StoredTensor
    return withFile(this.op, path, (file) => {
      if (!range || (range[0] === 0 && range[1] === tensor.shape[axis]))
        return readTensor(file, header, tensor)
      if (axis === 0) return readTensor(file, header, tensor, range)
      const all = readTensor(file, header, tensor)
      return taken(mx.take(all, mx.arange(...range, 1, mx.int32), axis), all)
    })
  }
}

/** The end of what is not split. */
const WHOLE = Number.POSITIVE_INFINITY
const lengthOf = (shard: nn.Shard | undefined): number =>
  shard ? shard.segments.reduce((sum, n) => sum + n, 0) : WHOLE

/** An array that was made of others, which are not needed any more: their memory is free at once. */
function taken(x: mx.Array, ...from: readonly mx.Array[]): mx.Array {
  mx.eval(x)
  for (const each of from) if (each !== x) each.dispose()
  return x
}

const assembled = (pieces: readonly mx.Array[], axis: number): mx.Array =>
  pieces.length === 1 ? pieces[0] : taken(mx.concatenate([...pieces], axis), ...pieces)
