import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"
import * as mx from "@lazuli/core"
import { describe, expect, expectTypeOf, test } from "vitest"
import * as nn from "./index"

class Block extends nn.Module {
  inProj = new nn.Linear(2, 4)
  outProj = new nn.Linear(4, 1, { bias: false })
  scales = [mx.ones([1]), mx.array([2])]
  named = { gate: mx.zeros([3]), note: "no array" }
  layers = [new nn.ReLU(), new nn.Linear(1, 1)]
  sizes = [1, 2, 3]
  label = "block"
  activation = nn.relu
  missing: mx.Array | null = null
  _cache = mx.zeros([9])
  forward(x: mx.Array): mx.Array {
    return this.outProj.forward(this.activation(this.inProj.forward(x)))
  }
}

const shapes = (tree: unknown): unknown => {
  if (tree instanceof mx.Array) return tree.shape.join("x")
  if (Array.isArray(tree)) return tree.map(shapes)
  return Object.fromEntries(Object.entries(tree as object).map(([key, value]) => [key, shapes(value)]))
}

describe("the tree of a module", () => {
  test("parameters are the arrays of public fields, in objects and lists too", () => {
    expect(shapes(new Block().parameters())).toEqual({
      inProj: { weight: "4x2", bias: "4" },
      outProj: { weight: "1x4" },
      scales: ["1", "1"],
      named: { gate: "3", note: {} },
      layers: [{}, { weight: "1x1", bias: "1" }],
    })
  })

  test("its type is read off the class", () => {
    const parameters = new Block().parameters()
    expectTypeOf(parameters.inProj.weight).toEqualTypeOf<mx.Array>()
    expectTypeOf(parameters.inProj.bias).toEqualTypeOf<mx.Array | undefined>()
    expectTypeOf(parameters.scales).toEqualTypeOf<mx.Array[]>()
    expectTypeOf(parameters.named.gate).toEqualTypeOf<mx.Array>()
    expectTypeOf(parameters.missing).toEqualTypeOf<mx.Array | undefined>()
    expectTypeOf(parameters).not.toHaveProperty("_cache")
    expectTypeOf(parameters).not.toHaveProperty("label")
    expectTypeOf(parameters).not.toHaveProperty("activation")
    expectTypeOf(parameters).not.toHaveProperty("sizes")
    expectTypeOf(parameters).not.toHaveProperty("training")
  })

  test("children, modules and leaves", () => {
    const block = new Block()
    expect(block.children()).toEqual({
      inProj: block.inProj,
      outProj: block.outProj,
      scales: [{}, {}],
      named: { gate: {}, note: {} },
      layers: block.layers,
    })
    const names = block.namedModules().map(([name]) => name)
    expect(names[0]).toBe("")
    expect(names.sort()).toEqual(["", "inProj", "layers.0", "layers.1", "outProj"])
    expect(block.modules()).toHaveLength(5)
    const outer = new nn.Sequential(block, new nn.ReLU())
    expect(outer.leafModules()).toEqual({
      layers: [{ ...block.leafModules(), inProj: block.inProj, outProj: block.outProj }, outer.layers[1]],
    })
  })

  test("transforms and eval see a module as its parameters", () => {
    const block = new Block()
    mx.eval(block)
    expect(block.inProj.weight.node.storage).not.toBeNull()
  })
})

describe("update", () => {
  test("replaces what it names", () => {
    const block = new Block()
    const { bias } = block.inProj
    expect(block.update({ inProj: { weight: mx.zeros([4, 2]) }, scales: [mx.array([7])] })).toBe(block)
    expect(block.inProj.weight.sum().item()).toBe(0)
    expect(block.inProj.bias === bias).toBe(true)
    expect(block.scales.map((s) => s.item())).toEqual([7, 2])
  })

  test("refuses unknown names and other values, unless told not to be strict", () => {
    const block = new Block()
    expect(() => block.update({ inProjj: { weight: mx.ones([1]) } })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [update] the module has no parameter named "inProjj"]`,
    )
    expect(() => block.update({ inProj: { wieght: mx.ones([1]) } })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [update] the module has no parameter named "inProj.wieght". Did you mean "inProj.weight"?]`,
    )
    expect(() => block.update({ inProj: { weight: 3 } })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [update] expected an array for "inProj.weight", received the number 3]`,
    )
    expect(() => block.update({ inProj: mx.ones([1]) })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [update] expected a tree of parameters for "inProj", received an mx.Array]`,
    )
    expect(() => block.update({ outProj: { bias: mx.ones([1]) } })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [update] the module has no parameter named "outProj.bias". Did you mean "inProj.bias"?]`,
    )
    block.update({ nothing: mx.ones([1]) }, { strict: false })
    expect("nothing" in block).toBe(false)
  })

  test("a module can be the source", () => {
    const [a, b] = [new Block(), new Block()]
    a.update(b.parameters())
    expect(a.inProj.weight === b.inProj.weight).toBe(true)
    expect(a.inProj === b.inProj).toBe(false)
  })

  test("updateModules replaces modules", () => {
    const block = new Block()
    const other = new nn.Linear(5, 5)
    block.updateModules({ inProj: other, layers: [{}, other] })
    expect(block.inProj).toBe(other)
    expect(block.layers[1]).toBe(other)
    expect(block.layers[0]).toBeInstanceOf(nn.ReLU)
    expect(() => block.updateModules({ inn: other })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [updateModules] the module has no submodule named "inn"]`,
    )
  })

  test("apply and setDtype", () => {
    const block = new Block().setDtype(mx.float16)
    expect(block.inProj.weight.dtype).toBe(mx.float16)
    expect(block._cache.dtype).toBe(mx.float32)
    block.apply((x) => x.astype(mx.int32)).setDtype(mx.bfloat16)
    expect(block.inProj.weight.dtype).toBe(mx.int32)
    block.setDtype(mx.float32, null)
    expect(block.inProj.weight.dtype).toBe(mx.float32)
  })
})

describe("freezing", () => {
  test("by keys, by recursion, strictly", () => {
    const block = new Block()
    block.freeze({ keys: "bias" })
    expect(shapes(block.trainableParameters())).toMatchObject({ inProj: { weight: "4x2" } })
    expect(block.trainableParameters().inProj).not.toHaveProperty("bias")
    block.freeze({ recurse: false })
    expect(shapes(block.trainableParameters())).toEqual({
      inProj: { weight: "4x2" },
      outProj: { weight: "1x4" },
      scales: [{}, {}],
      named: { gate: {}, note: {} },
      layers: [{}, { weight: "1x1" }],
    })
    block.unfreeze()
    expect(shapes(block.trainableParameters())).toEqual(shapes(block.parameters()))
    expect(() => block.freeze({ keys: ["weight"], strict: true })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [freeze] Block has no member "weight"]`,
    )
    block.inProj.freeze()
    expect(shapes(block.trainableParameters())).toMatchObject({ inProj: {} })
  })

  test("batch statistics stay frozen", () => {
    const norm = new nn.BatchNorm(3)
    expect(Object.keys(norm.unfreeze().trainableParameters()).sort()).toEqual(["bias", "weight"])
    expect(Object.keys(norm.parameters())).toHaveLength(4)
  })
})

test("training mode reaches every module", () => {
  const block = new Block()
  expect(block.training).toBe(true)
  block.eval()
  expect(block.modules().some((m) => m.training)).toBe(false)
  expect(
    block
      .train()
      .modules()
      .every((m) => m.training),
  ).toBe(true)
})

describe("weights by name", () => {
  test("names are those of checkpoints, or of fields", () => {
    const block = new Block()
    const names = ["in_proj.weight", "in_proj.bias", "out_proj.weight"]
    block.loadWeights(
      names.map((name, i) => [name, mx.full(i === 1 ? [4] : i === 0 ? [4, 2] : [1, 4], i)] as const),
      { strict: false },
    )
    expect(block.inProj.bias?.tolist()).toEqual([1, 1, 1, 1])
    block.loadWeights({ "inProj.bias": mx.zeros([4]) }, false)
    expect(block.inProj.bias?.tolist()).toEqual([0, 0, 0, 0])
  })

  test.each(["safetensors", "npz"])("%s files keep them", (extension) => {
    const file = join(mkdtempSync(join(tmpdir(), "weights-")), `model.${extension}`)
    const [from, to] = [new Block(), new Block()]
    from.saveWeights(file)
    expect(Object.keys(mx.load(file) as object).sort()).toEqual([
      "in_proj.bias",
      "in_proj.weight",
      "layers.1.bias",
      "layers.1.weight",
      "named.gate",
      "out_proj.weight",
      "scales.0",
      "scales.1",
    ])
    to.loadWeights(file)
    expect(to.inProj.weight.tolist()).toEqual(from.inProj.weight.tolist())
    expect(to.scales[1].tolist()).toEqual([2])
  })

  test("strict loading says what does not fit", () => {
    const layer = new nn.Linear(2, 1)
    const weight = mx.zeros([1, 2])
    expect(() => layer.loadWeights([["weight", weight]])).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [loadWeights] the weights lack 1 parameter of the module: bias. With strict: false the module keeps its own]`,
    )
    expect(() => layer.loadWeights({ weights: weight })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [loadWeights] received 1 parameter that the module does not have: weights. Did you mean "weight"?]`,
    )
    expect(() =>
      layer.loadWeights({ weight: mx.zeros([2, 1]), bias: mx.zeros([1]) }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [loadWeights] "weight" must have shape (1, 2), received (2, 1)]`,
    )
  })
})

describe("what holds no weights, or itself", () => {
  test("is refused by loadWeights", () => {
    const layer = new nn.Linear(2, 1)
    expect(() => layer.loadWeights("config.json")).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [loadWeights] expected a weight file, with the extension .safetensors, .npz, .gguf, received the string "config.json"]`,
    )
    expect(() => layer.loadWeights("missing.safetensors")).toThrow("missing.safetensors")
    expect(() => layer.loadWeights([["weight", 3 as never]], { strict: false })).toThrow(
      '"weight" must be an array',
    )
    expect(() => layer.saveWeights("weights.json")).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [saveWeights] the file must end in .safetensors or .npz, received the string "weights.json"]`,
    )
  })

  test("a cycle of modules is named", () => {
    class Child extends nn.Module {
      parent: nn.Module | null = null
    }
    class Parent extends nn.Module {
      child = new Child()
    }
    const model = new Parent()
    model.child.parent = model
    expect(() => model.parameters()).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [filterAndMap] the module at "parent" contains itself. Fields that are #private are not part of the tree]`,
    )
    expect(() => model.eval()).toThrow('[applyToModules] the module at "child.parent" contains itself')
    expect(String(model)).toContain("(parent): Parent(…)")
  })
})

describe("any model", () => {
  class Net extends nn.Module {
    body: nn.Model = new nn.Linear(32, 2)
    forward(x: mx.Array): mx.Array {
      return this.body.forward(x)
    }
  }
  test("can be taken and called", () => {
    const rows = (model: nn.Model, x: mx.Array): number => model.forward(x).shape[0]
    expect(rows(new nn.Linear(2, 3), mx.ones([4, 2]))).toBe(4)
    expect(rows(new nn.Sequential(nn.relu), mx.ones([4, 2]))).toBe(4)
    expect(rows(new nn.TransformerEncoder(0, 2, 1), mx.ones([4, 1, 2]))).toBe(4)
    expectTypeOf<nn.MultiHeadAttention>().not.toExtend<nn.Model>()
    expectTypeOf<nn.LSTM>().toExtend<nn.Model<[mx.Array], [mx.Array, mx.Array]>>()
  })

  test("layers of other classes take its place", () => {
    const net = new Net()
    net.body = nn.QuantizedLinear.fromLinear(net.body as nn.Linear, { groupSize: 32 })
    expect(net.forward(mx.ones([1, 32])).shape).toEqual([1, 2])
    net.body = new nn.Sequential(nn.relu, new nn.Linear(32, 5))
    expect(net.forward(mx.ones([1, 32])).shape).toEqual([1, 5])
    expectTypeOf(net.parameters().body).toEqualTypeOf<nn.ParameterTree>()
  })
})

describe("calls take options by name", () => {
  const [x, hidden] = [mx.ones([1, 3, 2]), mx.ones([1, 4])]
  test("recurrent layers", () => {
    for (const layer of [new nn.RNN(2, 4), new nn.GRU(2, 4)])
      expect(layer.forward(x, { hidden }).tolist()).toEqual(layer.forward(x, hidden).tolist())
    const lstm = new nn.LSTM(2, 4)
    const named = lstm.forward(x, { cell: hidden })
    expect(named.map((y) => y.tolist())).toEqual(lstm.forward(x, null, hidden).map((y) => y.tolist()))
    expect(() => lstm.forward(x, { hiden: hidden } as never)).toThrow('Did you mean "hidden"?')
  })

  test("attention and transformers", () => {
    const y = mx.ones([1, 3, 4])
    const mask = nn.MultiHeadAttention.createAdditiveCausalMask(3)
    const same = (a: mx.Array, b: mx.Array): void => expect(a.tolist()).toEqual(b.tolist())
    const attention = new nn.MultiHeadAttention(4, 2)
    same(attention.forward(y, y, y, { mask }), attention.forward(y, y, y, mask))
    const encoder = new nn.TransformerEncoder(1, 4, 2)
    same(encoder.forward(y, { mask }), encoder.forward(y, mask))
    const decoder = new nn.TransformerDecoder(1, 4, 2)
    same(decoder.forward(y, y, { memoryMask: mask }), decoder.forward(y, y, null, mask))
    const both = new nn.Transformer({ dims: 4, numHeads: 2, numEncoderLayers: 1, numDecoderLayers: 1 })
    same(both.forward(y, y, { tgtMask: mask }), both.forward(y, y, null, mask))
  })
})

test("prints its modules and their settings", () => {
  const model = new nn.Sequential(
    new nn.Linear(2, 3),
    nn.relu,
    new nn.Dropout(0.1),
    new nn.Sequential(new nn.LayerNorm(3)),
  )
  expect(`\n${inspect(model)}\n`).toMatchInlineSnapshot(`
    "
    Sequential(
      (layers.0): Linear(inputDims=2, outputDims=3, bias=true)
      (layers.2): Dropout(p=0.1)
      (layers.3): Sequential(
        (layers.0): LayerNorm(dims=3, eps=0.00001, affine=true)
      )
    )
    "
  `)
})

describe("constructors", () => {
  test("take arguments by position, by name, or both", () => {
    expect(new nn.Linear(2, 3, false).bias).toBeUndefined()
    expect(new nn.Linear(2, 3, { bias: false }).bias).toBeUndefined()
    expect(new nn.Linear({ inputDims: 2, outputDims: 3 }).weight.shape).toEqual([3, 2])
  })

  test("refuse what they do not know", () => {
    const Loose = nn.Linear as unknown as new (...args: unknown[]) => nn.Linear
    expect(() => new Loose(2, 3, { biass: false })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [Linear] has no parameter "biass"; it takes inputDims, outputDims, bias. Did you mean "bias"?]`,
    )
    expect(() => new Loose(2)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [Linear] needs outputDims: expected a non-negative integer, received nothing]`,
    )
    expect(() => new Loose(2, 3, true, 4)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [Linear] takes at most 3 arguments (inputDims, outputDims, bias), received 4]`,
    )
    expect(() => new Loose(2, 3, { inputDims: 4 })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [Linear] parameter "inputDims" is given twice, by position and by name]`,
    )
  })
})
