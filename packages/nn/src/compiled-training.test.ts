import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { type CallRecorder, calls } from "@lazuli/core/engine"
import { describe, expect, test } from "vitest"
import * as nn from "./index"
import * as optim from "./optimizers"

class Model extends nn.Module {
  embedding = new nn.Embedding(5, 4)
  layers = [new nn.TransformerEncoderLayer(4, 2, { activation: nn.gelu, mlpDims: 6 }), new nn.LayerNorm(4)]
  dropout = new nn.Dropout(0.1)
  norm = new nn.BatchNorm(4)
  head = new nn.Linear(4, 5)
  forward(x: mx.Array): mx.Array {
    let y = this.embedding.forward(x)
    for (const layer of this.layers) y = layer.forward(y)
    return this.head.forward(this.norm.forward(this.dropout.forward(y)))
  }
}

const tokens = mx.array(
  [
    [0, 1, 2],
    [3, 4, 0],
  ],
  mx.int32,
)
const targets = mx.array(
  [
    [1, 2, 3],
    [4, 0, 1],
  ],
  mx.int32,
)

function train(steps: number, compiled: boolean, make: () => optim.Optimizer) {
  mx.random.seed(7)
  const model = new Model()
  model.head.freeze({ keys: "bias" })
  const optimizer = make()
  optimizer.init(model.trainableParameters())
  const lossAndGrad = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) =>
    nn.losses.crossEntropy(model.forward(x), y, { reduction: "mean" }),
  )
  const state = [model.state, optimizer.state, mx.random.state]
  const step = (x: mx.Array, y: mx.Array): mx.Array => {
    const [loss, grads] = lossAndGrad(x, y)
    optimizer.update(model, optim.clipGradNorm(grads, 1)[0])
    return loss
  }
  const run = compiled ? compile(step, { inputs: state, outputs: state }) : step
  const losses: number[] = []
  for (let i = 0; i < steps; i++) {
    const loss = run(tokens, targets)
    mx.eval(loss, model, optimizer.state)
    losses.push(loss.item() as number)
  }
  return { losses, model, optimizer }
}

describe("a compiled step of training gives what the plain one gives", () => {
  test.each([
    ["AdamW", () => new optim.AdamW(optim.linearSchedule(0.01, 0.1, 5), { biasCorrection: true })],
    ["SGD", () => new optim.SGD(0.1, { momentum: 0.9 })],
  ])("%s", (_name, make) => {
    const [plain, fast] = [train(4, false, make), train(4, true, make)]
    expect(fast.losses).toEqual(plain.losses)
    expect(fast.losses[3]).toBeLessThan(fast.losses[0])
    expect(fast.model.head.weight.tolist()).toEqual(plain.model.head.weight.tolist())
    expect(fast.model.norm.runningMean?.tolist()).toEqual(plain.model.norm.runningMean?.tolist())
    expect(fast.optimizer.step.item()).toBe(4n)
    expect(fast.optimizer.learningRate.item()).toBe(plain.optimizer.learningRate.item())
  })
})

test("a compiled step goes on from a state that the optimizer was given", () => {
  const model = new nn.Linear(2, 1)
  const optimizer = new optim.SGD(0.1, { momentum: 0.9 })
  optimizer.init(model)
  const lossAndGrad = nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).square().mean())
  const step = (x: mx.Array): mx.Array => {
    const [loss, grads] = lossAndGrad(x)
    optimizer.update(model, grads)
    return loss
  }
  const state = [model.state, optimizer.state]
  const compiled = compile(step, { inputs: state, outputs: state })
  const x = mx.array([[1, 2]])
  for (let i = 0; i < 3; i++) compiled(x)
  const saved = [model.parameters(), mx.treeMap((a) => a, optimizer.state)] as const
  const goOn = (run: typeof step): unknown[] => {
    model.update(saved[0])
    optimizer.state = mx.treeMap((a) => a, saved[1]) as typeof optimizer.state
    return [run(x).item(), run(x).item(), optimizer.step.item(), optimizer.state.weight]
  }
  const [eager, traced] = [goOn(step), goOn(compiled)]
  expect(traced.slice(0, 3)).toEqual(eager.slice(0, 3))
  expect(traced[2]).toBe(5n)
  expect((traced[3] as { v: mx.Array }).v.tolist()).toEqual((eager[3] as { v: mx.Array }).v.tolist())
  expect(compiled.stats().traces).toBe(1)
})

test("attention looks at no sizes outside of calls that are made again for others", () => {
  const attention = new nn.MultiHeadAttention(8, 2)
  const x = mx.ones([1, 3, 8])
  let reads = 0
  const recorder: CallRecorder = {
    call: (_name, f, args) => {
      calls.recorder = null
      try {
        return f(...args)
      } finally {
        calls.recorder = recorder
      }
    },
    readSizes: () => reads++,
    readRank: () => reads++,
    readValue: () => reads++,
  }
  calls.recorder = recorder
  try {
    attention.forward(x, x, x)
  } finally {
    calls.recorder = null
  }
  expect(reads).toBe(0)
  const f = compile((v: mx.Array) => attention.forward(v, v, v), { shapeless: true })
  for (const length of [3, 5]) expect(f(mx.ones([1, length, 8])).shape).toEqual([1, length, 8])
  expect(f.stats().traces).toBe(1)
})

test("Muon's step is that of each matrix, in one trace for those of any sizes", () => {
  const optimizer = new optim.Muon({ learningRate: 0.1 })
  const step = (w: mx.Array, v: mx.Array): mx.Array => optimizer.applySingle(w, w, { v })
  const compiled = compile(step, { shapeless: true })
  optimizer.init({ w: mx.ones([2, 3]) })
  for (const shape of [
    [3, 2],
    [2, 3],
    [3, 1],
  ]) {
    const w = mx.arange(shape[0] * shape[1]).reshape(shape)
    expect([shape, compiled(w, w).tolist()]).toEqual([shape, step(w, w).tolist()])
  }
  expect(compiled.stats().traces).toBe(1)
})
