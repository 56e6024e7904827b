/** Compiled functions on the CPU: equal to eager ones bit for bit, with one native call. */
import { rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { compile, disableCompile, enableCompile, exportFunction, importFunction } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { arraysOf } from "@lazuli/core/engine"
import { grad, valueAndGrad, vmap } from "@lazuli/transforms"
import fc from "fast-check"
import { afterEach, describe, expect, test, vi } from "vitest"
import "./index"

// A program that cannot be recorded would run by its decomposition, and be counted.
afterEach(() => expect(mx.backendStats()).toEqual({}))

type Unary = (x: mx.Array) => mx.Array
type Binary = (x: mx.Array, y: mx.Array) => mx.Array

const unary: Unary[] = [
  (x) => x.exp().log1p(),
  (x) => x.tanh(),
  (x) => x.multiply(0.5).add(1),
  (x) => x.sigmoid().multiply(x),
  (x) => x.T.contiguous().T,
  (x) => x.reshape([-1]).reshape([4, -1]),
  (x) => x.index("::-1"),
  (x) => mx.broadcastArrays(x.sum(0, true), x)[0],
  (x) => x.subtract(x.mean(1, true)),
  (x) => x.softmax(-1),
  (x) => x.max(1, true).subtract(x),
  (x) => x.astype(mx.float16).square().astype(mx.float32).minimum(10).maximum(-10),
  (x) => x.greater(0).astype(mx.float32).multiply(x),
]
const binary: Binary[] = [
  (x, y) => x.add(y),
  (x, y) => x.multiply(y).tanh(),
  (x, y) => x.maximum(y),
  (x, y) => mx.where(x.less(y), x, y.negative()),
  (x, y) => x.matmul(y).tanh(),
  (x, y) => x.subtract(y.index(0)),
  (x, y) => mx.concatenate([x.index("0:2"), y.index("2:")]),
]

/** A random program over 4×4 matrices: each step applies a function to earlier values; several values are returned. */
const programs = fc.record({
  steps: fc.array(fc.tuple(fc.nat(100), fc.nat(1000), fc.nat(1000)), { minLength: 1, maxLength: 25 }),
  outputs: fc.array(fc.nat(1000), { minLength: 1, maxLength: 4 }),
})
type Random = typeof programs extends fc.Arbitrary<infer T> ? T : never

const build =
  ({ steps, outputs }: Random) =>
  (x: mx.Array, y: mx.Array): mx.Array[] => {
    const values = [x, y]
    for (const [kind, i, j] of steps) {
      const k = kind % (unary.length + binary.length)
      const [a, b] = [values[i % values.length], values[j % values.length]]
      values.push(k < unary.length ? unary[k](a) : binary[k - unary.length](a, b))
    }
    return outputs.map((o) => values[o % values.length])
  }

const bits = (arrays: readonly mx.Array[]): unknown[] =>
  arrays.map((a) => [a.shape, a.dtype.name, [...a.toTypedArray()]])

test("random programs: compiled, shapeless and from a file, equal eager bit for bit", () => {
  const file = join(tmpdir(), `lazuli-program-${process.pid}.lazuli`)
  fc.assert(
    fc.property(programs, (program) => {
      const f = build(program)
      const compiled = compile(f)
      const x = mx.array([...Array(16).keys()].map((i) => Math.sin(i * 1.7))).reshape([4, 4])
      const y = mx.array([...Array(16).keys()].map((i) => Math.cos(i * 2.3))).reshape([4, 4])
      const expected = bits(f(x, y))
      expect(bits(compiled(x, y))).toEqual(expected)
      // The second call replays; other inputs, strided ones among them, go through the same program.
      expect(bits(compiled(y.T, x))).toEqual(bits(f(y.T, x)))
      expect(compiled.stats().traces).toBe(1)
      const shapeless = compile(f, { shapeless: true })
      expect(bits(shapeless(x, y))).toEqual(expected)
      exportFunction(file, f, [x, y], { shapeless: true })
      expect(bits(importFunction<[mx.Array, mx.Array], mx.Array[]>(file)(x, y))).toEqual(expected)
    }),
    { numRuns: 150, seed: 20 },
  )
  rmSync(file, { force: true })
})

test("small strided inputs are made row-major by the first call, and stay what they are", () => {
  const f = compile((x: mx.Array) => x.multiply(2).add(x))
  const base = mx.arange(12).astype(mx.float32).reshape([3, 4])
  const views = [
    base.T,
    base.index("::-1", "::2"),
    mx.ones([3]).broadcastTo([2, 3]),
    mx.array(4).broadcastTo([16]),
    base.index(":0").T,
  ]
  const rows = views.map((x) => (x.size > 0 ? x.index(0) : x))
  mx.eval(base, views)
  const want = views.map((x) => x.tolist())
  for (let round = 0; round < 3; round++) {
    const doubled = views.map((x) => f(x))
    mx.eval(doubled)
    expect(doubled.map((x) => x.tolist())).toEqual(views.map((x) => x.multiply(3).tolist()))
    expect(views.map((x) => x.node.strides)).toEqual(views.map(() => null))
    expect(views.map((x) => x.tolist())).toEqual(want)
  }
  expect(rows.slice(0, 4).map((x) => x.tolist())).toEqual(want.slice(0, 4).map((x) => (x as unknown[])[0]))
  expect(base.tolist()).toEqual(mx.arange(12).reshape([3, 4]).tolist())
  const wide = mx.ones([1]).broadcastTo([2000])
  mx.eval(wide)
  expect(f(wide).sum().item()).toBe(6000)
  expect(wide.node.strides).toEqual([0])
})

test("a training step with captured state equals the eager one bit for bit", () => {
  const make = () => {
    const model = {
      w: mx.array([
        [0.5, -0.25],
        [0.125, 1],
      ]),
      b: mx.zeros([2]),
    }
    const state = { m: { w: mx.zeros([2, 2]), b: mx.zeros([2]) }, step: mx.array(0) }
    const loss = (p: typeof model, x: mx.Array, y: mx.Array) =>
      mx.addmm(p.b, x, p.w).tanh().subtract(y).square().mean()
    const step = (x: mx.Array, y: mx.Array): mx.Array => {
      const [value, gradient] = valueAndGrad(loss)(model, x, y)
      for (const key of ["w", "b"] as const) {
        state.m[key] = state.m[key].multiply(0.9).add(gradient[key])
        model[key] = model[key].subtract(state.m[key].multiply(0.1))
      }
      state.step = state.step.add(1)
      return value
    }
    return { model, state, step }
  }
  const eager = make()
  const other = make()
  const compiled = compile(other.step, {
    inputs: [other.model, other.state],
    outputs: [other.model, other.state],
  })
  const [x, y] = [
    mx.array([
      [1, 2],
      [3, 4],
      [-1, 0.5],
    ]),
    mx.array([
      [0.5, 0],
      [0, 0.5],
      [1, -1],
    ]),
  ]
  const before = other.model.w
  for (let i = 0; i < 20; i++) {
    expect(bits([compiled(x, y)])).toEqual(bits([eager.step(x, y)]))
  }
  expect(bits(arraysOf([other.model, other.state]))).toEqual(bits(arraysOf([eager.model, eager.state])))
  expect(compiled.stats()).toMatchObject({ calls: 20, traces: 1 })
  // Handles that the steps replaced keep what they showed.
  expect(before.tolist()).toEqual([
    [0.5, -0.25],
    [0.125, 1],
  ])
})

describe("compile", () => {
  test("traces again for other shapes, dtypes, structures and constants, and not otherwise", () => {
    const body = vi.fn((tree: { a: mx.Array; k?: number }) => tree.a.multiply(tree.k ?? 2))
    const reasons: string[] = []
    const f = compile(body, { onRecompile: (reason) => reasons.push(reason) })
    for (const tree of [
      { a: mx.ones([2]) },
      { a: mx.zeros([2]) },
      { a: mx.ones([3]) },
      { a: mx.ones([2], mx.int32) },
      { a: mx.ones([2]), k: 3 },
      { a: mx.ones([2]), k: 3 },
      { a: mx.ones([2]), k: 4 },
    ]) {
      expect(f(tree).tolist()).toEqual(body.getMockImplementation()?.(tree).tolist())
    }
    expect(f.stats()).toEqual({ calls: 7, traces: 5, programs: 5 })
    expect(reasons).toHaveLength(5)
  })

  test("reads values from outside, passes inputs through and keeps constants", () => {
    const scale = mx.array([2, 3])
    const f = compile((x: mx.Array) => ({ x, y: x.multiply(scale), one: mx.ones([2]), text: "same" }))
    for (let i = 0; i < 2; i++) {
      const x = mx.array([i, 1])
      const out = f(x)
      expect([out.x.tolist(), out.y.tolist(), out.one.tolist(), out.text]).toEqual([
        [i, 1],
        [2 * i, 3],
        [1, 1],
        "same",
      ])
    }
    expect(scale.tolist()).toEqual([2, 3])
  })

  test("a failed trace leaves nothing behind", () => {
    const state = { w: mx.array([1]) }
    let fail = true
    const f = compile(
      (x: mx.Array) => {
        state.w = state.w.add(x)
        if (fail) throw new Error("not today")
        return state.w
      },
      { inputs: state, outputs: state },
    )
    expect(() => f(mx.array([5]))).toThrow("not today")
    expect(state.w.tolist()).toEqual([1])
    fail = false
    expect(f(mx.array([5])).tolist()).toEqual([6])
    expect(state.w.tolist()).toEqual([6])
  })

  test("explains that a traced array has no value", () => {
    const f = compile((x: mx.Array) => (Number(x.sum().item()) > 0 ? x : x.negative()))
    expect(() => f(mx.ones([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [eval] an array that is being traced by vmap or compile has no value yet. Return it from the function, or move what needs its value (item, tolist, printing, if) out of the traced function. One that a compiled function left in a variable never gets a value: name the tree that holds it in \`outputs\`]`,
    )
    const seen: string[] = []
    compile((x: mx.Array) => {
      seen.push(String(x))
      return x.add(1)
    })(mx.ones([2]))
    expect(seen).toMatchInlineSnapshot(`
      [
        "array(<being traced>, shape=[2], dtype=float32)",
      ]
    `)
  })

  test("composes with transforms, inside and outside", () => {
    const f = (x: mx.Array): mx.Array => x.sin().multiply(x).sum()
    const x = mx.array([0.1, 0.2, 0.3])
    const expected = bits([grad(f)(x)])
    expect(bits([compile(grad(f))(x)])).toEqual(expected)
    expect(bits([grad(compile(f))(x)])).toEqual(expected)
    expect(compile(vmap((v: mx.Array) => v.square().sum()))(mx.ones([3, 2])).tolist()).toEqual([2, 2, 2])
    expect(vmap(compile((v: mx.Array) => v.square().sum()))(mx.ones([3, 2])).tolist()).toEqual([2, 2, 2])
    expect(compile((v: mx.Array) => compile(f)(v).add(1))(x).item()).toBeCloseTo(Number(f(x).item()) + 1, 6)
  })

  test("takes what begins between two wider elements, and slices of no elements, as eager calls do", () => {
    const bytes = mx.array(Uint8Array.from({ length: 40 }, (_, i) => i))
    const rows = mx.arange(64).reshape([4, 16])
    mx.eval(bytes, rows)
    const functions: Unary[] = [
      (x) => x.view(mx.float32).add(1),
      (x) => x.view(mx.complex64),
      (x) => x.view(mx.int16).sum(),
      (x) => x.index("8:").view(mx.float32).sort(),
      (x) => x.index("99:").view(mx.complex64).add(1),
      (x) => x.index("::-1").index("99:").view(mx.float32).sum(),
      (x) => x.softmax(-1),
    ]
    const starts = ["0:32", "1:33", "2:34", "3:35", "4:36", "5:5", "40:"]
    const given = [
      ...starts.map((slice) => bytes.index(slice)),
      ...starts.map((slice) => bytes.index(slice).view(mx.float16)),
      ...starts.map((slice) => bytes.index(slice).view(mx.float32)),
      ...["4:", "::-1", "1:3"].map((slice) => rows.index(slice, "4:")),
      ...["16:", "5:5", "::2"].map((slice) => rows.index("::-1", slice)),
      rows.index("1:2", "1:9"),
    ]
    for (const x of given) {
      mx.eval(x)
      for (const f of functions) expect(bits([compile((v: mx.Array) => f(v))(x)])).toEqual(bits([f(x)]))
    }
    // A plan for strided rows, of which one row is read as wider elements.
    const wide = mx.arange(120_000).reshape([2, 60_000])
    const middle = wide.index(":", "1:40001")
    mx.eval(middle)
    const f: Unary = (x) => x.index("0:1").view(mx.complex64).add(1)
    expect(bits([compile(f)(middle)])).toEqual(bits([f(middle)]))
  })

  test("can be switched off", () => {
    const body = vi.fn((x: mx.Array) => x.add(1))
    const f = compile(body)
    disableCompile()
    try {
      f(mx.ones([1]))
      f(mx.ones([1]))
    } finally {
      enableCompile()
    }
    expect(body).toHaveBeenCalledTimes(2)
  })
})
