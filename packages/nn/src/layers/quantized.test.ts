import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import * as nn from "../index"

const difference = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

test("layers agree with what their weights stand for", () => {
  mx.random.seed(3)
  const linear = new nn.Linear(64, 3)
  const x = mx.random.normal([2, 5, 64])
  for (const mode of ["affine", "mxfp4", "mxfp8", "nvfp4"] as const) {
    const quantized = linear.toQuantized({ mode }) as nn.QuantizedLinear
    const { weight, scales, biases } = quantized
    const full = mx.dequantize(weight, scales, biases, { mode, dtype: mx.float32 })
    const want = x.matmul(full.T).add(linear.bias as mx.Array)
    expect(difference(quantized.forward(x), want)).toBeLessThan(1e-5)
    const table = new nn.Embedding(7, 64).toQuantized({ mode })
    const rows = mx.dequantize(table.weight, table.scales, table.biases, { mode })
    const index = mx.array([[6, 0]], mx.int32)
    expect(difference(table.forward(index), mx.take(rows, index, 0))).toBe(0)
    expect(table.forward(mx.array(3, mx.int32)).shape).toEqual([64])
    expect(table.asLinear(x).shape).toEqual([2, 5, 7])
  }
})

test("the parameters of quantized layers are frozen, but a bias that a layer had", () => {
  expect(Object.keys(new nn.QuantizedLinear(64, 2).trainableParameters())).toEqual([])
  expect(Object.keys(new nn.Linear(64, 2).toQuantized().trainableParameters())).toEqual(["bias"])
  expect(Object.keys(new nn.QuantizedEmbedding(4, 64).parameters())).toEqual(["weight", "scales", "biases"])
  expect(Object.keys(new nn.QuantizedEmbedding(4, 64, { mode: "mxfp8" }).parameters())).toEqual([
    "weight",
    "scales",
  ])
})

test("they print their format", () => {
  expect(`${new nn.QuantizedLinear(64, 2, { bits: 3 })}`).toBe(
    "QuantizedLinear(inputDims=64, outputDims=2, bias=true, groupSize=64, bits=3, mode=affine)",
  )
  expect(`${new nn.QuantizedEmbedding(5, 64, 32, 8)}`).toBe(
    "QuantizedEmbedding(5, 64, groupSize=32, bits=8, mode=affine)",
  )
  expect(`${new nn.QQLinear(64, 2).eval()}`).toBe(
    "QQLinear(inputDims=64, outputDims=2, bias=false, groupSize=16, bits=4, mode=nvfp4)",
  )
})

test("activations of 8 bits are chosen with the format, or later", () => {
  mx.random.seed(4)
  const model = new nn.Sequential(new nn.Linear(64, 32), new nn.Embedding(7, 64))
  nn.quantize(model, { activations: "int8" })
  const [linear, table] = model.layers as [nn.QuantizedLinear, nn.QuantizedEmbedding]
  expect([linear.activations, table.activations]).toEqual(["int8", "int8"])
  expect(`${linear}`).toContain("mode=affine, activations=int8)")
  const x = mx.random.normal([2, 64])
  const { weight, scales, biases } = linear
  const want = mx
    .quantizedMatmul(x, weight, scales, biases, { activations: "int8" })
    .add(linear.bias as mx.Array)
  expect(difference(linear.forward(x), want)).toBe(0)
  const rounded = linear.forward(x)
  linear.activations = "exact"
  expect(difference(linear.forward(x), rounded)).toBeGreaterThan(0)
  expect(() =>
    new nn.Linear(64, 2).toQuantized({ mode: "nvfp4", quantizeInput: true, activations: "int8" }),
  ).toThrow("[toQuantized] quantizeInput and activations exclude each other")
})

describe("QQLinear", () => {
  test("packs its weight in eval mode, and gives the same answer", () => {
    const model = new nn.Sequential(new nn.QQLinear(32, 3, { mode: "mxfp8" }))
    const [layer] = model.layers as [nn.QQLinear]
    const x = mx.random.normal([2, 32])
    const before = model.forward(x)
    model.eval()
    expect([layer.weight.dtype, layer.scales?.dtype]).toEqual([mx.uint32, mx.uint8])
    expect(difference(model.forward(x), before)).toBeLessThan(1e-6)
    model.train()
    expect([layer.weight.dtype, layer.scales]).toEqual([mx.float32, undefined])
    expect(difference(model.forward(x), before)).toBeLessThan(1e-6)
  })
  test("comes from a linear layer, with its bias and mode", () => {
    const linear = new nn.Linear(32, 3).eval()
    const layer = linear.toQuantized({ mode: "nvfp4", quantizeInput: true })
    expect(layer).toBeInstanceOf(nn.QQLinear)
    expect(Object.keys(layer.parameters()).sort()).toEqual(["bias", "scales", "weight"])
    expect(difference(layer.forward(mx.ones([1, 32])), linear.forward(mx.ones([1, 32])))).toBeLessThan(0.3)
  })
})

describe("quantize", () => {
  class Model extends nn.Module {
    table = new nn.Embedding(8, 64)
    blocks = [new nn.Linear(64, 64), new nn.LayerNorm(64)]
    head = new nn.Linear(64, 8, { bias: false })
    forward(x: mx.Array): mx.Array {
      return this.head.forward(this.blocks.reduce((y, layer) => layer.forward(y), this.table.forward(x)))
    }
  }
  const kinds = (model: nn.Module): string[] =>
    model
      .modules()
      .map((m) => m.constructor.name)
      .sort()

  test("replaces every layer that has a quantized form", () => {
    const model = nn.quantize(new Model(), 32, 8)
    expect(kinds(model)).toEqual([
      "LayerNorm",
      "Model",
      "QuantizedEmbedding",
      "QuantizedLinear",
      "QuantizedLinear",
    ])
    expect((model.head as unknown as nn.QuantizedLinear).groupSize).toBe(32)
    expect(model.forward(mx.array([1, 2], mx.int32)).shape).toEqual([2, 8])
  })
  test("asks a predicate, which may say how", () => {
    const model = new Model()
    const seen: string[] = []
    nn.quantize(model, {
      classPredicate: (path, module) => {
        seen.push(path)
        if (path === "head") return { bits: 2, groupSize: 64 }
        return module instanceof nn.Linear
      },
    })
    expect(seen.sort()).toEqual(["blocks.0", "blocks.1", "head", "table"])
    expect(kinds(model)).toEqual(["Embedding", "LayerNorm", "Model", "QuantizedLinear", "QuantizedLinear"])
    expect((model.head as unknown as nn.QuantizedLinear).bits).toBe(2)
  })
  test("quantizes inputs of linear layers", () => {
    const classPredicate = (_: string, m: nn.Module): boolean => m instanceof nn.Linear
    const model = nn.quantize(new Model(), { mode: "mxfp8", quantizeInput: true, classPredicate })
    expect(kinds(model)).toEqual(["Embedding", "LayerNorm", "Model", "QQLinear", "QQLinear"])
  })
  test("refuses what cannot be", () => {
    expect(() => nn.quantize(new Model(), { classPredicate: () => true })).toThrow(mx.ArgumentError)
    expect(() => nn.quantize(new Model(), { classPredicate: () => 1 as unknown as boolean })).toThrow(
      mx.ArgumentError,
    )
    expect(() => nn.quantize(new Model(), { mode: "mxfp8", quantizeInput: true })).toThrow(mx.ArgumentError)
    expect(() => nn.quantize(new Model(), { bits: 7 })).toThrow(mx.ArgumentError)
    expect(() => nn.quantize(new nn.ReLU(), { bits: 7 })).toThrow(mx.ArgumentError)
    expect(() => nn.quantize(new Model(), 128)).toThrow(mx.ShapeError)
    expect(() => new nn.QQLinear(32, 2, { mode: "affine" })).toThrow(mx.ArgumentError)
    expect(() => new nn.QuantizedLinear(64, 2, { mode: "none" as "affine" })).toThrow(mx.ArgumentError)
    expect(() => new nn.Linear(32, 2).toQuantized({ mode: "affine", quantizeInput: true })).toThrow(
      mx.ArgumentError,
    )
  })
  test("weights come back from a file", () => {
    const [a, b] = [nn.quantize(new Model()), nn.quantize(new Model())]
    const weights = mx.treeFlatten(a.parameters()) as [string, mx.Array][]
    b.loadWeights(weights)
    const x = mx.array([3, 4], mx.int32)
    expect(difference(a.forward(x), b.forward(x))).toBe(0)
  })
})

test("quantize names the layer that it cannot quantize", () => {
  const model = new nn.Sequential(new nn.Linear(64, 64), new nn.Linear(64, 3), new nn.Linear(3, 2))
  expect(() => nn.quantize(model)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [quantize] "layers.2" (Linear): the last axis must be a multiple of the group size 64, received shape (2, 3)]`,
  )
  const bits = { classPredicate: (path: string) => (path === "layers.1" ? { bits: 7 } : false) }
  expect(() => nn.quantize(model, bits)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [quantize] "layers.1" (Linear): mode affine has bits 2, 3, 4, 5, 6, 8, received the number 7]`,
  )
})
