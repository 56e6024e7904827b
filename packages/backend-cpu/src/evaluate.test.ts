/** Evaluation on the CPU: order, reuse of memory, fallbacks, failures. */

import { generator } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { Array, lifetimes } from "@lazuli/core/engine"
import { afterEach, describe, expect, test } from "vitest"
import { cpuBackend } from "./index"
import { native } from "./native"

const values = (a: mx.Array): number[] => globalThis.Array.from(a.flatten().toTypedArray() as Float32Array)

describe("a living handle keeps its value", () => {
  // Sizes on both sides of the limit from which handles are watched one by one.
  for (const size of [3, 1000, 40_000]) {
    test(`whatever is evaluated or reused since (${size} elements)`, () => {
      const random = generator(size)
      const pick = (n: number): number => Math.floor(random() * n)
      const held: { array: mx.Array; expected: Float32Array }[] = [
        {
          array: mx.arange(size).astype(mx.float32),
          expected: Float32Array.from({ length: size }, (_, i) => i),
        },
      ]
      for (let step = 0; step < 400; step++) {
        const [x, y] = [held[pick(held.length)], held[pick(held.length)]]
        const kind = pick(4)
        const combine = (a: number, b: number): number =>
          kind === 0
            ? Math.fround(a + b)
            : kind === 1
              ? Math.max(a, b)
              : kind === 2
                ? Math.fround(a - Math.fround(b * 0.5))
                : a
        const array =
          kind === 0
            ? x.array.add(y.array)
            : kind === 1
              ? x.array.maximum(y.array)
              : kind === 2
                ? x.array.subtract(y.array.multiply(0.5))
                : x.array.index("::-1")
        const expected =
          kind === 3 ? x.expected.slice().reverse() : x.expected.map((v, i) => combine(v, y.expected[i]))
        held.push({ array, expected })
        if (pick(3) === 0) mx.eval(held[pick(held.length)].array)
        // Dropping handles lets their memory be reused by what comes next.
        if (held.length > 12) held.splice(pick(held.length), 1 + pick(3))
        if (held.length === 0) held.push({ array: mx.ones([size]), expected: new Float32Array(size).fill(1) })
      }
      for (const { array, expected } of held) expect(array.toTypedArray()).toEqual(expected)
    })
  }

  test("also of an intermediate of one evaluation", () => {
    const x = mx.ones([100_000])
    const a = x.add(1)
    const b = a.multiply(3)
    const c = b.subtract(a)
    mx.eval(c)
    expect([a, b, c].map((y) => y.max().item())).toEqual([2, 6, 4])
  })

  test("also when a pending graph is all that reaches it", () => {
    const make = (): mx.Array => mx.ones([100_000]).add(1)
    const shared = make()
    const later = shared.multiply(5)
    const now = shared.add(1)
    mx.eval(now)
    expect(later.max().item()).toBe(10)
  })
})

describe("memory", () => {
  test("stays flat in a synchronous loop", () => {
    const x = mx.zeros([512, 512])
    mx.eval(x)
    let most = 0
    for (let i = 0; i < 3000; i++) {
      mx.eval(x.add(i))
      if (i % 100 === 0) most = Math.max(most, cpuBackend.memory.stats?.().active ?? Number.POSITIVE_INFINITY)
    }
    // 3,000 arrays of 1 MB were made.
    expect(most).toBeLessThan(400 * 2 ** 20)
  })

  test("of dead intermediates is reused within an evaluation", () => {
    const peaks = [1, 2, 3].map(() => {
      lifetimes.collectGarbage()
      cpuBackend.memory.clearCache?.()
      cpuBackend.memory.resetPeak?.()
      const before = cpuBackend.memory.stats?.().active ?? 0
      let x = mx.zeros([1024, 1024]).add(1)
      for (let i = 0; i < 30; i++) x = x.multiply(1.5).subtract(0.25)
      mx.eval(x)
      return (cpuBackend.memory.stats?.().peak ?? Number.POSITIVE_INFINITY) - before
    })
    // 61 arrays of 4 MB; two at a time are enough, and some slack for what was alive. V8 may have made the handles old meanwhile, which a
    // slow machine gives it time for: then one round takes more.
    expect(Math.min(...peaks)).toBeLessThan(80 * 2 ** 20)
  })

  test("is given back by dispose", () => {
    const x = mx.ones([1024, 1024]).add(1)
    mx.eval(x)
    const before = cpuBackend.memory.stats?.().active as number
    x.dispose()
    expect(before - (cpuBackend.memory.stats?.().active as number)).toBeGreaterThanOrEqual(4 * 2 ** 20)
    expect(() => x.tolist()).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: [eval] the value of this array was released. It was disposed, made inside a rule and kept beyond it, or given to a compiled function with \`donate\`]`,
    )
  })
})

test("a graph of 300,000 nodes evaluates without overflowing the stack", () => {
  let x = mx.zeros([2])
  for (let i = 0; i < 300_000; i++) x = x.add(1)
  expect(values(x)).toEqual([300_000, 300_000])
})

describe("what has no kernel", () => {
  afterEach(() => mx.resetBackendStats())

  test("runs by its reference implementation, and is counted", () => {
    const addIndex = mx.definePrimitive({
      name: "@lazuli/test/addIndex",
      infer: ([x]) => x,
      reference: ([x], [out]) => {
        for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i] + i
      },
    })
    const y = addIndex([
      mx
        .array([
          [1, 2],
          [3, 4],
        ])
        .T.add(1),
    ]).multiply(2)
    expect(y.tolist()).toEqual([
      [4, 10],
      [10, 16],
    ])
    expect(mx.backendStats().cpu["@lazuli/test/addIndex"]).toEqual({ decomposed: 0, reference: 1 })
  })

  test("or by its decomposition", () => {
    const axpby = mx.definePrimitive({
      name: "@lazuli/test/axpby",
      params: { alpha: "f64", beta: "f64" },
      infer: ([x]) => x,
      decompose: ([x, y], { alpha, beta }) => x.multiply(alpha).add(y.multiply(beta)),
    })
    expect(axpby([mx.array([1, 2]), mx.array([10, 20])], { alpha: 2, beta: 0.5 }).tolist()).toEqual([7, 14])
    expect(mx.backendStats().cpu["@lazuli/test/axpby"]).toEqual({ decomposed: 1, reference: 0 })
  })

  test("an elementwise primitive of anybody runs natively", () => {
    const smoothstep = mx.definePrimitive({
      name: "@lazuli/test/smoothstep",
      infer: ([x]) => x,
      scalar: (s, [x]) => s.multiply(s.square(x), s.subtract(s.constant(3, s.dtypeOf(x)), s.add(x, x))),
    })
    expect(smoothstep([mx.array([0, 0.5, 1])]).tolist()).toEqual([0, 0.5, 1])
    expect(mx.backendStats()).toEqual({})
  })
})

describe("a failure", () => {
  test("names the op, stays on what depends on it, and spares the rest", () => {
    const x = mx.array([1, 2, 3])
    const bad = x.take(mx.array([7], mx.int32), 0)
    const dependent = bad.add(1)
    const fine = x.add(1)
    expect(() => mx.eval(dependent, fine)).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [gather] index 7 is out of bounds for axis 0 with size 3]`,
    )
    expect(() => dependent.tolist()).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [gather] index 7 is out of bounds for axis 0 with size 3]`,
    )
    expect(() => dependent.multiply(2).tolist()).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [gather] index 7 is out of bounds for axis 0 with size 3]`,
    )
    expect(fine.tolist()).toEqual([2, 3, 4])
    expect(x.take(mx.array([2], mx.int32), 0).tolist()).toEqual([3])
  })

  test("of a reference implementation surfaces too", () => {
    const broken = mx.definePrimitive({
      name: "@lazuli/test/broken",
      infer: ([x]) => x,
      reference: () => {
        throw new Error("no luck")
      },
    })
    const y = broken([mx.ones([2])])
    expect(() => y.tolist()).toThrow("no luck")
    expect(() => y.add(1).tolist()).toThrow("no luck")
  })
})

test("handles are of the class that users see", () => {
  expect(mx.ones([1]).add(1)).toBeInstanceOf(Array)
  expect(mx.Array.name).toBe("Array")
})

describe("arrays of JavaScript's data", () => {
  test("of every small size, and of those around the largest that come with the command buffer", () => {
    const sizes = [...globalThis.Array.from({ length: 20 }, (_, i) => i), 1023, 1024, 1025]
    for (const list of [Uint8Array, Int16Array, Int32Array, Float32Array, Float64Array]) {
      const data = sizes.map((n) => new list(n).map((_, i) => (7 * i + n) % 100))
      const arrays = data.map((each) => mx.array(each))
      const twice = arrays.map((x) => x.multiply(2))
      mx.eval(twice)
      for (const [i, each] of data.entries()) {
        expect(arrays[i].toTypedArray()).toEqual(each)
        expect(twice[i].toTypedArray()).toEqual(each.map((v) => 2 * v))
      }
    }
  })

  test("are copied when they are made, and come without a call of their own where they are small", () => {
    mx.eval(mx.ones([2]).add(1))
    const runs = native.done(0)
    const small = Float32Array.of(1, 2, 3)
    const x = mx.array(small)
    small.fill(0)
    const y = x.add(mx.array([1, 1, 1]))
    mx.eval(y)
    expect(native.done(0)).toBe(runs + 1)
    const large = new Float32Array(1000).fill(4)
    const z = mx.array(large)
    large.fill(0)
    expect(z.max().item()).toBe(4)
    expect([x, y].map((a) => a.tolist())).toEqual([
      [1, 2, 3],
      [2, 3, 4],
    ])
  })

  test("are read by other streams", () => {
    const before = mx.array([1, 2])
    const stream = mx.newStream(mx.cpu)
    const after = mx.array([3, 4])
    expect(mx.add(before, after, { stream }).tolist()).toEqual([4, 6])
  })
})
