/**
 * Random programs under random stacks of transforms. Only the outermost transform is checked, against what it means: a finite difference, a
 * loop, the function itself; so every transform is checked on top of every other. `LAZULI_PROPERTY_RUNS=2000 npx vitest run stacks` looks
 * longer.
 */
import { compile } from "@lazuli/compile"
import { values } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { patience, runs, smoothPrograms } from "../test/random-programs"
import { checkpoint, customFunction, grad, jacfwd, jvp, linearize, vjp, vmap } from "./index"

/** A function whose result has the shape of its argument. */
type Endo = (x: mx.Array) => mx.Array
interface Stacked {
  readonly f: Endo
  readonly shape: readonly number[]
}

const flat = (a: mx.Array): Float64Array => a.toTypedArray() as Float64Array
const dot = (a: mx.Array, b: mx.Array): number => a.multiply(b).sum().item() as number
const direction = (shape: readonly number[], seed: number): mx.Array => values(shape, -1, 1, seed)
const STEP = 1e-5

/** A stack that has outgrown this says nothing any more. */
const tame = (a: mx.Array): boolean => flat(a).every((v) => Math.abs(v) < 1e3)

function expectNear(what: string, got: ArrayLike<number>, want: ArrayLike<number>, tolerance: number): void {
  for (let i = 0; i < want.length; i++)
    if (!(Math.abs(got[i] - want[i]) <= tolerance * (1 + Math.abs(want[i]))))
      expect.fail(`${what}: element ${i} is ${got[i]}, expected ${want[i]}`)
}

/** The change of f along t, by differences of fourth order. Null at a kink or a jump, where differences differ. */
function change(f: Endo, x: mx.Array, t: mx.Array): mx.Array | null {
  const [far, before, here, after, farther] = [-2, -1, 0, 1, 2].map((k) => f(x.add(t.multiply(k * STEP))))
  const slope = (from: mx.Array, to: mx.Array, steps: number): mx.Array =>
    to.subtract(from).divide(steps * STEP)
  const narrow = slope(before, after, 2)
  const size = narrow.abs().max().item() as number
  const near = (a: mx.Array, b: mx.Array, tolerance: number): boolean =>
    (a.subtract(b).abs().max().item() as number) <= tolerance * (1 + size)
  const wide = slope(far, farther, 4)
  if (!near(wide, narrow, 1e-5) || !near(slope(before, here, 1), slope(here, after, 1), 1e-2)) return null
  return narrow.multiply(4).subtract(wide).divide(3)
}

/** A transform of endofunctions, and the check of its result against what it means. */
interface Layer {
  readonly name: string
  shape(shape: readonly number[]): readonly number[]
  apply(inner: Stacked): Endo
  check(inner: Stacked, outer: Endo, x: mx.Array): void
}

const same = (shape: readonly number[]): readonly number[] => shape

/** Derivatives along a direction. */
const pushing = (name: string, apply: (f: Endo, t: mx.Array) => Endo): Layer => ({
  name,
  shape: same,
  apply: ({ f, shape }) => apply(f, direction(shape, 3)),
  check({ f, shape }, outer, x) {
    const want = change(f, x, direction(shape, 3))
    if (want) expectNear(name, flat(outer(x)), flat(want), 1e-5)
  },
})
/** Products with a cotangent. */
const pulling = (name: string, apply: (f: Endo, c: mx.Array) => Endo): Layer => ({
  name,
  shape: same,
  apply: ({ f, shape }) => apply(f, direction(shape, 5)),
  check({ f, shape }, outer, x) {
    const got = outer(x)
    for (const seed of [7, 8]) {
      const t = direction(shape, seed)
      const want = change(f, x, t)
      if (want) expectNear(name, [dot(got, t)], [dot(direction(shape, 5), want)], 1e-5)
    }
  },
})
/** Layers that change nothing. */
const neutral = (name: string, apply: (f: Endo) => Endo): Layer => ({
  name,
  shape: same,
  apply: ({ f }) => apply(f),
  check({ f }, outer, x) {
    expectNear(name, flat(outer(x)), flat(f(x)), 1e-9)
  },
})
const SIZE = 2
const insert = (shape: readonly number[], axis: number): number[] => [
  ...shape.slice(0, axis),
  SIZE,
  ...shape.slice(axis),
]
const mapping = (inAxis: number, outAxis: number): Layer => {
  const axisFor = (axis: number, { length }: readonly number[]): number => Math.min(axis, length)
  return {
    name: `vmap ${inAxis} → ${outAxis}`,
    shape: (shape) => insert(shape, axisFor(inAxis, shape)),
    apply: ({ f, shape }) => {
      const [i, o] = [axisFor(inAxis, shape), axisFor(outAxis, shape)]
      return (x) => vmap(f, { inAxes: i, outAxes: o })(x).moveaxis(o, i)
    },
    check({ f, shape }, outer, x) {
      const axis = axisFor(inAxis, shape)
      const examples = [...x.moveaxis(axis, 0)].map((example) => f(example))
      expectNear(this.name, flat(outer(x)), flat(mx.stack(examples, axis)), 1e-9)
    },
  }
}

const layers: Layer[] = [
  pushing("jvp", (f, t) => (x) => jvp(f, [x], [t])[1][0]),
  pushing("linearize", (f, t) => (x) => linearize(f, [x])[1](t)[0]),
  pushing("jacfwd", (f, t) => (x) => mx.tensordot(jacfwd(f)(x), t, t.ndim)),
  pulling("vjp", (f, c) => (x) => vjp(f, [x], [c])[1][0]),
  pulling("grad", (f, c) => grad((x: mx.Array) => f(x).multiply(c).sum())),
  neutral("checkpoint", (f) => checkpoint(f)),
  neutral("compile", (f) => compile(f)),
  neutral("customFunction", (f) =>
    customFunction((x: mx.Array) => f(x))
      .vjp((x, c) => vjp(f, [x], [c])[1])
      .jvp((x, t) => jvp(f, [x], [t])[1][0]),
  ),
  mapping(0, 0),
  mapping(1, 0),
  mapping(0, 2),
  mapping(9, 1),
]

const stacks = fc.record({
  program: smoothPrograms,
  layers: fc.array(fc.nat(layers.length - 1), { minLength: 1, maxLength: 4 }),
  // Other numbers than the program's second argument and the directions.
  seed: fc.integer({ min: 100, max: 1000 }),
})

describe("random stacks of transforms", () => {
  it("mean what each transform means", { timeout: patience }, () => {
    fc.assert(
      fc.property(stacks, ({ program, layers: chosen, seed }) => {
        const other = values([2, 3], -1, 1, 2)
        let inner: Stacked = { f: (x) => program(x, other), shape: [2, 3] }
        chosen.forEach((n, depth) => {
          const layer = layers[n]
          const outer = { f: layer.apply(inner), shape: layer.shape(inner.shape) }
          if (depth === chosen.length - 1) {
            const x = values(outer.shape, -1, 1, seed)
            const y = outer.f(x)
            expect(y.shape).toEqual(outer.shape)
            expect(y.dtype).toBe(mx.float64)
            if (tame(y)) layer.check(inner, outer.f, x)
          }
          inner = outer
        })
      }),
      runs(500),
    )
  })
})
