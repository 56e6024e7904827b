/** PointCNN's networks: an encoder of ever fewer points that see ever farther, a classifier, and a segmenter of points. */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { PointCloudBatch } from "../batch"
import { farthestPointSampling } from "../neighbours"
import { type LocalFrame, PointCNNConv } from "./point-cnn-conv"

/** A layer of an encoder. */
export interface PointCNNLayer {
  /** Features of each point afterwards. */
  features: number
  /** Points that are left of a cloud: those far from each other; all of them by default. */
  points?: number
  neighbours: number
  dilation?: number
}

/** Clouds with what a network found out about their points. */
export interface EncodedClouds {
  readonly clouds: PointCloudBatch
  /** (points of all clouds, features). */
  readonly features: mx.Array | null
}

/** At most `count` points of each cloud, far from each other. */
function representatives(clouds: PointCloudBatch, count: number): PointCloudBatch {
  if (clouds.lengths.every((length) => length <= count)) return clouds
  const found = farthestPointSampling(clouds.points, count, { offsets: clouds.offsets })
  const lengths = clouds.lengths.map((length) => Math.min(length, count))
  const rows = mx.unpadSegments(found, { lengths })
  return new PointCloudBatch(mx.take(clouds.points, rows, 0), lengths)
}

/**
 * Convolutions one after another, each over fewer points of the clouds.
 * @example
 * const encoder = new PointCNNEncoder([{ features: 16, points: 32, neighbours: 8 }, { features: 32, points: 8, neighbours: 8 }])
 * const batch = new PointCloudBatch(mx.random.normal([128, 3]), [64, 64])
 * encoder.forward(batch).features?.shape // => [16, 32]
 */
export class PointCNNEncoder extends nn.Module {
  convolutions: PointCNNConv[]
  points: (number | null)[]

  constructor(
    layers: readonly PointCNNLayer[],
    { inputDims = 0, frame }: { inputDims?: number; frame?: LocalFrame } = {},
  ) {
    super()
    this.points = layers.map(({ points }) => points ?? null)
    this.convolutions = layers.map(
      ({ features, neighbours, dilation }, i) =>
        new PointCNNConv({
          inputDims: i === 0 ? inputDims : layers[i - 1].features,
          outputDims: features,
          neighbours,
          dilation,
          frame,
        }),
    )
  }

  /** The clouds after each layer, the last one at the end. */
  levels(batch: PointCloudBatch, features: mx.Array | null = null): EncodedClouds[] {
    const levels: EncodedClouds[] = []
    let last: EncodedClouds = { clouds: batch, features }
    this.convolutions.forEach((convolution, i) => {
      const { clouds } = last
      const count = this.points[i]
      const fewer = count === null ? clouds : representatives(clouds, count)
      last = {
        clouds: fewer,
        features: convolution.forward(clouds.points, last.features, {
          offsets: clouds.offsets,
          queries: fewer.points,
          queryOffsets: fewer.offsets,
        }),
      }
      levels.push(last)
    })
    return levels
  }

  /** The clouds after the last layer. */
  forward(batch: PointCloudBatch, features: mx.Array | null = null): EncodedClouds {
    return this.levels(batch, features).at(-1) ?? { clouds: batch, features }
  }
}

/**
 * Classes of clouds: an encoder, the mean of what it found in each cloud, and two linear maps.
 * @example
 * const model = new PointCNN([{ features: 16, points: 16, neighbours: 8 }], { classes: 5 })
 * model.forward(new PointCloudBatch(mx.random.normal([60, 3]), [40, 20])).shape // => [2, 5]
 */
export class PointCNN extends nn.Module {
  encoder: PointCNNEncoder
  hidden: nn.Linear
  dropout: nn.Dropout
  head: nn.Linear

  constructor(
    layers: readonly PointCNNLayer[],
    options: { classes: number; inputDims?: number; frame?: LocalFrame; dropout?: number },
  ) {
    super()
    const { classes, dropout = 0, ...rest } = options
    const width = layers[layers.length - 1].features
    this.encoder = new PointCNNEncoder(layers, rest)
    this.hidden = new nn.Linear(width, width)
    this.dropout = new nn.Dropout(dropout)
    this.head = new nn.Linear(width, classes)
  }

  /** Logits, (clouds, classes). */
  forward(batch: PointCloudBatch, features: mx.Array | null = null): mx.Array {
    const { clouds, features: found } = this.encoder.forward(batch, features)
    const pooled = mx.segmentMean(found as mx.Array, { offsets: clouds.offsets })
    return this.head.forward(this.dropout.forward(nn.elu(this.hidden.forward(pooled))))
  }
}

/**
 * Classes of points: an encoder, and convolutions back to all points, each beside what the encoder knew there.
 * @example
 * const model = new PointCNNSegmenter([{ features: 8, neighbours: 8 }, { features: 16, points: 16, neighbours: 8 }], { classes: 2 })
 * model.forward(new PointCloudBatch(mx.random.normal([60, 3]), [40, 20])).shape // => [60, 2]
 */
export class PointCNNSegmenter extends nn.Module {
  encoder: PointCNNEncoder
  decoders: PointCNNConv[]
  head: nn.Linear

  constructor(
    layers: readonly PointCNNLayer[],
    options: { classes: number; inputDims?: number; frame?: LocalFrame },
  ) {
    super()
    const { classes, inputDims = 0, frame } = options
    this.encoder = new PointCNNEncoder(layers, { inputDims, frame })
    // From level i + 1 to level i; the first level's result is what the head sees.
    this.decoders = layers.slice(0, -1).map(
      ({ features, neighbours, dilation }, i) =>
        new PointCNNConv({
          inputDims: i + 2 === layers.length ? layers[i + 1].features : 2 * layers[i + 1].features,
          outputDims: features,
          neighbours,
          dilation,
          frame,
        }),
    )
    this.head = new nn.Linear(layers.length === 1 ? layers[0].features : 2 * layers[0].features, classes)
  }

  /** Logits of each point of the first level, (points, classes): of all points unless the first layer leaves some out. */
  forward(batch: PointCloudBatch, features: mx.Array | null = null): mx.Array {
    const levels = this.encoder.levels(batch, features)
    let found = levels[levels.length - 1].features as mx.Array
    for (let i = levels.length - 2; i >= 0; i--) {
      const [coarse, fine] = [levels[i + 1].clouds, levels[i].clouds]
      const spread = this.decoders[i].forward(coarse.points, found, {
        offsets: coarse.offsets,
        queries: fine.points,
        queryOffsets: fine.offsets,
      })
      found = mx.concatenate([levels[i].features as mx.Array, spread], 1)
    }
    return this.head.forward(found)
  }
}
