/** PointCNN's convolution: Li et al., "PointCNN: Convolution on X-transformed points" (2018), https://arxiv.org/abs/1801.07791. */
import * as mx from "@lazuli/core"
import { format } from "@lazuli/core/plugin"
import * as nn from "@lazuli/nn"
import { knn } from "../neighbours"
import type { Integers } from "../positions"

/** The view of a neighbour from a query: its relative coordinates, or distances alone, which rotations do not change. */
export type LocalFrame = "relative" | "distances"

/** The clouds of a convolution, and where it is computed. */
export interface ConvolutionOptions {
  /** Where each cloud of the points begins, with their number at the end. */
  offsets?: Integers | null
  /** Where the result stands, (Q, 3); the points themselves by default. */
  queries?: mx.Array | null
  /** Where each cloud of the queries begins, with their number at the end. */
  queryOffsets?: Integers | null
}

/** Sizes of a {@link PointCNNConv}. */
export interface PointCNNConvOptions {
  /** Features of a point; 0 where there are coordinates alone. */
  inputDims: number
  outputDims: number
  /** Neighbours that each result is made of. */
  neighbours: number
  /** Every `dilation`-th of the nearest points is a neighbour. */
  dilation?: number
  /** Features that coordinates are lifted to; a quarter of `outputDims` by default. */
  liftedDims?: number
  frame?: LocalFrame
}

/** The middle of each row's cloud: (Q, 3), of clouds of points and of rows. */
function centres(points: mx.Array, offsets: Integers, ofRows: Integers, rows: number): mx.Array {
  const bounds = ofRows instanceof mx.Array ? ofRows : mx.array(ofRows.slice(), mx.int32)
  const lengths = bounds.index("1:").subtract(bounds.index(":-1"))
  return mx.repeat(mx.segmentMean(points, { offsets }), lengths, { axis: 0, totalLength: rows })
}

const length = (x: mx.Array): mx.Array => x.square().sum(-1, true).add(1e-12).sqrt()

/**
 * A convolution over the nearest points. Of each query's neighbours, coordinates are lifted to features, a K × K matrix made of the same
 * coordinates weighs and permutes them (the X-transform), and a linear map of all of them is the result: (P, inputDims) gives (Q,
 * outputDims).
 *
 * A query whose cloud has no points gives 0. With `frame: 'distances'` neighbours are seen by three distances: to the query, to the middle
 * of the cloud, and the query's to that middle. Rotating or mirroring a cloud then changes nothing.
 * @example
 * const conv = new PointCNNConv({ inputDims: 0, outputDims: 8, neighbours: 4 })
 * conv.forward(mx.random.normal([10, 3]), null).shape // => [10, 8]
 */
export class PointCNNConv extends nn.Module {
  neighbours: number
  dilation: number
  inputDims: number
  frame: LocalFrame
  lift: nn.Linear[]
  transform: nn.Linear[]
  combine: nn.Linear
  norm: nn.BatchNorm

  constructor(options: PointCNNConvOptions) {
    super()
    const { inputDims, outputDims, neighbours, dilation = 1, frame = "relative" } = options
    const { liftedDims = Math.max(1, Math.floor(outputDims / 4)) } = options
    for (const [name, value, least] of [
      ["inputDims", inputDims, 0],
      ["outputDims", outputDims, 1],
      ["neighbours", neighbours, 1],
      ["dilation", dilation, 1],
      ["liftedDims", liftedDims, 1],
    ] as const)
      if (!Number.isSafeInteger(value) || value < least)
        throw new mx.ArgumentError(
          "PointCNNConv",
          `${name} must be an integer of at least ${least}, received ${String(value)}`,
        )
    if (frame !== "relative" && frame !== "distances")
      throw new mx.ArgumentError(
        "PointCNNConv",
        `frame must be relative or distances, received ${String(frame)}`,
      )
    this.neighbours = neighbours
    this.dilation = dilation
    this.inputDims = inputDims
    this.frame = frame
    this.lift = [new nn.Linear(3, liftedDims), new nn.Linear(liftedDims, liftedDims)]
    const square = neighbours * neighbours
    this.transform = [new nn.Linear(3 * neighbours, square), new nn.Linear(square, square)]
    this.combine = new nn.Linear(neighbours * (liftedDims + inputDims), outputDims, false)
    this.norm = new nn.BatchNorm(outputDims)
  }

  /**
   * @param points - (P, 3)
   * @param features - (P, inputDims), or null where inputDims is 0
   * @throws ShapeError where features are not as declared
   */
  forward(points: mx.Array, features: mx.Array | null, options: ConvolutionOptions = {}): mx.Array {
    const offsets = options.offsets ?? [0, points.shape[0]]
    const queries = options.queries ?? points
    const queryOffsets = options.queryOffsets ?? (options.queries ? [0, queries.shape[0]] : offsets)
    this.#check(points, features)
    if (points.shape[0] === 0)
      return mx.zeros([queries.shape[0], this.combine.weight.shape[0]], queries.dtype)
    const nearest = knn(points, queries, this.neighbours * this.dilation, { offsets, queryOffsets })
    const dilated = this.dilation === 1 ? nearest : nearest.index(":", `::${this.dilation}`)
    // A small cloud's nearest point stands for those it does not have.
    const first = dilated.index(":", "0:1")
    const chosen = mx.maximum(mx.where(dilated.less(0), first, dilated), 0)
    const local = this.#local(points, queries, chosen, offsets, queryOffsets)
    const [rows, k] = chosen.shape
    let lifted = nn.elu(this.lift[0].forward(local))
    lifted = nn.elu(this.lift[1].forward(lifted))
    const seen = features === null ? lifted : mx.concatenate([lifted, mx.take(features, chosen, 0)], 2)
    const hidden = nn.elu(this.transform[0].forward(local.reshape([rows, 3 * k])))
    const weights = this.transform[1].forward(hidden).reshape([rows, k, k])
    const combined = this.combine.forward(weights.matmul(seen).flatten(1, 2))
    const result = nn.elu(this.norm.forward(combined))
    return mx.where(first.less(0), 0, result)
  }

  #check(points: mx.Array, features: mx.Array | null): void {
    if (points.ndim !== 2 || points.shape[1] !== 3)
      throw new mx.ShapeError(
        "PointCNNConv",
        `expected points of shape (P, 3), received ${format(points.shape)}`,
      )
    const expected = [points.shape[0], this.inputDims]
    if (this.inputDims === 0 ? features !== null : features?.shape.join() !== expected.join())
      throw new mx.ShapeError(
        "PointCNNConv",
        `expected ${this.inputDims === 0 ? "no features" : `features of shape ${format(expected)}`}, received ${features === null ? "none" : format(features.shape)}`,
      )
  }

  /** The neighbours (Q, K) as each query sees them: (Q, K, 3). */
  #local(
    points: mx.Array,
    queries: mx.Array,
    chosen: mx.Array,
    offsets: Integers,
    queryOffsets: Integers,
  ): mx.Array {
    const relative = mx.take(points, chosen, 0).subtract(queries.expandDims(1))
    if (this.frame === "relative") return relative
    const middles = centres(points, offsets, queryOffsets, queries.shape[0])
    const query = queries.subtract(middles).expandDims(1)
    const own = mx.broadcastTo(length(query), [...chosen.shape, 1])
    return mx.concatenate([length(relative), length(relative.add(query)), own], 2)
  }
}
