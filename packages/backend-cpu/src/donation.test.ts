/** Donated arrays: results take their memory where nobody else can read it, and never otherwise. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { expect, test } from "vitest"
import "./index"

const N = 1 << 16

/** An array with memory of its own: `mx.ones` repeats one element. */
function filled(value: number): mx.Array {
  const x = mx.arange(N).multiply(0).add(value)
  mx.eval(x)
  return x
}

/** Momentum on one large parameter. */
function momentum(donate: boolean) {
  const state = { w: filled(1), m: filled(0) }
  const step = compile(
    (g: mx.Array) => {
      state.m = state.m.multiply(0.5).add(g)
      state.w = state.w.subtract(state.m)
      return state.w.sum()
    },
    { inputs: state, outputs: state, donate },
  )
  return { state, step }
}

const addressOf = (x: mx.Array): bigint => {
  const { storage } = x.node
  return storage?.memory.address?.(storage) ?? 0n
}

test("donated state is updated in place, and its old handles have no value", () => {
  const { state, step } = momentum(true)
  const g = mx.ones([N])
  mx.eval(step(g), state)
  const { w, m } = state
  const addresses = [addressOf(w), addressOf(m)]
  mx.eval(step(g), state)
  expect([addressOf(state.w), addressOf(state.m)].sort()).toEqual(addresses.sort())
  expect([state.w.index(7).item(), state.m.index(7).item()]).toEqual([-1.5, 1.5])
  expect(() => w.item()).toThrow()
  expect(() => m.sum().item()).toThrowErrorMatchingInlineSnapshot(
    `[DeviceError: [eval] the value of this array was released. It was disposed, made inside a rule and kept beyond it, or given to a compiled function with \`donate\`]`,
  )
  expect(g.sum().item()).toBe(N)
})

test("so is state of a few bytes, which stays with those that it was evaluated with", () => {
  const value = (n: number): mx.Array => {
    const x = mx.arange(4).multiply(0).add(n)
    mx.eval(x)
    return x
  }
  const neighbour = value(5)
  const state = { w: value(1), m: value(0) }
  const step = compile(
    (g: mx.Array) => {
      state.m = state.m.multiply(0.5).add(g)
      state.w = state.w.subtract(state.m)
    },
    { inputs: state, outputs: state, donate: true },
  )
  const g = mx.ones([4])
  const addresses = [addressOf(state.w), addressOf(state.m)].sort()
  const run = (steps: number): number => {
    for (let i = 0; i < steps; i++) {
      step(g)
      mx.eval(state)
    }
    return mx.memoryReport().buffers
  }
  const buffers = run(2)
  expect(run(500)).toBe(buffers)
  expect([addressOf(state.w), addressOf(state.m)].sort()).toEqual(addresses)
  expect([state.w.index(3).item(), state.m.index(3).item()]).toEqual([-1001, 2])
  expect(neighbour.tolist()).toEqual([5, 5, 5, 5])
  // Several steps at once, and after the state alone is left of its group.
  const { w } = state
  step(g)
  step(g)
  mx.eval(state)
  expect(() => w.tolist()).toThrow(/was released/)
  expect(state.w.tolist()).toEqual([-1005, -1005, -1005, -1005])
})

test("so are state and arguments of a call for a number that may not come again", () => {
  const state = { w: filled(1), same: filled(2) }
  const step = compile(
    (x: mx.Array, n: number) => {
      state.w = state.w.add(x.index(0)).subtract(n)
      return state.w.sum()
    },
    { inputs: state, outputs: state, donate: ["state", 0] },
  )
  for (let n = 1; n <= 20; n++) {
    const x = filled(3)
    const { w } = state
    mx.eval(step(x, n), state)
    for (const old of [w, x]) expect(() => old.tolist()).toThrow(/was released/)
  }
  expect(step.stats().programs).toBe(16)
  step(filled(3), 30)
  expect([state.w.index(7).item(), state.same.index(7).item()]).toEqual([-176, 2])
})

test("without the option old handles keep what they showed", () => {
  const { state, step } = momentum(false)
  const { w } = state
  mx.eval(step(mx.ones([N])), state)
  expect(addressOf(state.w)).not.toBe(addressOf(w))
  expect([w.index(3).item(), state.w.index(3).item()]).toEqual([1, 0])
})

test("what anything else can read is not overwritten", () => {
  const { state, step } = momentum(true)
  mx.eval(state)
  // A view, a pending graph and the same array under another key.
  const view = state.w.index("1:")
  const pending = state.m.add(1)
  mx.eval(view)
  mx.eval(step(mx.ones([N])), state)
  expect([view.index(0).item(), pending.index(0).item()]).toEqual([1, 1])
  expect([state.w.index(0).item(), state.m.index(0).item()]).toEqual([0, 1])

  const tied = { a: mx.ones([N]), b: mx.ones([N]) }
  tied.b = tied.a
  const f = compile(
    () => {
      tied.a = tied.a.add(1)
      tied.b = tied.b.add(2)
    },
    { inputs: tied, outputs: tied, donate: true },
  )
  f()
  expect([tied.a.index(0).item(), tied.b.index(0).item()]).toEqual([2, 3])
})

test("several calls before an evaluation, and calls under grad, are as without donation", () => {
  const { state, step } = momentum(true)
  const other = momentum(false)
  const g = mx.ones([N])
  for (let i = 0; i < 5; i++) {
    step(g)
    other.step(g)
  }
  expect(mx.arrayEqual(state.w, other.state.w).item()).toBe(true)
  const f = compile((x: mx.Array) => x.square().sum(), { donate: [0] })
  const x = mx.ones([N])
  expect(grad(f)(x).index(0).item()).toBe(2)
  expect(x.index(0).item()).toBe(1)
})

test("arguments are donated by position; a state of other sizes, an unused one and one passed through stay right", () => {
  const f = compile((x: mx.Array, y: mx.Array) => x.add(y), { donate: [0] })
  const [x, y] = [filled(1), filled(1)]
  const address = addressOf(x)
  const sum = f(x, y)
  mx.eval(sum)
  expect(addressOf(sum)).toBe(address)
  expect([sum.index(0).item(), y.index(0).item()]).toEqual([2, 1])
  expect(() => x.item()).toThrow()
  // A handle given back as it came keeps its value.
  const same = compile((a: mx.Array) => [a, a.add(1)], { donate: [0] })
  const [a] = [mx.ones([N])]
  const [back, more] = same(a)
  expect([back.index(0).item(), more.index(0).item()]).toEqual([1, 2])
  const turned = compile((v: mx.Array) => [v.T.contiguous(), v.sum()], { donate: [0] })
  const v = mx.arange(N).reshape([256, 256])
  mx.eval(v)
  const [t, total] = turned(v)
  expect([t.index(1, 0).item(), total.item()]).toEqual([1, mx.arange(N).sum().item()])
  expect(() => compile(f, { donate: ["x"] as never })).toThrow(/donate must be a boolean or a list/)
  expect(() => compile(f, { donate: [-1] })).toThrow(/donate must be/)
  const two = compile((x: mx.Array) => x.add(1), { donate: [1] })
  expect(() => two(mx.ones([2]))).toThrow("donate names argument 1, but the function was called with 1")
})

test("what another stream made or reads is not overwritten", () => {
  const other = mx.newStream(mx.cpu)
  const f = compile((x: mx.Array) => x.add(1), { donate: [0] })
  const made = mx.add(filled(1), 1, { stream: other })
  mx.eval(made)
  const address = addressOf(made)
  const next = f(made)
  mx.eval(next)
  expect(addressOf(next)).not.toBe(address)
  const x = filled(2)
  const read = mx.multiply(x, 3, { stream: other })
  mx.asyncEval(read)
  const y = f(x)
  mx.eval(y)
  expect([next.index(0).item(), read.index(N - 1).item(), y.index(0).item()]).toEqual([3, 6, 3])
})

test("a result that a later step still needs an input for does not take its memory", () => {
  // y is finished before x is read for the last time, at other positions.
  const f = compile((x: mx.Array) => [x.add(1), x.index("::-1").multiply(2)], { donate: [0] })
  const x = mx.arange(N)
  mx.eval(x)
  const [y, z] = f(x)
  expect([y.index(0).item(), y.index(N - 1).item()]).toEqual([1, N])
  expect([z.index(0).item(), z.index(N - 1).item()]).toEqual([2 * (N - 1), 0])
})

test("a step that takes large donated arrays is not computed before it is asked for", () => {
  const rows = 72 * 2 ** 8
  const step = compile((x: mx.Array, row: mx.Array) => mx.sliceUpdate(x, row, mx.array([3], mx.int32), [0]), {
    donate: [0],
  })
  let x = mx.zeros([rows, 1024]).add(mx.arange(1024))
  mx.eval(x)
  for (let i = 1; i <= 3; i++) {
    x = step(x, mx.full([1, 1024], i))
    const last = x.index(3)
    // Enough new nodes that somebody looks at what pending arrays come to.
    const others = Array.from({ length: 40 }, () => mx.arange(2 ** 20).add(i))
    expect(others.length).toBe(40)
    expect(x.node.storage).toBeNull()
    mx.eval(x, last)
    expect(last.index(5).item()).toBe(i)
    for (const each of [last, ...others]) each.dispose()
  }
})

test("what JavaScript has a view of keeps its values, whatever writes in place", () => {
  const give = compile((x: mx.Array) => x.add(1), { donate: [0] })
  const ways: ((x: mx.Array) => mx.Array)[] = [
    (x) => {
      x.set([0], 9)
      return x
    },
    (x) => give(x),
    (x) => {
      const y = x.multiply(5)
      x.dispose()
      return y
    },
  ]
  for (const size of [4, N])
    for (const way of ways) {
      const x = mx.arange(size).multiply(0).add(1)
      mx.eval(x)
      const seen = x.toTypedArray({ copy: false }) as Float32Array
      mx.eval(way(x))
      expect(seen[0]).toBe(1)
      // And so on, in the memory of the result.
      const next = mx.arange(size).multiply(0).add(3)
      mx.eval(next)
      const address = addressOf(next)
      next.set([0], 1)
      mx.eval(next)
      if (size === N) expect(addressOf(next)).toBe(address)
    }
})

test("a product with an addend of several axes takes the memory of its result alone", () => {
  const [a, b, c] = [filled(1), filled(2), filled(3)].map((x) => x.reshape(256, 256))
  mx.eval(a, b, c)
  mx.memoryReport()
  const before = mx.getActiveMemory()
  const y = mx.addmm(c, a, b)
  mx.eval(y)
  expect(y.index(0, 0).item()).toBe(2 * 256 + 3)
  expect(mx.getActiveMemory() - before).toBeLessThan(1.5 * y.nbytes)
})
