/**
 * The op on every backend against plain loops and its own decomposition; the rules against each other; compilation; what is refused.
 * Needs the kernels: `npm run build:native` here, or `npm run build` at the root.
 */
import "@lazuli/backend-cpu"
import "@lazuli/backend-metal"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad, jvp, vjp, vmap } from "@lazuli/transforms"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { axpby } from "./index"

const NAME = "@lazuli/ext-axpby/axpby"
/** The runtime that runs Metal kernels on the CPU is for Linux. */
const withMetal = process.platform === "linux"
const backends = withMetal ? ["reference", "cpu", "metal"] : ["reference", "cpu"]
const use = (name: string): void => {
  if (name === "metal") mx.setDefaultDevice(mx.gpu)
  else {
    mx.setDefaultDevice(mx.cpu)
    mx.setBackend(name, "cpu")
  }
}
beforeEach(() => mx.resetBackendStats())
afterEach(() => {
  mx.setDefaultDevice(mx.cpu)
  mx.setBackend(null, "cpu")
})

const wave = (shape: number[], step: number): mx.Array =>
  mx
    .sin(
      mx
        .arange(shape.reduce((n, m) => n * m, 1))
        .astype(mx.float32)
        .multiply(step),
    )
    .reshape(shape)
const plain = (x: mx.Array, y: mx.Array, alpha: number, beta: number): mx.Array =>
  x.multiply(alpha).add(y.multiply(beta))
const same = (got: mx.Array, want: mx.Array): void => {
  expect([got.dtype.name, got.shape]).toEqual([want.dtype.name, want.shape])
  expect(got.tolist()).toEqual(want.tolist())
}

describe.each(backends)("on the %s backend", (backend) => {
  beforeEach(() => use(backend))

  test.each([mx.float32, mx.float16, mx.bfloat16, mx.complex64, mx.float64].map((d) => [d.name, d]))(
    "%s in any layout equals the composition to the bit",
    (_name, dtype) => {
      if (backend === "metal" && dtype === mx.float64) return
      const x = wave([6, 10], 0.7).astype(dtype as mx.Dtype)
      const y = wave([6, 10], 0.3).astype(dtype as mx.Dtype)
      same(axpby(x, y, 2.3, -0.7), plain(x, y, 2.3, -0.7))
      const [a, b] = [x.index(":", "::2").transpose(), y.index("::-1", "1::2").transpose()]
      same(axpby(a, b, 2.3, -0.7), plain(a, b, 2.3, -0.7))
      same(axpby(x, y.index(2), 0.1, 1e3), plain(x, y.index(2), 0.1, 1e3))
      same(axpby(x.index(1, 2), y.index(3, 4), 2, 3), plain(x.index(1, 2), y.index(3, 4), 2, 3))
    },
  )

  test("shapes broadcast, dtypes promote, integers and bools become float32", () => {
    const x = mx.array([[1], [2]], mx.int32)
    const y = mx.array([10, 20, 30], mx.uint8)
    same(
      axpby(x, y, 0.5, 1),
      mx.array([
        [10.5, 20.5, 30.5],
        [11, 21, 31],
      ]),
    )
    expect(axpby(mx.array([true]), mx.array([1], mx.float16), 1, 1).dtype).toBe(mx.float16)
    same(axpby(mx.ones([2], mx.float16), 3, 1, 2), mx.array([7, 7], mx.float16))
    same(axpby(1, mx.array([2], mx.int32), 1, 1), mx.array([3]))
    expect(axpby(mx.zeros([0, 3]), mx.zeros([3]), 1, 1).tolist()).toEqual([])
  })

  test("infinities and NaN pass through", () => {
    const x = mx.array([Number.POSITIVE_INFINITY, Number.NaN, 1, 65000, 1e-7])
    for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
      const a = x.astype(dtype)
      same(axpby(a, a, 1, 1), plain(a, a, 1, 1))
      same(axpby(a, a, 1, -1), plain(a, a, 1, -1))
    }
  })

  test("large arrays, which several threads share", () => {
    const [x, y] = [wave([300, 1111], 0.01), wave([300, 1111], 0.02)]
    expect(mx.arrayEqual(axpby(x, y, 1.5, 0.25), plain(x, y, 1.5, 0.25)).item()).toBe(true)
    const [s, t] = [x.transpose(), y.transpose()]
    expect(mx.arrayEqual(axpby(s, t, 1.5, 0.25), plain(s, t, 1.5, 0.25)).item()).toBe(true)
  })

  test("operands that nobody needs any more, of which the result may take the memory", () => {
    const [x, y] = [wave([20, 30], 0.7), wave([20, 30], 0.3)]
    for (const dtype of [mx.float32, mx.float64, mx.bfloat16]) {
      if (backend === "metal" && dtype === mx.float64) continue
      const [a, b] = [x.astype(dtype), y.astype(dtype)]
      mx.eval(a, b)
      const want = plain(a.exp(), b, 2.3, -0.7)
      /** Of a new array, which is given up before anything is computed. */
      const given = (f: (e: mx.Array) => mx.Array): mx.Array => {
        const e = a.exp()
        const result = f(e)
        e.dispose()
        return result
      }
      same(
        given((e) => axpby(e, b, 2.3, -0.7)),
        want,
      )
      same(
        given((e) => axpby(b, e, -0.7, 2.3)),
        want,
      )
      same(
        given((e) => axpby(e, e, 1, 2)),
        plain(a.exp(), a.exp(), 1, 2),
      )
      same(
        given((e) => axpby(e, b.index("::-1"), 2.3, -0.7)),
        plain(a.exp(), b.index("::-1"), 2.3, -0.7),
      )
      same(axpby(a.exp().transpose(), b.transpose(), 2.3, -0.7), want.transpose())
    }
  })

  test("gradients by both arguments, and where only one is asked for", () => {
    const [x, y, g] = [wave([2, 3], 1), wave([3], 2), wave([2, 3], 3)]
    const f = (a: mx.Array, b: mx.Array) => axpby(a, b, 4, -2)
    const [, [dx, dy]] = vjp(f, [x, y], [g])
    same(dx, g.multiply(4))
    same(dy, g.multiply(-2).sum(0))
    same(grad((a: mx.Array) => f(a, y).sum())(x), mx.full([2, 3], 4))
    same(grad((b: mx.Array) => f(x, b).sum())(y), mx.full([3], -4))
    const cube = (a: mx.Array) => axpby(a.power(3), a, 2, 5).sum()
    expect(grad((a: mx.Array) => grad(cube)(a).sum())(mx.array([2])).tolist()).toEqual([24])
  })

  test("tangents of every subset of the arguments", () => {
    const [x, y, dx, dy] = [1, 2, 3, 4].map((step) => wave([2, 3], step))
    const f = (a: mx.Array, b: mx.Array) => axpby(a, b, 4, -2)
    same(jvp(f, [x, y], [dx, dy])[1][0], plain(dx, dy, 4, -2))
    same(jvp((a: mx.Array) => f(a, y), [x], [dx])[1][0], dx.multiply(4))
    same(jvp((b: mx.Array) => f(x, b), [y], [dy])[1][0], dy.multiply(-2))
  })

  test("batches along any axes, and of one argument alone", () => {
    const [x, y] = [wave([3, 4, 2], 1), wave([4, 3], 2)]
    const f = (a: mx.Array, b: mx.Array) => axpby(a, b, 2, 3)
    same(vmap(f, { inAxes: [2, null] })(x, y.transpose()), plain(mx.moveaxis(x, 2, 0), y.transpose(), 2, 3))
    same(vmap(f, { inAxes: [0, 1] })(x.index("...", 0), y), plain(x.index("...", 0), y.transpose(), 2, 3))
    same(
      vmap(f, { inAxes: [null, 0] })(x.index(0, 0), mx.stack([x.index(1, 1), x.index(2, 2)])),
      plain(x.index(0, 0), mx.stack([x.index(1, 1), x.index(2, 2)]), 2, 3),
    )
    same(
      vmap(grad((a: mx.Array) => f(a, mx.array(1)).square()))(mx.array([1, 2])),
      mx
        .array([2, 2])
        .multiply(mx.array([5, 7]))
        .multiply(2),
    )
  })

  test("compiles, with its gradient", () => {
    const f = (a: mx.Array, b: mx.Array) => axpby(a.exp(), b, 0.5, 2).sum()
    const [x, y] = [wave([4, 5], 1), wave([5], 2)]
    const compiled = compile((a: mx.Array, b: mx.Array) => [f(a, b), grad(f)(a, b)] as const)
    for (let i = 0; i < 2; i++) {
      const [value, gradient] = compiled(x, y)
      expect(mx.allclose(value, f(x, y)).item()).toBe(true)
      expect(mx.allclose(gradient, x.exp().multiply(0.5)).item()).toBe(true)
    }
  })
})

test.each(backends.slice(1))("the %s backend runs its kernel", (backend) => {
  use(backend)
  const [x, y] = [
    mx.array([
      [1, 2],
      [3, 4],
    ]),
    mx.array([5, 6]),
  ]
  mx.eval(axpby(x, x, 1, 2), axpby(x.transpose(), y, 1, 2))
  expect(mx.backendStats()).toEqual({})
})

test.runIf(withMetal)("what has no kernel runs by its decomposition", () => {
  use("metal")
  const x = mx.array([1, 2], mx.float64)
  expect(axpby(x, x, 1, 1).tolist()).toEqual([2, 4])
  expect(mx.backendStats().metal[NAME].decomposed).toBe(1)
})

test.runIf(withMetal)("complex numbers have a kernel on Metal", () => {
  use("metal")
  const x = mx.complex64([mx.complex(1, 2)])
  expect(axpby(x, x, 1, 1).tolist()).toEqual([mx.complex(2, 4)])
  expect(mx.backendStats().metal).toBeUndefined()
})

test.runIf(withMetal)("factors go by position or by name, and a stream beside them", () => {
  const [x, y] = [mx.array([1]), mx.array([2])]
  same(axpby(x, y, { alpha: 3, beta: 4 }), mx.array([11]))
  same(axpby(x, y, 3, 4, { stream: mx.gpu }), mx.array([11]))
})

test("what is refused", () => {
  const x = mx.ones([2, 3])
  expect(() => axpby(x, mx.ones([2]), 1, 1)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [axpby] shapes (2, 3) and (2,) cannot be broadcast: 3 and 2 differ and neither is 1]`,
  )
  expect(() => axpby(x, x, "1" as never, 1)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [axpby] alpha must be a number, received the string "1"]`,
  )
  expect(() => axpby(x, x, { alpha: 1 } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [axpby] needs beta: expected a number, received nothing]`,
  )
  expect(() => axpby(x, x, { alpha: 1, betta: 1 } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [axpby] has no parameter "betta"; it takes x, y, alpha, beta, stream. Did you mean "beta"?]`,
  )
  expect(() => axpby("x" as never, x, 1, 1)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [axpby] x must be an array or a scalar, received the string "x". mx.array(data) makes an array]`,
  )
})
