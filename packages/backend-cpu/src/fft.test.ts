import "./index"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

const { fft } = mx
type Line = (i: number) => number
/** The definition, in float64. */
function definition(n: number, re: Line, im: Line): { re: Float64Array; im: Float64Array } {
  const angles = Float64Array.from({ length: n }, (_, k) => (2 * Math.PI * k) / n)
  const [cos, sin] = [angles.map(Math.cos), angles.map(Math.sin)]
  const out = { re: new Float64Array(n), im: new Float64Array(n) }
  for (let k = 0; k < n; k++) {
    for (let j = 0; j < n; j++) {
      const w = (j * k) % n
      out.re[k] += re(j) * cos[w] + im(j) * sin[w]
      out.im[k] += im(j) * cos[w] - re(j) * sin[w]
    }
  }
  return out
}
const store = (a: mx.Array): Float32Array => a.toTypedArray() as Float32Array

/** The distance of complex results from the true ones, by their norm. */
function distance(
  got: Float32Array,
  at: number,
  want: { re: Float64Array; im: Float64Array },
  count: number,
): number {
  let [error, size] = [0, 1e-300]
  for (let k = 0; k < count; k++) {
    error += (got[at + 2 * k] - want.re[k]) ** 2 + (got[at + 2 * k + 1] - want.im[k]) ** 2
    size += want.re[k] ** 2 + want.im[k] ** 2
  }
  return Math.sqrt(error / size)
}

// Every radix, products of them, primes that go by way of convolutions, lengths that are split, and what lies between.
const lengths = [
  ...globalThis.Array.from({ length: 41 }, (_, i) => i + 1),
  49,
  60,
  64,
  74,
  77,
  96,
  97,
  121,
  128,
  143,
  210,
  256,
  289,
  360,
  509,
  512,
  600,
  841,
  997,
  1000,
  1018,
  1024,
  1331,
  2048,
]
test.each([1, 3, 16, 21])("%i lines of any length", (lines) => {
  mx.random.seed(lines)
  const worst = { complex: 0, inverse: 0, real: 0, double: 0, back: 0 }
  for (const n of lines > 1 ? lengths.filter((length) => length < 300) : lengths) {
    const z = mx.random.normal([lines, n], mx.complex64)
    const x = z.real
    const h = Math.floor(n / 2) + 1
    const [zs, xs] = [store(z), store(x)]
    const outputs = [
      fft.fft(z),
      fft.ifft(z, { norm: "forward" }),
      fft.rfft(x),
      fft.rfft(x.astype(mx.float64)),
    ].map(store)
    const back = store(fft.irfft(fft.rfft(x), n))
    for (const line of new Set([0, lines - 1])) {
      const re: Line = (i) => zs[2 * (line * n + i)]
      const im: Line = (i) => zs[2 * (line * n + i) + 1]
      const want = definition(n, re, im)
      worst.complex = Math.max(worst.complex, distance(outputs[0], 2 * line * n, want, n))
      // The inverse exchanges real and imaginary parts on both sides.
      const swapped = definition(n, im, re)
      const inverse = { re: swapped.im, im: swapped.re }
      worst.inverse = Math.max(worst.inverse, distance(outputs[1], 2 * line * n, inverse, n))
      const half = definition(
        n,
        (i) => xs[line * n + i],
        () => 0,
      )
      worst.real = Math.max(worst.real, distance(outputs[2], 2 * line * h, half, h))
      worst.double = Math.max(worst.double, distance(outputs[3], 2 * line * h, half, h))
    }
    worst.back = xs.reduce((w, v, i) => Math.max(w, Math.abs(v - back[i])), worst.back)
  }
  expect(worst.complex).toBeLessThan(4e-7)
  expect(worst.inverse).toBeLessThan(4e-7)
  expect(worst.real).toBeLessThan(4e-7)
  expect(worst.double).toBeLessThan(7e-8)
  expect(worst.back).toBeLessThan(4e-6)
})

/** The same computation on the reference. */
function onReference(f: () => mx.Array): Float32Array {
  mx.setBackend("reference")
  try {
    return store(f())
  } finally {
    mx.setBackend("cpu")
  }
}

test("axes, layouts and batches agree with the reference", () => {
  const shape = [5, 18, 4, 7]
  const count = shape.reduce((a, b) => a * b, 1)
  const data = Float32Array.from({ length: 4 * count }, (_, i) => Math.sin(i * i))
  const views: ((x: mx.Array) => mx.Array)[] = [
    (x) => x.index(":5"),
    (x) => x.index(":5").transpose(),
    (x) => x.index("::2"),
    (x) => x.index("4::-1", "...", "::-1"),
    (x) => x.index(0).broadcastTo([3, 18, 4, 7]),
    (x) => x.transpose([2, 0, 3, 1]),
  ]
  for (const view of views) {
    for (const axes of [[0], [1], [3], [1, 2], [3, 1], [0, 1, 2, 3]]) {
      const build = (kind: (x: mx.Array) => mx.Array) => () =>
        kind(view(mx.array(data.slice(0, 2 * count)).reshape([10, 18, 4, 7])))
      const kinds: ((x: mx.Array) => mx.Array)[] = [
        (x) => fft.fftn(x.astype(mx.complex64).multiply(mx.complex(1, 2)), { axes }),
        (x) => fft.ifftn(x.astype(mx.complex64).multiply(mx.complex(1, 2)), { axes, norm: "ortho" }),
        (x) => fft.rfftn(x, { axes }),
        (x) => fft.rfftn(x.astype(mx.float64), { axes }),
        (x) => fft.irfftn(x.astype(mx.complex64).multiply(mx.complex(1, 2)), { axes }),
      ]
      for (const kind of kinds) {
        const [got, want] = [store(build(kind)()), onReference(build(kind))]
        const size = want.reduce((m, v) => Math.max(m, Math.abs(v)), 1e-30)
        const worst = want.reduce((m, v, i) => Math.max(m, Math.abs(v - got[i])), 0)
        expect(got.length).toBe(want.length)
        expect(worst / size).toBeLessThan(2e-6)
      }
    }
  }
})

test("long lines, and what threads share, come back as they were", () => {
  mx.random.seed(1)
  for (const n of [1 << 16, 60000, 65537, 2 * 30011]) {
    const x = mx.random.normal([n])
    const there = fft.fft(x)
    const energy = store(there).reduce((s, v) => s + v * v, 0) / n
    expect(energy / (x.square().sum().item() as number)).toBeCloseTo(1, 4)
    expect(store(fft.ifft(there).real.subtract(x).abs().max())[0]).toBeLessThan(1e-5)
    expect(store(fft.irfft(fft.rfft(x), n).subtract(x).abs().max())[0]).toBeLessThan(1e-5)
  }
  // One frequency, known in closed form.
  const n = 1 << 17
  const wave = mx
    .arange(n)
    .multiply(2 * Math.PI * (5 / n))
    .cos()
  const peak = store(fft.rfft(wave).abs())
  expect(peak[5] / (n / 2)).toBeCloseTo(1, 4)
  const image = mx.random.normal([256, 300], mx.complex64)
  expect(store(fft.ifft2(fft.fft2(image)).subtract(image).abs().max())[0]).toBeLessThan(1e-5)
  expect(mx.backendStats()).toEqual({})
})

test("NaN and infinity stay in their line", () => {
  const x = mx.ones([3, 8])
  x.set([1, 2], Number.NaN)
  const y = store(fft.rfft(x))
  expect(y.slice(0, 10).every(Number.isFinite)).toBe(true)
  expect(y.slice(10, 20).some(Number.isNaN)).toBe(true)
  expect(y.slice(20).every(Number.isFinite)).toBe(true)
})
