/**
 * The rules of core's primitives: against finite differences in float64, against each other, and against loops.
 */
import { numbers, type Sample, samples, values } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { checkpoint, grad, jvp, vjp, vmap } from "./index"

const STEP = 1e-6

const flat = (a: mx.Array): number[] =>
  globalThis.Array.from(a.astype(mx.float64).toTypedArray() as Float64Array)
const dot = (as: readonly mx.Array[], bs: readonly mx.Array[]): number =>
  as.reduce((sum, a, i) => sum + flat(a).reduce((s, v, k) => s + v * flat(bs[i])[k], 0), 0)
const directions = (xs: readonly mx.Array[], seed: number): mx.Array[] =>
  xs.map((x, i) => values(x.shape, -1, 1, seed + i))
const moved = (xs: readonly mx.Array[], ts: readonly mx.Array[], by: number): mx.Array[] =>
  xs.map((x, i) => x.add(ts[i].multiply(by)))

function expectClose(got: readonly number[], want: readonly number[], tolerance: number): void {
  expect(got.length).toBe(want.length)
  got.forEach((g, i) => {
    if (Math.abs(g - want[i]) > tolerance * (1 + Math.abs(want[i])))
      expect.fail(`element ${i}: ${g}, expected ${want[i]}`)
  })
}

/** (f(x + εt) − f(x − εt)) / 2ε, for every output. */
function difference(
  f: (...xs: mx.Array[]) => mx.Array[],
  xs: readonly mx.Array[],
  ts: readonly mx.Array[],
): number[][] {
  const [after, before] = [f(...moved(xs, ts, STEP)), f(...moved(xs, ts, -STEP))]
  return after.map((y, i) => flat(y.subtract(before[i]).divide(2 * STEP)))
}

describe.each(samples.filter(({ coarse }) => !coarse))("$name", ({ f, inputs, name }: Sample) => {
  const ts = directions(inputs, 11)
  const stopped = name === "stopGradient"

  it("has a jvp that agrees with finite differences, and a vjp that agrees with the jvp", () => {
    const [[y], [t]] = jvp(f, inputs, ts)
    expect(t.dtype).toBe(y.dtype)
    expect(t.shape).toEqual(y.shape)
    const [slope] = difference((...xs) => [f(...xs)], inputs, ts)
    expectClose(flat(t), stopped ? slope.map(() => 0) : slope, 1e-6)
    const c = values(y.shape, -1, 1, 5)
    const [, grads] = vjp(f, inputs, [c])
    grads.forEach((g, i) => {
      expect(g.shape).toEqual(inputs[i].shape)
      expect(g.dtype).toBe(inputs[i].dtype)
    })
    expectClose([dot(grads, ts)], [dot([c], [t])], 1e-9)
  })

  it("has second derivatives", () => {
    if (stopped) return
    const c = values(f(...inputs).shape, -1, 1, 5)
    const gradients = (...xs: mx.Array[]): mx.Array[] => vjp(f, xs, [c])[1]
    const [, curved] = jvp(gradients, inputs, ts)
    const slopes = difference(gradients, inputs, ts)
    curved.forEach((t, i) => {
      expectClose(flat(t), slopes[i], 2e-5)
    })
    // Reverse over reverse, and reverse over forward.
    const twice = vjp(gradients, inputs, ts)[1]
    expectClose([dot(twice, ts)], [dot(curved, ts)], 1e-8)
    const along = (...xs: mx.Array[]): mx.Array => jvp(f, xs, ts)[1][0]
    expectClose([dot(vjp(along, inputs, [c])[1], ts)], [dot(curved, ts)], 1e-8)
  })

  it("has a vmap that agrees with a loop", () => {
    const batches = inputs.map((x) => mx.stack([x, x.multiply(0.9), x.multiply(1.05)]))
    const example = (i: number): mx.Array[] => batches.map((b) => b.index(i))
    const all = vmap(f)(...batches)
    expectClose(flat(all), flat(mx.stack([0, 1, 2].map((i) => f(...example(i))))), 1e-12)
    inputs.forEach((_, which) => {
      const axis = inputs[which].ndim
      const mixed = inputs.map((x, i) => (i === which ? batches[i].moveaxis(0, -1) : x))
      const got = vmap(f, { inAxes: inputs.map((__, i) => (i === which ? axis : null)), outAxes: -1 })(
        ...mixed,
      )
      const want = [0, 1, 2].map((k) => f(...inputs.map((x, i) => (i === which ? example(k)[i] : x))))
      expectClose(flat(got), flat(mx.stack(want, -1)), 1e-12)
    })
    if (stopped) return
    const y = f(...inputs)
    const weight = values(y.shape, -1, 1, 5)
    const loss = (...xs: mx.Array[]): mx.Array =>
      f(...xs)
        .multiply(weight)
        .sum()
    const each = vmap(grad(loss))(...batches)
    expectClose(flat(each), flat(mx.stack([0, 1, 2].map((i) => grad(loss)(...example(i))))), 1e-9)
  })
})

describe("complex derivatives", () => {
  const z = mx.array(numbers(6, -1, 1, 3)).add(mx.array(numbers(6, 0.5, 1, 4)).multiply(mx.complex(0, 1)))
  const w = z.multiply(mx.complex(0.5, -1)).add(1)
  const t = mx.array(numbers(6, -1, 1, 5)).add(mx.array(numbers(6, -1, 1, 6)).multiply(mx.complex(0, 1)))
  const inner = (a: mx.Array, b: mx.Array): number => a.conjugate().multiply(b).real.sum().item() as number
  const index = mx.array([4, 0, 4], mx.int32)
  const functions: [string, (x: mx.Array) => mx.Array][] = [
    ..."exp log log2 log10 log1p sqrt rsqrt square reciprocal abs sign real imag conjugate negative"
      .split(" ")
      .concat("sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh".split(" "))
      .map((name): [string, (x: mx.Array) => mx.Array] => [
        name,
        (mx as unknown as Record<string, (x: mx.Array) => mx.Array>)[name],
      ]),
    ["multiply", (x) => x.multiply(w).multiply(x)],
    ["divide", (x) => w.divide(x)],
    ["matmul", (x) => x.reshape([2, 3]).matmul(w.reshape([3, 2]))],
    ["mixed with real", (x) => x.real.square().multiply(x).add(x.abs())],
    ["cumsum", (x) => mx.cumsum(x.square())],
    ["cumprod", (x) => mx.cumprod(x)],
    ["logcumsumexp", (x) => mx.logcumsumexp(x)],
    ["prod", (x) => x.prod()],
    ["power", (x) => x.power(w).add(w.power(x)).add(x.power(3))],
    ["logaddexp", (x) => mx.logaddexp(x, w)],
    ["softmax", (x) => mx.softmax(x)],
    ["logsumexp", (x) => mx.logsumexp(x)],
    ["mean and var", (x) => x.mean().add(x.var())],
    ["sort", (x) => mx.sort(x).multiply(w)],
    ["max", (x) => x.max().multiply(x)],
    ["cummax", (x) => mx.cummax(x)],
    ["maximum", (x) => mx.maximum(x, w.multiply(-0.3))],
    ["where", (x) => mx.where(x.real.greater(0), x, w)],
    ["gather", (x) => mx.take(x, index).square()],
    ["scatter", (x) => x.at(index).add(x.index("0:3").square())],
    ["scatter by multiplying", (x) => x.at(index).multiply(w.index("0:3").multiply(x.index("3:")))],
    [
      "addmm",
      (x) => mx.addmm(w.reshape([2, 3]), x.reshape([2, 3]), x.index("0:3").broadcastTo([3, 3]), 0.5, 2),
    ],
    ["fft", (x) => mx.fft.fft(x.multiply(x))],
    ["irfft", (x) => mx.fft.irfft(x.multiply(x))],
    ["norm", (x) => mx.linalg.norm(x)],
    ["pad", (x) => mx.pad(x.square(), 1)],
    ["custom", (x) => checkpoint((v: mx.Array) => v.exp().multiply(v.conjugate()))(x)],
    ["cast to real and back", (x) => x.real.astype(mx.complex64).multiply(x)],
  ]
  it.each(functions)("%s", (_name, f) => {
    const h = 1e-2
    const slope = f(z.add(t.multiply(h)))
      .subtract(f(z.subtract(t.multiply(h))))
      .divide(2 * h)
    const [[y], [dy]] = jvp(f, [z], [t])
    expect(slope.subtract(dy).abs().max().item() as number).toBeLessThan(2e-3)
    const c = y.dtype === mx.complex64 ? y.multiply(mx.complex(0.3, 1)).add(1) : y.add(1)
    const [, [g]] = vjp(f, [z], [c])
    expect(g.dtype).toBe(mx.complex64)
    const [a, b] = [inner(g, t), inner(c, dy)]
    expect(Math.abs(a - b)).toBeLessThan(1e-4 * (1 + Math.abs(b)))
    // The gradient of Re(Σ conj(c)·f) has a symmetric derivative, for the product Re(Σ conj(a)·b).
    const gradient = (x: mx.Array): mx.Array => vjp(f, [x], [c])[1][0]
    const u = t.multiply(mx.complex(0.2, 1)).add(0.3)
    const along = (d: mx.Array): mx.Array => jvp(gradient, [z], [d])[1][0]
    const [p, q] = [inner(along(t), u), inner(t, along(u))]
    expect(Math.abs(p - q)).toBeLessThan(1e-3 * (1 + Math.abs(q)))
    const back = vjp(gradient, [z], [t])[1][0]
    expect(Math.abs(inner(back, u) - p)).toBeLessThan(1e-3 * (1 + Math.abs(q)))
    const bend = gradient(z.add(t.multiply(h)))
      .subtract(gradient(z.subtract(t.multiply(h))))
      .divide(2 * h)
    const size = bend.abs().max().item() as number
    expect(bend.subtract(along(t)).abs().max().item() as number).toBeLessThan(1e-2 * (1 + size))
  })
})

it("gives the gradient of a transform that no memory holds", () => {
  const x = mx.ones([4], mx.complex64)
  const [, [slope]] = vjp((z: mx.Array) => mx.fft.irfft(z, 2 ** 40).index(":4"), [x], [mx.ones([4])])
  expect([slope.shape, slope.dtype.name]).toEqual([[4], "complex64"])
})

it("gives the slope of a power where base and exponent are 0", () => {
  const exponents = mx.arange(4)
  const powers = (x: mx.Array) => x.power(exponents).sum()
  expect(vmap(grad(powers))(mx.array([0, 2])).tolist()).toEqual([1, 17])
  expect(grad((x: mx.Array) => x.power(0))(mx.array(0)).item()).toBe(0)
  // ∂²(x^y)/∂x∂y = x^(y−1) + y·x^(y−1)·log x
  const slope = (x: mx.Array, y: mx.Array) => grad((v: mx.Array) => v.power(y))(x)
  expect(grad(slope, { argnums: 1 })(mx.array(2), mx.array(0)).item()).toBe(0.5)
})
