/**
 * PointNet: Qi et al., "PointNet: Deep learning on point sets for 3D classification and segmentation" (2017),
 * https://arxiv.org/abs/1612.00593.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import type { PointCloudBatch } from "../batch"

/** Linear maps of each row, with a batch norm and a ReLU after each. */
class SharedLayers extends nn.Module {
  layers: nn.Linear[]
  norms: nn.BatchNorm[]

  constructor(widths: readonly number[]) {
    super()
    this.layers = widths.slice(1).map((width, i) => new nn.Linear(widths[i], width, false))
    this.norms = widths.slice(1).map((width) => new nn.BatchNorm(width))
  }

  forward(x: mx.Array): mx.Array {
    return this.layers.reduce((rows, layer, i) => nn.relu(this.norms[i].forward(layer.forward(rows))), x)
  }
}

/** The maximum of the rows of each cloud, and 0 for a cloud without points: -Infinity would reach the others by the batch norm. */
function maxima(rows: mx.Array, { lengths, offsets }: PointCloudBatch): mx.Array {
  const empty = mx.array(lengths.slice(), mx.int32).equal(0).expandDims(1)
  return mx.where(empty, 0, mx.segmentMax(rows, { offsets }))
}

/**
 * Classes of clouds from each point by itself: a learned 3 × 3 map of the coordinates, linear maps of each point, and the maximum over a
 * cloud. A baseline: it knows no neighbours.
 * @example
 * const model = new PointNet({ classes: 5 })
 * model.forward(new PointCloudBatch(mx.random.normal([60, 3]), [40, 20])).shape // => [2, 5]
 */
export class PointNet extends nn.Module {
  align: SharedLayers
  alignment: nn.Linear
  shared: SharedLayers
  hidden: SharedLayers
  head: nn.Linear

  constructor({ classes, width = 64 }: { classes: number; width?: number }) {
    super()
    this.align = new SharedLayers([3, width, 2 * width])
    this.alignment = new nn.Linear(2 * width, 9)
    this.shared = new SharedLayers([3, width, 2 * width, 4 * width])
    this.hidden = new SharedLayers([4 * width, 2 * width])
    this.head = new nn.Linear(2 * width, classes)
  }

  /** Logits, (clouds, classes). */
  forward(batch: PointCloudBatch): mx.Array {
    const { points } = batch
    const seen = maxima(this.align.forward(points), batch)
    const maps = this.alignment.forward(seen).reshape([-1, 3, 3]).add(mx.eye(3))
    const aligned = points
      .expandDims(1)
      .matmul(mx.take(maps, batch.cloudIds(), 0))
      .squeeze(1)
    const pooled = maxima(this.shared.forward(aligned), batch)
    return this.head.forward(this.hidden.forward(pooled))
  }
}
