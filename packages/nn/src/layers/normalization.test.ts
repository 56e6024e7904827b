import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import * as nn from "../index"

describe("sixteen-bit floats", () => {
  const x = mx.array([-512, 512, -512, 512], mx.float16)

  test.each([
    ["InstanceNorm", () => new nn.InstanceNorm(1).forward(x.reshape([1, 4, 1]))],
    ["GroupNorm", () => new nn.GroupNorm(1, 1, { affine: false }).forward(x.reshape([1, 4, 1]))],
    [
      "GroupNorm, as PyTorch's",
      () => new nn.GroupNorm(1, 1, { affine: false, pytorchCompatible: true }).forward(x.reshape([1, 4, 1])),
    ],
    ["BatchNorm", () => new nn.BatchNorm(1, { affine: false }).forward(x.reshape([4, 1]))],
    ["LayerNorm", () => new nn.LayerNorm(4, { affine: false }).forward(x)],
    ["RMSNorm", () => new nn.RMSNorm(4).setDtype(mx.float16).forward(x)],
  ])("%s does not overflow in the squares", (_name, run) => {
    const y = run()
    expect(y.dtype).toBe(mx.float16)
    expect(y.flatten().tolist()).toEqual([-1, 1, -1, 1])
  })

  test("BatchNorm's running statistics keep their dtype, and follow in float32", () => {
    const norm = new nn.BatchNorm(1)
    norm.forward(x.reshape([4, 1]))
    expect(norm.runningVar?.dtype).toBe(mx.float32)
    expect((norm.runningVar as mx.Array).item()).toBeCloseTo(0.9 + (0.1 * 4 * 512 ** 2) / 3, 1)
    const half = new nn.BatchNorm(1).setDtype(mx.float16)
    half.forward(mx.array([1, 3], mx.float16).reshape([2, 1]))
    expect(half.runningVar?.dtype).toBe(mx.float16)
    expect(half.eval().forward(mx.array([1, 3], mx.float16).reshape([2, 1])).dtype).toBe(mx.float16)
  })
})

describe("what has no variance is refused", () => {
  test("BatchNorm of one element a channel in training", () => {
    const norm = new nn.BatchNorm(3)
    expect(() => norm.forward(mx.ones([1, 3]))).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [BatchNorm] needs more than one element per channel in training, received shape (1, 3). One element has no variance; after eval() it is normalized by the running statistics]`,
    )
    expect(() => norm.forward(mx.ones([1, 1, 1, 3]))).toThrow("one element per channel")
    expect(norm.eval().forward(mx.ones([1, 3])).shape).toEqual([1, 3])
    expect(norm.train().forward(mx.ones([1, 2, 3])).shape).toEqual([1, 2, 3])
  })

  test("InstanceNorm of no positions", () => {
    expect(() => new nn.InstanceNorm(3).forward(mx.ones([2, 3]))).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [InstanceNorm] expects an array of at least 3 dimensions, [batch, …, channels], received shape (2, 3). Without positions, each channel would equal its mean; LayerNorm normalizes over the channels]`,
    )
  })
})

test.each([false, true])(
  "GroupNorm of an empty batch is empty, pytorchCompatible %s",
  (pytorchCompatible) => {
    const layer = new nn.GroupNorm(2, 4, { pytorchCompatible })
    expect(layer.forward(mx.zeros([0, 3, 4])).shape).toEqual([0, 3, 4])
  },
)
