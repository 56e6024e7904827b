/**
 * Every registered primitive differentiates both ways and batches, by its own rules or by derived ones: each is tried as it occurs in the
 * samples and their derivatives, against finite differences, against each other and against a loop. A primitive that no sample
 * reaches fails here.
 */
import {
  type Application,
  applicationsOf,
  discreteSamples,
  functionOf,
  samples,
  values,
} from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { isInexact } from "@lazuli/core/engine"
import { describe, expect, it } from "vitest"
import { jvp, vjp, vmap, vmapLoops } from "./index"

const applications = applicationsOf([...samples, ...discreteSamples])

const flat = (a: mx.Array): number[] => {
  const parts = a.dtype === mx.complex64 ? mx.stack([a.real, a.imag], -1) : a
  return globalThis.Array.from(parts.astype(mx.float64).toTypedArray() as Float64Array)
}
const dot = (a: mx.Array, b: mx.Array): number => {
  const [x, y] = [flat(a), flat(b)]
  return x.reduce((sum, v, i) => sum + (v === 0 || y[i] === 0 ? 0 : v * y[i]), 0)
}
/** Whether a matrix is its own transpose: factorizations that take such matrices read one triangle. */
const isSymmetric = (x: mx.Array): boolean =>
  x.ndim === 2 && x.shape[0] === x.shape[1] && mx.arrayEqual(x, x.T).item() === true
const direction = (x: mx.Array, seed: number): mx.Array => {
  const any = values(x.shape, -1, 1, seed)
  const t = isSymmetric(x) ? any.add(any.T).multiply(0.5) : any
  if (x.dtype !== mx.complex64) return t.astype(x.dtype)
  return t.astype(x.dtype).add(values(x.shape, -1, 1, seed + 1).multiply(mx.complex(0, 1)))
}

function expectClose(what: string, got: mx.Array, want: mx.Array, tolerance: number): void {
  expect([got.shape, got.dtype.name], what).toEqual([want.shape, want.dtype.name])
  const [g, w] = [flat(got), flat(want)]
  w.forEach((v, i) => {
    if (Object.is(g[i], v) || Math.abs(g[i] - v) <= tolerance * (1 + Math.abs(v))) return
    expect.fail(`${what}: element ${i} is ${g[i]}, expected ${v}`)
  })
}

/** The slopes of f at 0, element by element; NaN where the slopes on both sides differ: at a kink, a jump, or beyond what is finite. */
function slopes(f: (h: number) => mx.Array, step: number): number[] {
  const [before, here, after] = [f(-step), f(0), f(step)].map(flat)
  return here.map((v, i) => {
    const [left, right] = [(v - before[i]) / step, (after[i] - v) / step]
    return Math.abs(left - right) <= Math.sqrt(step) * (1 + Math.abs(left)) ? (left + right) / 2 : Number.NaN
  })
}

function differentiates(application: Application): void {
  const { inputs } = application
  const all = functionOf(application)
  const smooth = inputs.flatMap((x, i) => (isInexact(x.dtype) ? [i] : []))
  const outputs = all(...inputs)
  const exact = [...inputs, ...outputs].every((x) => !isInexact(x.dtype) || x.dtype === mx.float64)
  // Of outputs in float32 beside others in float64, the differences say nothing.
  const counted = outputs.flatMap(({ dtype }, i) =>
    isInexact(dtype) && (dtype === mx.float64 || !outputs.some((y) => y.dtype === mx.float64)) ? [i] : [],
  )
  if (smooth.length === 0) return
  const by = (which: readonly number[]) => {
    return (...xs: mx.Array[]): mx.Array[] => {
      const full = inputs.slice()
      which.forEach((k, i) => {
        full[k] = xs[i]
      })
      return all(...full)
    }
  }
  const ts = smooth.map((k) => direction(inputs[k], 7 + 2 * k))
  const cs = outputs.map((y, i) => (counted.includes(i) ? direction(y, 31 + 2 * i) : mx.zerosLike(y)))
  const xs = smooth.map((k) => inputs[k])
  const [, tangents] = jvp(by(smooth), xs, ts)
  const [, grads] = vjp(by(smooth), xs, cs)
  const [step, tolerance] = exact ? [1e-6, 1e-6] : [1e-2, 3e-2]
  for (const i of counted) {
    const at = (h: number): mx.Array => by(smooth)(...xs.map((x, k) => x.add(ts[k].multiply(h))))[i]
    const got = flat(tangents[i])
    slopes(at, step).forEach((slope, k) => {
      if (Number.isNaN(slope) || application.primitive.facts.stopsGradient) return
      // So that NaN is no number close to another.
      if (!(Math.abs(got[k] - slope) <= tolerance * (1 + Math.abs(slope))))
        expect.fail(`jvp: element ${k} of output ${i} is ${got[k]}, expected ${slope}`)
    })
  }
  const near = exact ? 1e-9 : 1e-4
  const forward = counted.reduce((sum, i) => sum + dot(cs[i], tangents[i]), 0)
  const back = grads.reduce((sum, g, k) => sum + dot(g, ts[k]), 0)
  if (Number.isFinite(forward) && !(Math.abs(forward - back) <= near * (1 + Math.abs(forward))))
    expect.fail(`⟨c, J·t⟩ is ${forward}, and ⟨Jᵀ·c, t⟩ ${back}`)
  // By each input alone: the same parts.
  if (smooth.length < 2) return
  smooth.forEach((k, which) => {
    const [, [alone]] = vjp(by([k]), [inputs[k]], cs)
    expectClose(`vjp by input ${k} alone`, alone, grads[which], near)
    const [, parts] = jvp(by([k]), [inputs[k]], [ts[which]])
    const zeroed = xs.map((x, i) => (i === which ? ts[i] : mx.zerosLike(x)))
    const [, whole] = jvp(by(smooth), xs, zeroed)
    for (const i of counted) expectClose(`jvp by input ${k} alone`, parts[i], whole[i], near)
  })
}

/** Another example like `x`: numbers moved a little, everything else reversed. */
const another = (x: mx.Array): mx.Array =>
  isInexact(x.dtype) ? x.multiply(0.9) : x.ndim > 0 ? x.index("::-1") : x

function batches(application: Application): void {
  const { inputs, primitive } = application
  const f = functionOf(application)
  const others = inputs.map(another)
  const exact = inputs.every((x) => !isInexact(x.dtype) || x.dtype === mx.float64)
  const run = (batched: readonly number[], axis: (x: mx.Array) => number): void => {
    const stacked = inputs.map((x, i) => (batched.includes(i) ? mx.stack([x, others[i], x], axis(x)) : x))
    const inAxes = inputs.map((x, i) => (batched.includes(i) ? axis(x) : null))
    const got = vmap(f, { inAxes, outAxes: 0 })(...stacked)
    const examples = [0, 1, 0].map((k) =>
      f(...inputs.map((x, i) => (k === 1 && batched.includes(i) ? others[i] : x))),
    )
    got.forEach((y, i) => {
      const want = mx.stack(examples.map((example) => example[i]))
      expectClose(`vmap over inputs ${batched}`, y, want, exact && y.dtype === mx.float64 ? 1e-10 : 1e-4)
    })
  }
  const every = inputs.map((_, i) => i)
  const before = vmapLoops()[primitive.name]
  run(every, () => 0)
  if (inputs.length > 1) {
    for (const i of every) run([i], (x) => x.ndim)
    for (const i of every)
      run(
        every.filter((k) => k !== i),
        (x) => Math.min(1, x.ndim),
      )
  } else run(every, (x) => x.ndim)
  expect(vmapLoops()[primitive.name], "runs example by example").toBe(before)
}

describe("every primitive", () => {
  it.each(
    mx
      .listPrimitives()
      .filter(({ source }) => source !== "@lazuli/compile")
      .map(({ name }) => name),
  )("%s", (name) => {
    const list = applications.filter(({ primitive }) => primitive.name === name)
    expect(
      list.length,
      "applications in the samples; add one to packages/conformance/src/samples.ts",
    ).toBeGreaterThan(0)
    for (const application of list) {
      const { primitive, inputs, sample } = application
      // Rules that a user states need not be what the function does.
      if (primitive.facts.opaque || inputs.length === 0) continue
      try {
        differentiates(application)
        batches(application)
      } catch (error) {
        const kinds = inputs.map((x) => `${x.dtype.name}[${x.shape}]`)
        ;(error as Error).message +=
          `\nin ${name}(${kinds.join(", ")}) ${JSON.stringify(application.params)} of the sample "${sample}"`
        throw error
      }
    }
  })
})
