/**
 * Compiled functions on the native backend against the same functions as they were written, from the first call on.
 */
import { mx, nn, optim } from "lazuli"
import { expect, test } from "vitest"

test("a constant that elementwise work and, later, a kernel read", () => {
  const drop = new nn.Dropout(0.5)
  const f = (x: mx.Array) => mx.valueAndGrad((y: mx.Array) => drop.forward(y).square().sum())(x)
  const compiled = mx.compile(f, { inputs: mx.random.state, outputs: mx.random.state })
  const x = mx.arange(1, 9).astype(mx.float32)
  for (const seed of [1, 2, 3]) {
    mx.random.seed(seed)
    const [loss, gradient] = f(x).map((a) => a.tolist())
    mx.random.seed(seed)
    expect(compiled(x).map((a) => a.tolist())).toEqual([loss, gradient])
  }
})

test("views of nothing need no memory", () => {
  expect(mx.compile((x: mx.Array) => mx.median(x, 0))(mx.zeros([3, 0])).shape).toEqual([0])
})

test("a model's mode, layers and frozen parameters are part of a program, captured or given", () => {
  const model = new nn.Sequential(new nn.Linear(2, 2), new nn.Dropout(0.5))
  const x = mx.ones([1, 2])
  const captured = mx.compile((v: mx.Array) => model.forward(v), { inputs: [model.state, mx.random.state] })
  const given = mx.compile((m: nn.Sequential, v: mx.Array) => m.forward(v))
  for (const f of [captured, (v: mx.Array) => given(model, v)]) {
    model.train()
    f(x)
    model.eval()
    expect(f(x).tolist()).toEqual(model.forward(x).tolist())
  }
  expect([captured.stats().traces, given.stats().traces]).toEqual([2, 2])

  const reasons: string[] = []
  const other = new nn.Sequential(new nn.Linear(2, 2), new nn.ReLU())
  const swapped = mx.compile((v: mx.Array) => other.forward(v), {
    inputs: other,
    onRecompile: (reason) => reasons.push(reason),
  })
  swapped(x)
  other.layers[1] = new nn.Sigmoid()
  expect(swapped(x).tolist()).toEqual(other.forward(x).tolist())
  expect(reasons).toEqual(["first call", "state.layers[1]: ReLU became Sigmoid"])

  const optimizer = new optim.SGD(0.1)
  optimizer.init(model.trainableParameters())
  const lossAndGrad = nn.valueAndGrad(model, (v: mx.Array) => model.forward(v).sum())
  const state = [model.state, optimizer.state]
  const step = mx.compile((v: mx.Array) => optimizer.update(model, lossAndGrad(v)[1]), {
    inputs: state,
    outputs: state,
  })
  const linear = model.layers[0] as nn.Linear
  step(x)
  linear.freeze({ keys: "weight" })
  const [weight, bias] = [linear.weight.tolist(), linear.bias?.tolist()]
  step(x)
  expect(linear.weight.tolist()).toEqual(weight)
  expect(linear.bias?.tolist()).not.toEqual(bias)
})

test("a thousand operations that share an operand are fused in pieces, without looking at every reader for each", () => {
  const f = (x: mx.Array): mx.Array => {
    const shared = x.exp()
    let sum = shared
    for (let i = 0; i < 1000; i++) sum = sum.add(shared.multiply(i))
    return sum
  }
  const x = mx.array([0, 0.5])
  expect(mx.compile(f)(x).tolist()).toEqual(f(x).tolist())
})
