/** Compiled functions read arguments that are no row-major arrays as they lie. */
import { compile } from "@lazuli/compile"
import { arrays } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import { bits } from "../test/bits"
import "./index"

const random = arrays()

/** Views of 96×80 numbers that lie in other ways, too many to be copied in passing. */
const views: Readonly<Record<string, () => mx.Array>> = {
  transposed: () => random([80, 96]).T,
  "every second row": () => random([192, 80]).index("::2"),
  "every second column": () => random([96, 160]).index(":", "::2"),
  "part of wider rows": () => random([100, 200]).index("2:98", "100:180"),
  "one row again and again": () => random([80]).broadcastTo([96, 80]),
  "one column again and again": () => random([96, 1]).broadcastTo([96, 80]),
}
const functions: Readonly<Record<string, (x: mx.Array, y: mx.Array) => mx.Array | mx.Array[]>> = {
  elementwise: (x, y) => x.multiply(2).add(y).tanh().multiply(x),
  "first of two products": (x, y) => x.matmul(y.T).add(1).square(),
  "second of two products": (x, y) => y.T.matmul(x),
  reductions: (x, y) => [x.sum(), x.add(y).sum(0), x.multiply(y).max(1), mx.logsumexp(x, 1)],
  rows: (x, y) => mx.softmax(mx.fast.layerNorm(x, null, null, 1e-5).add(y), -1),
  "views of it": (x, y) => [x.T.add(1), x.reshape([-1]).multiply(2), x.index("3:9").add(y.index("3:9"))],
  "the argument itself": (x, y) => [x, x.T, y.add(x)],

  gathers: (x, y) => x.take(mx.array([3, 1, 90, 1], mx.int32), 0).add(y.index(0)),
  "what products have read": (x, y) => [x.matmul(y.T).sin().matmul(y), y.T.matmul(x.multiply(y))],
}

describe.each(Object.entries(views))("%s", (_name, view) => {
  test.each(Object.entries(functions))("%s", (_title, f) => {
    const [x, y, z] = [view(), random([96, 80]), view()]
    mx.eval(x, y, z)
    // A function of its own, since programs are kept by function.
    const compiled = compile((x: mx.Array, y: mx.Array) => f(x, y))
    // The same layout again, other layouts after it, both at once.
    const calls: [mx.Array, mx.Array][] = [
      [x, y],
      [z, y],
      [y, y],
      [y, x],
      [x, z],
      [x, y],
    ]
    for (const [a, b] of calls) expect(bits(compiled(a, b))).toEqual(bits(f(a, b)))
    expect(compiled.stats().traces).toBe(1)
    // They are what they were.
    expect(x.node.strides).not.toBe(null)
  })
})

test("what lies backwards, and what lies in too many ways, is copied", () => {
  const f = compile((x: mx.Array) => x.matmul(x).add(1))
  const near = (x: mx.Array): void =>
    expect(mx.allclose(f(x), x.matmul(x).add(1), { rtol: 1e-4, atol: 1e-4 }).item()).toBe(true)
  near(random([64, 64]).index("::-1"))
  for (let k = 1; k < 24; k++) near(random([64, 64 + k]).index(":", ":64"))
  expect(f.stats().traces).toBe(1)
})

test("an argument that is given up and lies otherwise keeps its memory", () => {
  const f = compile((x: mx.Array, y: mx.Array) => x.add(y), { donate: [0] })
  const [base, y] = [random([64, 64]), random([64, 64])]
  const want = bits(base.T.add(y))
  const before = bits(base)
  expect(bits(f(base.T, y))).toEqual(want)
  expect(bits(base)).toEqual(before)
})

test("state that lies otherwise", () => {
  const run = (traced: boolean): unknown[] => {
    const random = arrays()
    const state = { w: random([80, 96]).T, v: random([96]).broadcastTo([80, 96]).T }
    const step = (x: mx.Array): mx.Array => {
      state.v = state.v.multiply(0.9).add(x.T.matmul(x.matmul(state.w)).T.T.multiply(1e-3))
      state.w = state.w.subtract(state.v).T.multiply(0.5).T
      return state.w.sum()
    }
    const f = traced ? compile(step, { inputs: state, outputs: state, donate: true }) : step
    const x = random([50, 96])
    return [1, 2, 3].map(() => bits(f(x))).concat([bits([state.w, state.v])])
  }
  expect(run(true)).toEqual(run(false))
})

test("nothing is copied, and nothing is asked for that a copy would take", () => {
  const f = compile((x: mx.Array) => [x.sum(1), x.multiply(2).max(0)])
  const wide = random([1024]).broadcastTo([1024, 1024])
  const whole = mx.contiguous(wide)
  mx.eval(wide, whole, f(wide), f(whole))
  /** The bytes that a call takes at once, within a limit of its own. */
  const peakOf = (x: mx.Array, most: number): number => {
    // Garbage would make room.
    const { active } = mx.memoryReport()
    const before = mx.setMemoryLimit(active + most)
    mx.resetPeakMemory()
    try {
      mx.eval(f(x))
      return mx.getPeakMemory() - active
    } finally {
      mx.setMemoryLimit(before)
    }
  }
  const needed = peakOf(whole, 2 ** 30)
  expect(peakOf(wide, needed + 2 ** 20)).toBeLessThanOrEqual(needed)
})

test("what a plan for strided arguments copies itself is asked for before anything runs", () => {
  const f = compile((x: mx.Array) => x.reshape([-1]).multiply(2))
  const base = random([1024, 1024])
  mx.eval(base)
  const y = f(base.T)
  // The result fits, the copy that a flat view of a transposed array takes does not.
  const before = mx.setMemoryLimit(mx.memoryReport().active + 6 * 2 ** 20)
  try {
    expect(() => mx.eval(y)).toThrow(mx.DeviceError)
  } finally {
    mx.setMemoryLimit(before)
  }
  expect(bits(y)).toEqual(bits(base.T.reshape([-1]).multiply(2)))
})
