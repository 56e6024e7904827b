import * as mx from "@lazuli/core"
import { describe, expect, expectTypeOf, test } from "vitest"
import * as nn from "../index"
import * as optim from "./index"

describe("state", () => {
  test("is one tree, made by init and kept in place", () => {
    const model = new nn.Sequential(new nn.Linear(2, 1))
    const optimizer = new optim.Adam(0.1)
    const { state } = optimizer
    optimizer.init(model.trainableParameters())
    expect(Object.keys(state)).toEqual(["step", "learning_rate", "layers"])
    const layer = (state.layers as optim.OptimizerState[])[0].weight as optim.ParameterState
    expect(Object.keys(layer)).toEqual(["m", "v"])
    const before = layer.m
    optimizer.update(model, model.apply((p) => p).parameters())
    expect(optimizer.state === state).toBe(true)
    expect((state.layers as optim.OptimizerState[])[0].weight === layer).toBe(true)
    expect(layer.m === before).toBe(false)
    expect(optimizer.step.item()).toBe(1n)
  })

  test("can be set, to continue", () => {
    const grads = { w: mx.array([1]) }
    const first = new optim.SGD(0.1, 0.9)
    const w = first.applyGradients(grads, { w: mx.array([1]) })
    const second = new optim.SGD(7, 0.9)
    second.state = first.state
    expect(second.applyGradients(grads, w).w.item()).toBeCloseTo(0.9 - 0.19)
  })

  test("learning rates are settings, schedules or arrays", () => {
    const optimizer = new optim.SGD((step) => step.add(1).astype(mx.float32))
    expect(optimizer.learningRate.item()).toBe(1)
    const w = { w: mx.array([0]) }
    optimizer.applyGradients(w, w)
    optimizer.applyGradients(w, w)
    expect(optimizer.learningRate.item()).toBe(2)
    const plain = new optim.Adam({ learningRate: 0.5 })
    plain.learningRate = 0.25
    expect(plain.learningRate.item()).toBe(0.25)
  })

  test("parameters keep their dtype", () => {
    const optimizer = new optim.AdamW(0.1, { biasCorrection: true })
    const w = optimizer.applyGradients({ w: mx.ones([2], mx.float16) }, { w: mx.ones([2], mx.float16) })
    expect(w.w.dtype).toBe(mx.float16)
  })
})

test("a step that is refused changes nothing", () => {
  const optimizer = new optim.SGD((step) => step.astype(mx.float32), 0.9)
  const w = { a: mx.array([1]), b: mx.array([1, 2]) }
  optimizer.applyGradients(w, w)
  const before = JSON.stringify(mx.treeMap((x) => String((x as mx.Array).tolist()), optimizer.state))
  expect(() => optimizer.applyGradients({ ...w, b: mx.array([1]) }, w)).toThrow(
    'the gradient for "b" has shape',
  )
  expect(JSON.stringify(mx.treeMap((x) => String((x as mx.Array).tolist()), optimizer.state))).toBe(before)
  // Nor does a first one leave states of other shapes.
  const fresh = new optim.Adam(0.1)
  expect(() => fresh.applyGradients({ ...w, b: mx.array([1, 2, 3]) }, w)).toThrow("has shape")
  expect(fresh.applyGradients(w, w).b.tolist()).toHaveLength(2)
})

describe("trees", () => {
  test("parameters may hold more than there are gradients for", () => {
    const out = new optim.SGD(1).applyGradients({ a: mx.array([1]) }, { a: mx.array([3]), b: mx.array([1]) })
    expect(Object.keys(out)).toEqual(["a"])
  })

  test("keep their types", () => {
    const model = new nn.Linear(1, 1)
    const [, grads] = nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).sum())(mx.ones([1, 1]))
    const [clipped] = optim.clipGradNorm(grads, 1)
    const stepped = new optim.Adam(0.1).applyGradients(nn.averageGradients(clipped), model)
    expectTypeOf(stepped).toEqualTypeOf<nn.ParametersOf<nn.Linear>>()
    expectTypeOf(stepped.weight).toEqualTypeOf<mx.Array>()
    const ofModule = new optim.SGD(0.1).applyGradients(model, model)
    expectTypeOf(ofModule.weight).toEqualTypeOf<mx.Array>()
    const plain = new optim.MultiOptimizer([new optim.SGD(1)]).applyGradients(
      { w: [mx.ones([1])] },
      { w: [mx.ones([1])] },
    )
    expectTypeOf(plain).toEqualTypeOf<{ w: mx.ArrayOf<number>[] }>()
    expect(ofModule).not.toBeInstanceOf(nn.Module)
  })

  test("a gradient without its parameter is an error", () => {
    expect(() =>
      new optim.SGD(1).applyGradients({ a: [{ b: mx.array([1]) }] }, { a: [{}] }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [applyGradients] there is a gradient for "a.0.b", but the parameter is nothing]`,
    )
  })
})

describe("a state that does not fit", () => {
  const w = (...shape: number[]) => ({ w: mx.ones(shape) })
  test.each([
    [
      "of another optimizer",
      () => {
        const sgd = new optim.SGD(0.1, 0.9)
        sgd.init(w(2))
        const adam = new optim.Adam(0.1)
        adam.state = sgd.state
        adam.applyGradients(w(2), w(2))
      },
    ],
    [
      "of another model",
      () => {
        const [a, b] = [new optim.Adam(0.1), new optim.Adam(0.1)]
        a.init(w(1))
        b.state = a.state
        b.applyGradients(w(2), w(2))
      },
    ],
    [
      "of no parameter",
      () => {
        const adam = new optim.Adam(0.1)
        adam.init(w(2))
        adam.applyGradients({ v: mx.ones([2]) }, { v: mx.ones([2]) })
      },
    ],
    ["of a gradient of another shape", () => new optim.SGD(0.1).applyGradients(w(1), w(2))],
    ["of a parameter called step", () => new optim.SGD(0.1).init({ step: mx.ones([2]) })],
    [
      "without a step",
      () => {
        new optim.SGD(0.1).state = {}
      },
    ],
  ])("%s", (_name, run) => {
    expect(run).toThrowErrorMatchingSnapshot()
  })
})

describe("schedules", () => {
  test.each([
    ["exponentialDecay", optim.exponentialDecay(0.1, 0.9), 0.1 * 0.9 ** 10],
    ["stepDecay", optim.stepDecay(0.1, 0.9, 3), 0.1 * 0.9 ** 3],
    ["cosineDecay", optim.cosineDecay(0.1, 20), 0.05],
    ["linearSchedule", optim.linearSchedule(0, 1, 40), 0.25],
    [
      "joinSchedules",
      optim.joinSchedules([optim.linearSchedule(0, 1, 8), optim.exponentialDecay(1, 0.5)], [8]),
      0.25,
    ],
  ])("%s takes the step as a number or an array", (_name, schedule, value) => {
    expect(schedule(10).item()).toBeCloseTo(value, 6)
    for (const dtype of [mx.int32, mx.uint64])
      expect(schedule(mx.array(10, dtype)).item()).toBeCloseTo(value, 6)
    for (const wrong of [-1, 1.5, Number.NaN, "1", undefined])
      expect(() => schedule(wrong as number)).toThrow("step must be an integer of at least 0 or an array")
  })
})

test("clipGradNorm of sixteen-bit gradients does not overflow in the squares", () => {
  const [clipped, norm] = optim.clipGradNorm({ w: mx.array([300, 400], mx.float16) }, 5)
  expect(norm.item()).toBe(500)
  expect(clipped.w.dtype).toBe(mx.float16)
  expect((clipped.w.tolist() as number[])[0]).toBeCloseTo(3, 2)
})

describe("settings", () => {
  test.each([
    ["SGD", () => new optim.SGD(1, { nesterov: true })],
    ["RMSprop", () => new optim.RMSprop(1, { eps: 0 })],
    ["Adam", () => new optim.Adam(1, { betas: [1, 0] })],
    ["Lion", () => new optim.Lion(1, [0, 1])],
    ["MultiOptimizer", () => new optim.MultiOptimizer([new optim.SGD(1)], [() => true])],
    ["joinSchedules", () => optim.joinSchedules([], [])],
    ["linearSchedule", () => optim.linearSchedule(0, 1, 0)],
    ["stepDecay", () => optim.stepDecay(1, 0.5, 0)],
    ["cosineDecay", () => optim.cosineDecay(1, 0)],
    ["joinSchedules that fall", () => optim.joinSchedules([Math.abs, Math.abs, Math.abs] as never, [5, 5])],
    ["a negative learning rate", () => new optim.SGD(-1)],
    ["a learning rate of NaN", () => new optim.Adam({ learningRate: Number.NaN })],
    ["one beta", () => new optim.AdamW(1, { betas: [0.9] as never })],
    ["a momentum above 1", () => new optim.SGD(1, 1.5)],
    ["Adafactor without a rate", () => new optim.Adafactor(null, { relativeStep: false })],
    ["a negative norm", () => optim.clipGradNorm({ w: mx.ones([1]) }, -1)],
    ["a negative norm of shards", () => nn.utils.clipGradNormSharded({ w: mx.ones([1]) }, -1)],
    ["learningRate", () => new (optim.Adam as unknown as new () => optim.Adam)()],
  ])("%s refuses what cannot work", (_name, make) => {
    expect(make).toThrowErrorMatchingSnapshot()
  })
})

test("clipGradNorm scales all gradients by one factor", () => {
  const [clipped, norm] = optim.clipGradNorm({ a: mx.array([3]), b: [mx.array([4])] }, 1)
  expect(norm.item()).toBe(5)
  expect(clipped.a.item()).toBeCloseTo(0.6)
  expect(clipped.b[0].item()).toBeCloseTo(0.8)
  expect(optim.clipGradNorm({ a: mx.array([3]) }, 10)[0].a.item()).toBe(3)
})

test("MultiOptimizer gives each parameter to the first filter that takes it", () => {
  const optimizer = new optim.MultiOptimizer(
    [new optim.SGD(1), new optim.SGD(2), new optim.SGD(3)],
    [(path) => path.endsWith("0"), (_path, g) => g.ndim === 2],
  )
  const ones = () => ({ list: [mx.ones([1]), mx.ones([1, 1])], rest: mx.ones([1]) })
  const out = optimizer.applyGradients(ones(), ones())
  expect([out.list[0].item(), out.list[1].item(), out.rest.item()]).toEqual([0, -1, -2])
  expect(optimizer.learningRate.item()).toBe(1)
  optimizer.learningRate = 5
  expect(optimizer.optimizers.map((o) => o.learningRate.item())).toEqual([5, 5, 5])
})
