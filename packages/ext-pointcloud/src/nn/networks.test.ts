import { describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"
import { PointCloudBatch } from "../batch"
import { PointCNN, PointCNNConv, PointCNNEncoder, PointCNNSegmenter, PointNet } from "./index"

const layers = [
  { features: 12, points: 16, neighbours: 6 },
  { features: 16, points: 6, neighbours: 4, dilation: 2 },
]
const points = (n: number, seed: number): mx.Array => mx.random.normal([n, 3], { key: mx.random.key(seed) })

/** Turned about two axes, exact in no float. */
function turned(x: mx.Array): mx.Array {
  const [c, s] = [Math.cos(0.7), Math.sin(0.7)]
  const about = (a: number[][]): mx.Array => mx.array(a, mx.float32)
  return x
    .matmul(
      about([
        [c, s, 0],
        [-s, c, 0],
        [0, 0, 1],
      ]),
    )
    .matmul(
      about([
        [1, 0, 0],
        [0, c, s],
        [0, -s, c],
      ]),
    )
}

describe("PointCNNConv", () => {
  test("clouds of a batch are those by themselves, of any size", () => {
    mx.random.seed(1)
    const conv = new PointCNNConv({
      inputDims: 2,
      outputDims: 5,
      neighbours: 4,
      dilation: 2,
      frame: "distances",
    })
    conv.eval()
    const clouds = [points(20, 1), points(1, 2), points(3, 3)]
    const features = clouds.map((cloud) => mx.random.normal([cloud.shape[0], 2]))
    const batch = PointCloudBatch.of(clouds)
    const together = conv.forward(batch.points, mx.concatenate(features), { offsets: batch.offsets })
    const apart = mx.concatenate(clouds.map((cloud, i) => conv.forward(cloud, features[i])))
    expect(together.shape).toEqual([24, 5])
    expect(mx.allclose(together, apart, { atol: 1e-5 }).item()).toBe(true)
  })

  test("is 0 where a query's cloud has no points", () => {
    const conv = new PointCNNConv({ inputDims: 0, outputDims: 5, neighbours: 4 })
    const out = conv.forward(points(4, 1), null, {
      offsets: [0, 0, 4],
      queries: points(3, 2),
      queryOffsets: [0, 1, 3],
    })
    expect(out.index(0).tolist()).toEqual([0, 0, 0, 0, 0])
    expect(mx.isnan(out).any().item()).toBe(false)
  })

  test("is 0 without any points", () => {
    for (const frame of ["distances", "relative"] as const) {
      const conv = new PointCNNConv({ inputDims: 2, outputDims: 5, neighbours: 4, frame })
      const out = conv.forward(mx.zeros([0, 3]), mx.zeros([0, 2]), { queries: points(3, 2) })
      expect(out.tolist()).toEqual(mx.zeros([3, 5]).tolist())
    }
  })

  test("seen by distances, rotations change nothing; seen by coordinates, they do", () => {
    const cloud = points(30, 4)
    for (const frame of ["distances", "relative"] as const) {
      const conv = new PointCNNConv({ inputDims: 0, outputDims: 5, neighbours: 4, frame })
      conv.eval()
      const [before, after] = [cloud, turned(cloud)].map((x) => conv.forward(x, null))
      expect(mx.allclose(before, after, { atol: 1e-4 }).item()).toBe(frame === "distances")
    }
  })

  test("says what is wrong", () => {
    expect(() => new PointCNNConv({ inputDims: 0, outputDims: 5, neighbours: 0 })).toThrow(
      /\[PointCNNConv\] neighbours must be an integer of at least 1, received 0/,
    )
    expect(
      () => new PointCNNConv({ inputDims: 0, outputDims: 5, neighbours: 1, frame: "polar" as "relative" }),
    ).toThrow(/frame must be relative or distances/)
    const conv = new PointCNNConv({ inputDims: 2, outputDims: 5, neighbours: 4 })
    expect(() => conv.forward(points(4, 1), null)).toThrow(
      /expected features of shape \(4, 2\), received none/,
    )
    expect(() => conv.forward(mx.zeros([4, 2]), mx.zeros([4, 2]))).toThrow(/points of shape \(P, 3\)/)
  })
})

test("an encoder leaves fewer points of each cloud, and small clouds whole", () => {
  const batch = new PointCloudBatch(points(50, 5), [40, 10])
  const levels = new PointCNNEncoder(layers).levels(batch)
  expect(levels.map(({ clouds }) => clouds.lengths)).toEqual([
    [16, 10],
    [6, 6],
  ])
  expect(levels.map(({ features }) => features?.shape)).toEqual([
    [26, 12],
    [12, 16],
  ])
})

describe.each([
  ["PointCNN", () => new PointCNN(layers, { classes: 2, frame: "distances" })],
  ["PointNet", () => new PointNet({ classes: 2, width: 8 })],
  [
    "PointCNNSegmenter",
    () => new PointCNNSegmenter([{ features: 12, neighbours: 6 }, ...layers], { classes: 2 }),
  ],
] as const)("%s", (_, make) => {
  test.each(["trained", "evaluated"])("an empty cloud leaves the others finite, %s", (mode) => {
    mx.random.seed(4)
    const model: nn.Module & { forward(batch: PointCloudBatch): mx.Array } = make()
    if (mode === "evaluated") model.eval()
    const batch = new PointCloudBatch(points(30, 6), [20, 0, 10])
    const finite = (x: mx.Array): unknown => mx.isfinite(x).all().item()
    const [loss, gradient] = nn.valueAndGrad(model, (x: mx.Array) =>
      model.forward(batch.withPoints(x)).square().mean(),
    )(batch.points)
    expect(finite(loss)).toBe(true)
    for (const [, each] of mx.treeFlatten(gradient)) expect(finite(each as mx.Array)).toBe(true)
  })

  test("learns, compiled as eager", () => {
    mx.random.seed(3)
    const model: nn.Module & { forward(batch: PointCloudBatch): mx.Array } = make()
    const lengths = [24, 24, 24, 24]
    // Clouds 1 and 3 are flat.
    const flat = mx.array([1, 1, 0.02]).expandDims(0)
    const clouds = lengths.map((n, i) => points(n, i).multiply(i % 2 ? flat : mx.ones([1, 3])))
    const x = mx.concatenate(clouds)
    const classes = mx.array([0, 1, 0, 1], mx.int32)
    const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array) => {
      const batch = new PointCloudBatch(x, lengths)
      const logits = model.forward(batch)
      const targets = logits.shape[0] === 4 ? classes : mx.take(classes, batch.cloudIds())
      return nn.losses.crossEntropy(logits, targets, { reduction: "mean" })
    })
    const eager = Number(lossAndGradient(x)[0].item())
    const optimizer = new optim.Adam({ learningRate: 0.01 })
    const state = [model.state, optimizer.state]
    optimizer.init(model.trainableParameters())
    const step = compile(
      (x: mx.Array) => {
        const [loss, gradient] = lossAndGradient(x)
        optimizer.update(model, gradient)
        return loss
      },
      { inputs: state, outputs: state },
    )
    const losses = Array.from({ length: 25 }, () => {
      const loss = step(x)
      mx.eval(loss, model.state, optimizer.state)
      return Number(loss.item())
    })
    expect(losses[0]).toBeCloseTo(eager, 3)
    expect(losses[24]).toBeLessThan(0.5 * losses[0])
  })
})
