/**
 * The backend on the host runtime, against the reference backend on the CPU.
 */

import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { onStream } from "@lazuli/core/engine"
import { grad, vmap } from "@lazuli/transforms"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { compilerStats } from "./host-compiler"
import { HostRuntime } from "./host-runtime"
import { createMetalBackend, metalBackend } from "./index"

beforeAll(() => mx.setDefaultDevice(mx.gpu))
afterAll(() => mx.setDefaultDevice(mx.cpu))
beforeEach(() => mx.resetBackendStats())

type Make = () => mx.Array
const onCpu = <T>(body: () => T): T => onStream("cpu", body)

/** Numbers that are exact in every dtype. */
function numbers(shape: number[], dtype: mx.Dtype, seed = 1): mx.Array {
  const n = shape.reduce((a, b) => a * b, 1)
  const values = Array.from({ length: n }, (_, i) => ((i * 37 + seed * 11) % 29) - 14)
  if (dtype === mx.bool_) return mx.array(values.map((v) => v % 3 === 0)).reshape(shape)
  if (dtype === mx.uint8 || dtype === mx.uint32 || dtype === mx.uint64)
    return mx.array(values.map(Math.abs)).astype(dtype).reshape(shape)
  return mx
    .array(dtype === mx.int32 || dtype === mx.int64 || dtype === mx.int8 ? values : values.map((v) => v / 4))
    .astype(dtype)
    .reshape(shape)
}

function flat(x: mx.Array): number[] {
  return ([x.tolist()] as unknown[]).flat(8).map(Number)
}

/** Computes on both devices and compares. */
function agree(make: Make, tolerance = 0): void {
  const got = make()
  const values = flat(got)
  const expected = onCpu(() => make())
  expect(got.dtype).toBe(expected.dtype)
  expect(got.shape).toEqual(expected.shape)
  const wanted = flat(expected)
  values.forEach((value, i) => {
    const want = wanted[i]
    if (Object.is(value, want) || value === want) return
    if (!(Math.abs(value - want) <= tolerance * Math.max(1, Math.abs(want))))
      expect.fail(`element ${i}: ${value} instead of ${want}`)
  })
}

const floats = [mx.float32, mx.float16, mx.bfloat16]
const layouts: [string, (shape: number[], dtype: mx.Dtype, seed?: number) => mx.Array][] = [
  ["row-major", numbers],
  ["transposed", (shape, dtype, seed) => numbers([...shape].reverse(), dtype, seed).transpose()],
  ["strided", ([first, ...rest], dtype, seed) => numbers([2 * first, ...rest], dtype, seed).index("::2")],
  ["reversed", (shape, dtype, seed) => numbers(shape, dtype, seed).index("::-1")],
  ["broadcast", (shape, dtype, seed) => mx.broadcastTo(numbers(shape.slice(-1), dtype, seed), shape)],
]

describe("a rehearsal", () => {
  it("has the right values, also where a kernel has no reference to stand in for it, and compiles what was asked for", async () => {
    const factor = Math.random() * 2 ** 20
    const body = (): number[] => {
      const x = mx.array([[1, 2, 3]])
      // The steps depend on values, as in a program that reads them.
      const y = x.index("...", `0:${x.max().item()}`).multiply(factor).divide(factor)
      return flat(mx.softmax(mx.contiguous(y.T), 0).add(y.sum()))
    }
    let seen: number[] = []
    expect(
      await metalBackend.rehearse(() => {
        seen = body()
      }),
    ).toBeGreaterThan(3)
    const { compiled } = compilerStats
    const ran = body()
    expect(compilerStats.compiled).toBe(compiled)
    seen.forEach((value, i) => {
      expect(value).toBeCloseTo(ran[i], 5)
    })
  })

  it("that throws ends", async () => {
    await expect(
      metalBackend.rehearse(() => {
        throw new Error("by its author")
      }),
    ).rejects.toThrow("by its author")
    expect(mx.ones([3]).add(1).tolist()).toEqual([2, 2, 2])
  })
})

describe("elementwise", () => {
  it.each([...floats, mx.int32, mx.int64, mx.uint8, mx.int8, mx.uint32, mx.bool_])(
    "agrees for %o",
    (dtype) => {
      agree(() => {
        const [x, y] = [numbers([3, 5], dtype), numbers([5], dtype, 2)]
        return dtype === mx.bool_ ? x.maximum(y) : x.multiply(y).subtract(x).add(3)
      })
      agree(() => numbers([3, 5], dtype).greater(numbers([3, 1], dtype, 2)))
      agree(() => numbers([7], dtype).astype(mx.float32))
      agree(() => numbers([7], mx.float32).multiply(3).abs().astype(dtype))
      expect(mx.backendStats().metal).toBeUndefined()
    },
  )

  it("converts floats that no integer holds by wrapping", () => {
    const far = [
      9.3e18,
      -9.3e18,
      2 ** 63,
      -(2 ** 63),
      1.9e19,
      -1.9e19,
      3e20,
      3e9,
      -3e9,
      1.9,
      -1.9,
      0 / 0,
      1 / 0,
    ]
    for (const dtype of [mx.int64, mx.uint64, mx.int32, mx.uint32, mx.int8, mx.uint8])
      agree(() => mx.array(far).astype(dtype))
  })

  it.each(layouts)("reads %s inputs", (_, make) => {
    agree(() => make([4, 6], mx.float32).add(make([4, 6], mx.float32, 5).multiply(numbers([6], mx.float32))))
    agree(() => make([2, 3, 4], mx.int32).multiply(numbers([3, 1], mx.int32)))
  })

  it("computes functions to float precision", () => {
    const x = (): mx.Array => mx.array([-2.5, -1, -0.3, 0, 1e-4, 0.2, 0.9, 1.5, 3, 20])
    for (const f of [
      mx.exp,
      mx.sin,
      mx.cos,
      mx.tanh,
      mx.erf,
      mx.sigmoid,
      mx.expm1,
      mx.arctan,
      mx.sign,

      mx.floor,
    ])
      agree(() => f(x()), 1e-6)
    for (const f of [mx.sqrt, mx.log, mx.log1p, mx.rsqrt, mx.log2]) agree(() => f(x().abs().add(0.01)), 1e-6)
    agree(() => mx.erfinv(x().divide(21)), 1e-6)
    agree(() => mx.power(x().abs(), x()), 1e-6)
    agree(() => mx.logaddexp(x(), 1), 1e-6)
    const edges = [Number.NEGATIVE_INFINITY, -2, -1, -0, Number.POSITIVE_INFINITY, Number.NaN]
    for (const f of [mx.log1p, mx.expm1, mx.erf, mx.sigmoid, mx.tanh]) agree(() => f(mx.array(edges)), 1e-6)
    expect(mx.backendStats().metal).toBeUndefined()
  })

  it.each([mx.float16, mx.bfloat16])("rounds every instruction of %o", (dtype) => {
    agree(() =>
      numbers([64], dtype)
        .divide(3)
        .multiply(numbers([64], dtype, 3))
        .add(0.1),
    )
    agree(() => mx.exp(numbers([64], dtype).divide(8)), dtype === mx.float16 ? 1e-3 : 8e-3)
  })

  it("divides, shifts and raises integers as the definition does", () => {
    const a = (): mx.Array => mx.array([7, -7, 5, 0, -2147483648], mx.int32)
    const b = (): mx.Array => mx.array([2, 2, 0, 3, -1], mx.int32)
    agree(() => a().floorDivide(b()))
    agree(() => a().remainder(b()))
    agree(() => mx.leftShift(a(), b().abs()))
    agree(() => mx.rightShift(a(), b().abs()))
    agree(() => a().power(b().abs()))
    agree(() => mx.bitwiseXor(a(), b()))
    agree(() => mx.array([300.7, -1.5, Number.NaN, 5e9]).astype(mx.int32))
    agree(() => mx.array([300.7, -1.5, 5e9]).astype(mx.uint8))
  })

  it("keeps NaN, infinities and selects", () => {
    const x = (): mx.Array => mx.array([Number.NaN, 1, Number.POSITIVE_INFINITY, -0])
    agree(() => x().maximum(2))
    agree(() => mx.minimum(0, x()))
    agree(() => mx.where(x().greater(0), x(), -5))
  })

  it("moves arrays between devices", () => {
    const x = onCpu(() => mx.array([1, 2, 3]).add(1))
    const y = mx.multiply(x, 2)
    const z = onCpu(() => y.add(x))
    expect(z.tolist()).toEqual([6, 9, 12])
  })

  it("handles empty arrays and scalars", () => {
    expect(mx.zeros([0, 3]).add(1).shape).toEqual([0, 3])
    expect(mx.zeros([0, 3]).add(1).tolist()).toEqual([])
    expect(mx.array(2).multiply(3).item()).toBe(6)
  })
})

describe("rows", () => {
  it.each([...floats, mx.int32, mx.int64, mx.bool_, mx.uint8])("sums and extremes of %o", (dtype) => {
    for (const shape of [
      [3, 5],
      [2, 300],
    ]) {
      for (const axis of [-1, 0, null]) {
        agree(() => mx.sum(numbers(shape, dtype), axis as number), dtype === mx.float32 ? 1e-6 : 0)
        agree(() => mx.max(numbers(shape, dtype), axis as number))
      }
    }
    agree(() => mx.min(numbers([4, 70], dtype), 1))
    expect(mx.backendStats().metal).toBeUndefined()
  })
  it("lets NaN win", () => {
    agree(() => mx.max(mx.array(Array.from({ length: 100 }, (_, i) => (i === 50 ? Number.NaN : i)))))
  })
  it.each(layouts)("reads %s inputs", (_, make) => {
    agree(() => mx.sum(make([4, 6, 5], mx.float32), [0, 2]))
    agree(() => mx.softmax(make([4, 6], mx.float32), -1), 1e-6)
  })
  it.each(floats)("softmax of %o", (dtype) => {
    const tolerance = dtype === mx.float32 ? 1e-6 : dtype === mx.float16 ? 1e-3 : 8e-3
    for (const n of [1, 7, 130, 1000]) agree(() => mx.softmax(numbers([3, n], dtype), -1), tolerance)
    expect(mx.backendStats().metal).toBeUndefined()
  })
})

describe("matmul", () => {
  it.each(floats)("multiplies %o", (dtype) => {
    const tolerance = dtype === mx.float32 ? 1e-6 : dtype === mx.float16 ? 2e-3 : 1e-2
    agree(() => mx.matmul(numbers([5, 33], dtype), numbers([33, 17], dtype, 4)), tolerance)
    expect(mx.backendStats().metal).toBeUndefined()
  })
  it("takes transposes, batches and broadcasts", () => {
    const a = (): mx.Array => numbers([2, 3, 4, 5], mx.float32)
    const b = (): mx.Array => numbers([2, 3, 6, 5], mx.float32, 7)
    agree(() => mx.matmul(a(), b().swapaxes(-1, -2)), 1e-6)
    agree(() => mx.matmul(a().transpose([1, 0, 2, 3]), numbers([5, 3], mx.float32)), 1e-6)
    agree(() => mx.matmul(a(), numbers([3, 5, 2], mx.float32)), 1e-6)
    agree(() => mx.matmul(a().index(":", "::-1"), numbers([2, 1, 5, 2], mx.float32)), 1e-6)
    agree(() => mx.matmul(numbers([4], mx.float32), numbers([4, 3], mx.float32)), 1e-6)
  })
})

describe("transforms", () => {
  const loss = (x: mx.Array, w: mx.Array): mx.Array => mx.tanh(mx.matmul(x, w)).square().sum()
  const x = (): mx.Array => numbers([3, 4], mx.float32)
  const w = (): mx.Array => numbers([4, 2], mx.float32, 5)
  it("differentiate, batch and compile what runs here", () => {
    agree(() => grad(loss)(x(), w()), 1e-5)
    agree(() => vmap((row: mx.Array) => mx.softmax(row, -1))(x()), 1e-6)
    const compiled = compile(loss)
    expect(compiled(x(), w()).item()).toBeCloseTo(loss(x(), w()).item() as number, 5)
  })
})

describe("fallbacks", () => {
  it("run by their reference implementation or their decomposition, and are counted", () => {
    agree(() => mx.linalg.inv(mx.array([[2]])))
    agree(() => {
      const x = numbers([1, 1, 2, 600], mx.float32)
      return mx.fast.scaledDotProductAttention(x, x, x, { scale: 0.01 })
    }, 1e-4)
    expect(mx.backendStats().metal).toMatchObject({
      inv: { reference: 1 },
      scaledDotProductAttention: { decomposed: 1 },
    })
  })
  it("serve float64 in TypeScript", () => {
    agree(() => numbers([4], mx.float64).add(0.5))
  })
})

describe("memory", () => {
  it("reuses buffers and stays flat in a synchronous loop", () => {
    let x = mx.zeros([1000])
    mx.eval(x)
    const before = metalBackend.memory.stats?.().buffers as number
    for (let i = 0; i < 200; i++) {
      const y = x.add(1)
      mx.eval(y)
      x.dispose()
      x = y
    }
    expect(x.index(0).item()).toBe(200)
    expect((metalBackend.memory.stats?.().buffers as number) - before).toBeLessThan(4)
  })
  it("refuses more than its limit", () => {
    const small = createMetalBackend(new HostRuntime(), "small")
    small.memory.setLimit?.(10_000)
    expect(() => small.memory.allocate(20_000)).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: [small] 20480 bytes more would exceed the memory limit of 10000 bytes: 0 are in use]`,
    )
  })
})
