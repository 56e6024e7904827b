/** Clouds of several sizes as one array of points: where each begins, and what is done with each cloud. */
import * as mx from "@lazuli/core"
import { format } from "@lazuli/core/plugin"
import { asLine, type Integers } from "./positions"
import { reductions, type SegmentReduction, segmentReduce } from "./segments"

/**
 * Clouds of several sizes. Their points lie one cloud after another in `points` (N, …), of which `lengths` says how many each cloud has. A
 * batch does not change: its methods give others.
 *
 * @example
 * const batch = PointCloudBatch.of([mx.array([[0, 0], [2, 2]]), mx.array([[5, 5]])])
 * batch.lengths // => [2, 1]
 * batch.reduce('mean').tolist() // => [[1, 1], [5, 5]]
 * batch.toPadded().tolist() // => [[[0, 0], [2, 2]], [[5, 5], [0, 0]]]
 */
export class PointCloudBatch {
  /** The points of all clouds, one cloud after another. */
  readonly points: mx.Array
  /** The number of points of each cloud. */
  readonly lengths: readonly number[]
  /** Where each cloud begins, and the number of points at the end. */
  readonly offsets: readonly number[]

  /** @throws ShapeError unless the lengths add up to the points */
  constructor(points: mx.Array, lengths: Integers) {
    const op = "PointCloudBatch"
    if (!(points instanceof mx.Array)) throw new mx.ArgumentError(op, "expected an array of points")
    if (points.ndim === 0) throw new mx.ShapeError(op, "expected points, received a 0-d array")
    const list = asLine(op, "lengths", lengths).tolist() as (number | bigint)[]
    const offsets = [0]
    for (const length of list.map(Number)) {
      if (length < 0) throw new mx.ArgumentError(op, `lengths must not be negative, received ${length}`)
      offsets.push(offsets[offsets.length - 1] + length)
    }
    const total = offsets[list.length]
    if (total !== points.shape[0])
      throw new mx.ShapeError(
        op,
        `lengths must add up to the ${points.shape[0]} points, received a sum of ${total}`,
      )
    this.points = points
    this.lengths = list.map(Number)
    this.offsets = offsets
  }

  /** A batch of clouds (N, …), which may differ in N alone. @throws ShapeError for no clouds, or unlike ones */
  static of(clouds: readonly mx.Array[]): PointCloudBatch {
    const op = "PointCloudBatch"
    if (clouds.length === 0) throw new mx.ShapeError(op, "expected clouds, received none")
    const [first] = clouds
    if (!clouds.every((cloud) => cloud instanceof mx.Array))
      throw new mx.ArgumentError(op, "expected clouds, each an array of points")
    for (const cloud of clouds)
      if (cloud.ndim === 0 || cloud.shape.slice(1).join() !== first.shape.slice(1).join())
        throw new mx.ShapeError(
          op,
          `expected clouds whose points have the same shape, received shapes ${format(first.shape)} and ${format(cloud.shape)}`,
        )
    return new PointCloudBatch(
      mx.concatenate(clouds, 0),
      clouds.map((cloud) => cloud.shape[0]),
    )
  }

  /** A batch of the first `lengths[i]` points of each row of an array (clouds, longest, …). @throws ShapeError for longer ones */
  static fromPadded(padded: mx.Array, lengths: Integers): PointCloudBatch {
    const op = "PointCloudBatch.fromPadded"
    const each = (asLine(op, "lengths", lengths).tolist() as (number | bigint)[]).map(Number)
    if (!(padded instanceof mx.Array) || padded.ndim < 2)
      throw new mx.ArgumentError(op, "expected an array (clouds, longest, …)")
    const wrong = each.find((length) => length < 0 || length > padded.shape[1])
    if (wrong !== undefined)
      throw new mx.ShapeError(op, `expected lengths from 0 to ${padded.shape[1]}, received ${wrong}`)
    return new PointCloudBatch(mx.unpadSegments(padded, { lengths: each }), each)
  }

  /** The number of clouds. */
  get length(): number {
    return this.lengths.length
  }

  /** The points of one cloud; −1 is the last. @throws IndexError */
  cloud(i: number): mx.Array {
    const at = this.#position(i)
    return this.points.index(mx.s(this.offsets[at], this.offsets[at + 1]))
  }

  /** All clouds, each an array of its own. */
  clouds(): mx.Array[] {
    return this.lengths.map((_, i) => this.cloud(i))
  }

  /** The clouds at these positions, in their order; one may be taken several times. @throws IndexError */
  gather(indices: Integers): PointCloudBatch {
    const chosen = (asLine("PointCloudBatch.gather", "indices", indices).tolist() as (number | bigint)[]).map(
      (i) => this.#position(Number(i)),
    )
    const rows = chosen.flatMap((i) => Array.from({ length: this.lengths[i] }, (_, k) => this.offsets[i] + k))
    return new PointCloudBatch(
      mx.take(this.points, rows, 0),
      chosen.map((i) => this.lengths[i]),
    )
  }

  /** The points in a random order inside of each cloud, or the clouds among each other. */
  shuffle({
    of = "points",
    key = null,
  }: {
    of?: "points" | "clouds"
    key?: mx.Array | null
  } = {}): PointCloudBatch {
    if (of !== "points" && of !== "clouds")
      throw new mx.ArgumentError(
        "PointCloudBatch.shuffle",
        `of must be "points" or "clouds", received ${JSON.stringify(of)}`,
      )
    if (of === "clouds") return this.gather(mx.random.permutation(this.length, { key }))
    // Sorted by cloud, and by random numbers inside of each: the second sort keeps the order of the first.
    const random = mx.argsort(mx.random.uniform({ shape: [this.points.shape[0]], key }))
    const order = mx.take(random, mx.argsort(mx.take(this.cloudIds(), random)))
    return new PointCloudBatch(mx.take(this.points, order, 0), this.lengths)
  }

  /** Rows of one length, with `value` (0) behind the points of a cloud: (clouds, longest, …). */
  toPadded(value = 0): mx.Array {
    return mx.padSegments(this.points, { lengths: this.lengths, value })
  }

  /** Where {@link toPadded} has a point: bool (clouds, longest). */
  mask(): mx.Array {
    const longest = this.lengths.reduce((a, b) => Math.max(a, b), 0)
    return mx.arange(longest).less(mx.array(this.lengths.slice(), mx.int32).expandDims(1))
  }

  /** The cloud of each point, int32 (N). */
  cloudIds(): mx.Array {
    return mx.repeat(mx.arange(this.length, { dtype: mx.int32 }), this.lengths)
  }

  /** The points of each cloud put together: (clouds, …). What a cloud without points gives is that of `mx.segmentSum` and its kin. */
  reduce(reduction: SegmentReduction): mx.Array {
    if (!reductions.includes(reduction))
      throw new mx.ArgumentError(
        "PointCloudBatch.reduce",
        `there is no reduction ${JSON.stringify(reduction)}`,
        {
          hint: `It is one of ${reductions.join(", ")}`,
        },
      )
    return segmentReduce(this.points, { lengths: mx.array(this.lengths.slice(), mx.int32), reduction })
  }

  /** The clouds with other values at their points. @throws ShapeError unless there are as many */
  withPoints(points: mx.Array): PointCloudBatch {
    return new PointCloudBatch(points, this.lengths)
  }

  #position(i: number): number {
    const at = i < 0 ? i + this.length : i
    if (!Number.isInteger(i) || at < 0 || at >= this.length)
      throw new mx.IndexError("PointCloudBatch", `index ${i} is out of bounds for ${this.length} clouds`)
    return at
  }
}
