/** Fields that hold themselves, or much within each other: an error that says so, or an answer, and never a stack that runs out. */
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import * as nn from "./index"

class Holder extends nn.Module {
  weight = mx.zeros([1])
  held: unknown = null
}
const holding = (held: unknown): Holder => Object.assign(new Holder(), { held })

const uses: Record<string, (model: nn.Module) => unknown> = {
  parameters: (m) => m.parameters(),
  trainableParameters: (m) => m.trainableParameters(),
  leafModules: (m) => m.leafModules(),
  modules: (m) => m.modules(),
  eval: (m) => m.eval(),
  freeze: (m) => m.freeze(),
  setDtype: (m) => m.setDtype(mx.float16),
  saveWeights: (m) => m.saveWeights("/nowhere/weights.safetensors"),
  loadWeights: (m) => m.loadWeights({}),
  loadLoosely: (m) => m.loadWeights({}, { strict: false }),
  filterAndMap: (m) => m.filterAndMap(() => true),
  valueAndGrad: (m) => nn.valueAndGrad(m, () => mx.zeros([]))(),
  quantize: (m) => nn.quantize(m),
}

const list: unknown[] = [mx.zeros([1])]
list.push(list)
const object: Record<string, unknown> = { weight: mx.zeros([1]) }
object.inner = { object }
const layers: unknown[] = [new nn.Linear(1, 1)]
layers.push([layers])
let deep: unknown = [mx.zeros([1])]
for (let i = 0; i < 20_000; i++) deep = [deep]
const self = holding(null)
self.held = self
let chain = new Holder()
for (let i = 0; i < 5_000; i++) chain = holding(chain)
const inList = holding(null)
inList.held = [new nn.Linear(1, 1), { model: inList }]

describe.each(Object.entries(uses))("%s of what holds itself is an error", (_name, use) => {
  test.each<[string, nn.Module]>([
    ["a list behind an array", holding(list)],
    ["an object behind an array", holding(object)],
    ["a list behind a layer", holding(layers)],
    ["20,000 lists", holding(deep)],
    ["the module itself", self],
    ["the module in a list", inList],
  ])("%s", (_, model) => {
    let error: unknown = null
    try {
      use(model)
    } catch (thrown) {
      error = thrown
    }
    expect(error).toBeInstanceOf(mx.ArgumentError)
    expect((error as Error).message).toMatch(/contains itself|500 nested lists/)
  })
})

test("many modules within each other are an error or an answer", () => {
  for (const [name, use] of Object.entries({ ...uses, children: (m: nn.Module) => m.children() })) {
    let error: unknown = null
    try {
      use(chain)
    } catch (thrown) {
      error = thrown
    }
    if (error !== null) expect(error, name).toBeInstanceOf(mx.ArgumentError)
  }
})

test("what is replaced may be next to what holds itself", () => {
  expect(
    holding(self)
      .update({ weight: mx.ones([1]) })
      .weight.item(),
  ).toBe(1)
  expect(Object.keys(self.children())).toEqual(["held"])
})

test("a model that holds itself can be printed", () => {
  expect(String(self)).toContain("Holder")
  expect(() => String(holding(list))).toThrow("contains itself")
})

test("a list that is there many times is looked at once", () => {
  let shared: unknown[] = [1]
  for (let i = 0; i < 60; i++) shared = [shared, shared]
  expect(Object.keys(holding(shared).parameters())).toEqual(["weight"])
})
