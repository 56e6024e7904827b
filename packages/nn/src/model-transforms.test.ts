import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { describe, expect, expectTypeOf, test } from "vitest"
import * as nn from "./index"
import * as optim from "./optimizers"
import { withParameters } from "./with-parameters"

class MLP extends nn.Module {
  l1 = new nn.Linear(2, 8)
  l2 = new nn.Linear(8, 1)
  forward(x: mx.Array): mx.Array {
    return this.l2.forward(nn.tanh(this.l1.forward(x)))
  }
}

const xor = {
  x: mx.array([
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ]),
  y: mx.array([[0], [1], [1], [0]]),
}

describe("valueAndGrad", () => {
  test("gives gradients like the trainable parameters", () => {
    const model = new MLP()
    model.l1.freeze({ keys: "bias" })
    const weight = model.l1.weight
    const loss = (m: MLP, x: mx.Array, y: mx.Array) => nn.losses.mseLoss(m.forward(x), y)
    const step = nn.valueAndGrad(model, loss)
    const [value, grads] = step(model, xor.x, xor.y)
    expectTypeOf(value).toEqualTypeOf<mx.Array>()
    expectTypeOf(grads.l1.weight).toEqualTypeOf<mx.Array>()
    expect(value.shape).toEqual([])
    expect(Object.keys(grads.l1)).toEqual(["weight"])
    expect(grads.l2.weight.shape).toEqual([1, 8])
    expect(model.l1.weight === weight).toBe(true)
  })

  test("leaves alone what the function itself replaces", () => {
    const model = new nn.Sequential(new nn.BatchNorm(2), new nn.Linear(2, 1))
    const norm = model.layers[0] as nn.BatchNorm
    const before = norm.runningMean
    nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).sum())(xor.x)
    expect(norm.runningMean === before).toBe(false)
    expect(norm.runningMean?.tolist()).toEqual([0.05000000074505806, 0.05000000074505806])
  })

  test("gives the model its parameters back when the function throws", () => {
    const model = new MLP()
    const { weight } = model.l1
    const step = nn.valueAndGrad(model, (): mx.Array => {
      throw new Error("no")
    })
    expect(() => step()).toThrow("no")
    expect(model.l1.weight === weight).toBe(true)
  })

  test("passes what the function returns beside the loss", () => {
    const model = new MLP()
    const [[loss, logits]] = nn.valueAndGrad(model, (x: mx.Array) => {
      const y = model.forward(x)
      return [y.sum(), y] as const
    })(xor.x)
    expect(loss.shape).toEqual([])
    expect(logits.shape).toEqual([4, 1])
  })
})

test("transforms take modules as trees of their parameters", () => {
  const model = new MLP()
  const grads = grad((m: MLP, x: mx.Array) => m.forward(x).sum())(model, xor.x)
  expectTypeOf(grads).toEqualTypeOf<MLP>()
  expect(grads).toBeInstanceOf(MLP)
  expect(grads === model).toBe(false)
  expect(grads.l2.bias?.tolist()).toEqual([4])
  expect(model.l2.bias === grads.l2.bias).toBe(false)
})

test("checkpoint gives the same gradients", () => {
  const model = new MLP()
  const plain = nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).square().sum())(xor.x)
  const checked = nn.valueAndGrad(model, (x: mx.Array) => nn.utils.checkpoint(model)(x).square().sum())(xor.x)
  expect(checked[0].item()).toBe(plain[0].item())
  expect(checked[1].l1.weight.tolist()).toEqual(plain[1].l1.weight.tolist())
  expect(checked[1].l2.bias?.tolist()).toEqual(plain[1].l2.bias?.tolist())
})

test("a layer that is there twice gets back what it had", () => {
  const layer = new nn.Linear(2, 2)
  const model = new nn.Sequential(layer, layer)
  const { weight, bias } = layer
  const x = mx.ones([1, 2])
  const [, grads] = nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).sum())(x)
  expect([layer.weight === weight, layer.bias === bias]).toEqual([true, true])
  expect(mx.treeFlatten(grads).length).toBeGreaterThan(0)
  nn.utils.checkpoint(model)(x)
  expect([layer.weight === weight, layer.bias === bias]).toEqual([true, true])
  const halves = mx.treeMap((p: mx.Array) => p.astype(mx.bfloat16), model.parameters())
  withParameters(model, halves as object, () => expect(layer.weight.dtype).toBe(mx.bfloat16))
  expect([layer.weight === weight, layer.bias === bias]).toEqual([true, true])
})

test("parameters that a model does not have are refused, and it keeps its own", () => {
  const model = new nn.Linear(2, 2)
  const { weight } = model
  const wrong = { weight: mx.zeros([2, 2]), wieght: mx.zeros([2, 2]) }
  expect(() => withParameters(model, wrong, () => 0)).toThrow(/no parameter named "wieght".*"weight"/s)
  expect(model.weight === weight).toBe(true)
  // Functions among the layers have no parameters.
  const mixed = new nn.Sequential(new nn.Linear(2, 2), nn.relu)
  const [loss] = nn.valueAndGrad(mixed, (x: mx.Array) => mixed.forward(x).sum())(mx.ones([1, 2]))
  expect(loss.shape).toEqual([])
})

test.each([
  ["SGD", () => new optim.SGD(optim.cosineDecay(0.1, 1000), { momentum: 0.9 })],
  ["AdamW", () => new optim.AdamW({ learningRate: 0.05 })],
])("%s learns xor", (_name, make) => {
  mx.random.seed(3)
  const model = new MLP()
  const optimizer = make()
  const step = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) => nn.losses.mseLoss(model.forward(x), y))
  let last = 1
  for (let i = 0; i < 150; i++) {
    const [loss, grads] = step(xor.x, xor.y)
    optimizer.update(model, grads)
    mx.eval(model.parameters(), optimizer.state)
    last = loss.item() as number
  }
  expect(last).toBeLessThan(0.01)
})
