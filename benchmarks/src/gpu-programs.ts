/**
 * Random programs on the GPU against the CPU, as `npm run fuzz -- programs` makes them: each step on what the CPU gave for the steps before
 * it, and some of them compiled as a whole.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { choose, type Value } from "../../tooling/fuzz/program-operations"
import { farOf } from "../../tooling/fuzz/program-values"

const AXES: readonly (readonly string[])[] = [["b", "m"], ["m", "n"], ["n"], ["b", "1", "m"], []]
const DTYPES = [mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.uint8, mx.bool_, mx.int64, mx.complex64]
const SIZES = [3, 4, 5, 1, 2, 8, 0, 17, 33, 64]
const MOST_STEPS = 7
/** One program in so many is compiled: each has kernels of its own. */
const COMPILED = 20
/** Elements that a step may give. */
const MOST_ELEMENTS = 40_000

/** Numbers from a seed; https://prng.di.unimi.it/splitmix64.c by 32 bits. */
function numbers(seed: number): (below: number) => number {
  let state = seed >>> 0
  return (below) => {
    state = (state + 0x9e3779b9) >>> 0
    let z = state
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad)
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
    return ((z ^ (z >>> 15)) >>> 0) % below
  }
}

const on = <T>(device: mx.Device, body: () => T): T => {
  const before = mx.defaultDevice()
  mx.setDefaultDevice(device)
  try {
    return body()
  } finally {
    mx.setDefaultDevice(before)
  }
}

/** One step of a program that fits its inputs. */
interface Taken {
  readonly at: number
  readonly from: readonly number[]
  run(values: readonly mx.Array[]): mx.Array
  readonly name: string
}

/** The value of an operation; null where it refuses its arguments, such as an empty axis. */
function accepted(run: () => mx.Array): mx.Array | null {
  try {
    const made = run()
    mx.eval(made)
    return made
  } catch (error) {
    if (error instanceof mx.LazuliError) return null
    throw error
  }
}

/** The fault of the program of a seed, which may be compiled too; null where there is none. */
export function problemOf(seed: number, compiles = seed % COMPILED === 0): string | null {
  const below = numbers(seed)
  const sizes: Record<string, number> = { b: 0, m: 0, n: 0 }
  for (const name of Object.keys(sizes)) sizes[name] = SIZES[below(SIZES.length)]
  sizes["1"] = 1
  const values: Value[] = on(mx.cpu, () =>
    AXES.map((axes, n) => {
      const dtype = DTYPES[below(DTYPES.length)]
      const shape = axes.map((axis) => sizes[axis])
      const count = shape.reduce((p, q) => p * q, 1)
      const inexact = dtype.kind === "floating" || dtype.kind === "complex"
      const data = Float64Array.from({ length: count }, (_, i) => 2 * Math.sin(1.7 * i + n))
      const whole = inexact ? data : data.map((x) => Math.abs(Math.round(x)))
      return { array: mx.array(whole).astype(dtype).reshape(shape), axes, dtype }
    }),
  )
  const given = values.map(({ array }) => array)
  const steps: Taken[] = []
  for (let step = 0, most = 1 + below(MOST_STEPS); step < most; step++) {
    const chosen = choose(values, [below(1000), below(1000), below(1000), below(1000)])
    if (!chosen) continue
    const { operation, a, b, k } = chosen
    const from = operation.with ? [a, b] : [a]
    const run = (all: readonly mx.Array[]): mx.Array => operation.run(all[a], all[b], k)
    const arrays = values.map(({ array }) => array)
    const want = on(mx.cpu, () => accepted(() => run(arrays)))
    if (want === null || want.size > MOST_ELEMENTS) continue
    const name = `${operation.name}(${from.map((i) => `${arrays[i].dtype.name}[${arrays[i].shape}]`)}; ${k})`
    const got = on(mx.gpu, () => {
      const made = run(arrays)
      mx.eval(made)
      return made
    })
    const far = on(mx.cpu, () =>
      farOf(
        got,
        want,
        from.map((i) => arrays[i]),
      ),
    )
    if (far) return `seed ${seed}, ${name}: ${far}`
    steps.push({ at: values.length, from, run, name })
    values.push({ array: want, axes: operation.axes(values[a].axes, values[b].axes, k), dtype: want.dtype })
  }
  if (!compiles || steps.length === 0) return null
  const program = (...all: mx.Array[]): mx.Array[] => {
    const made = [...all]
    for (const step of steps) made.push(step.run(made))
    return made.slice(all.length)
  }
  return on(mx.gpu, () => {
    const f = compile(program)
    const want = program(...given)
    mx.eval(want)
    // The third call replays what the second recorded.
    for (let call = 0; call < 3; call++) {
      const got = f(...given)
      mx.eval(got)
      for (const [i, each] of got.entries()) {
        const far = on(mx.cpu, () => farOf(each, want[i], [...given, ...want]))
        if (far)
          return `seed ${seed}, compiled, call ${call}: ${steps.map(({ name }) => name).join("; ")}: ${far}`
      }
    }
    return null
  })
}

/** Runs the programs of some seeds. */
export function checkPrograms(from: number, count: number): { passed: number; problems: string[] } {
  const problems: string[] = []
  for (let seed = from; seed < from + count; seed++) {
    let problem: string | null
    try {
      problem = problemOf(seed)
    } catch (error) {
      problem = `seed ${seed}: ${(error as Error).stack ?? error}`
    }
    if (problem) problems.push(problem)
  }
  return { passed: count - problems.length, problems }
}
