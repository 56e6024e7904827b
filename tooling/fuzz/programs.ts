/**
 * Random programs over several inputs of several dtypes and sizes, empty and large ones too, with views, broadcasts, updates in place:
 * lazily, step by step, compiled, for any sizes and from a file they give the same bits, and older values stay; each step gives
 * what the reference gives for the same arguments, and a batch what a loop gives; derivatives are those of differences.
 */
import { rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import "@lazuli/backend-cpu"
import { compile, exportFunction, importFunction } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { setBackend } from "@lazuli/core/engine"
import { jvp, vjp, vmap } from "@lazuli/transforms"
import fc from "fast-check"
import { Finding, type Fuzzer, internalText } from "./fuzzer"
import { type Choice, choose, type Operation, type Steps, type Value } from "./program-operations"
import { bitsOf, differenceOf, farOf, type Seen } from "./program-values"

// A program is traced for many sizes here.
process.removeAllListeners("warning")
process.on("warning", () => {})

const file = join(tmpdir(), `lazuli-fuzz-${process.pid}.lazuli`)
process.on("exit", () => rmSync(file, { force: true }))

const inputs: readonly (readonly string[])[] = [["b", "m"], ["m", "n"], ["n"], ["b", "1", "m"], []]
const dtypes = [
  mx.float32,
  mx.float16,
  mx.bfloat16,
  mx.int32,
  mx.float64,
  mx.uint8,
  mx.bool_,
  mx.int64,
  mx.complex64,
  mx.int8,
  mx.uint32,
]
const sizes = [3, 4, 5, 1, 2, 8, 0, 17, 33, 64]
const LARGE = 5000
/** Elements that a step may give: the reference computes it too. */
const MOST_ELEMENTS = 40_000

type Sizes = Readonly<Record<string, number>>
type Function = (...xs: mx.Array[]) => mx.Array[]

/** A step as it was taken. */
interface Step {
  readonly operation: Operation
  readonly args: readonly mx.Array[]
  readonly k: number
  readonly result: mx.Array
  readonly shown: string
}

interface Program {
  readonly steps: Steps
  readonly dtypes: readonly number[]
  readonly outputs: readonly number[]
  readonly sizes: readonly [Sizes, Sizes]
  /** Inputs are views of larger arrays. */
  readonly viewed: boolean
  /** Steps that would give too many elements for some of the sizes, and are left out for all. */
  readonly large?: Set<Steps[number]>
  /** Only operations that have derivatives, in float64. */
  readonly smooth: boolean
  /** The inputs that were made, by sizes and offset: nothing may change them. */
  readonly made: Map<Sizes, Map<number, mx.Array[]>>
  /** The choices of each step, as soon as no further one is left out. */
  chosen?: (Choice | null)[]
}

function arraysFor(program: Program, of: Sizes, offset = 0): readonly mx.Array[] {
  let made = program.made.get(of)
  if (!made) program.made.set(of, (made = new Map()))
  let arrays = made.get(offset)
  if (!arrays) made.set(offset, (arrays = makeArrays(program, of, offset)))
  return arrays
}

function makeArrays(program: Program, of: Sizes, offset: number): mx.Array[] {
  return inputs.map((axes, n) => {
    const shape = axes.map((axis) => of[axis])
    const count = shape.reduce((p, q) => p * q, 1)
    const dtype = program.smooth ? mx.float64 : dtypes[program.dtypes[n] % dtypes.length]
    const numbers = Array.from({ length: count }, (_, i) => 2 * Math.sin(1.7 * i + n + offset))
    const isInexact = dtype.kind === "floating" || dtype.kind === "complex"
    const made = mx
      .array(Float64Array.from(isInexact ? numbers : numbers.map((x) => Math.abs(Math.round(x)))))
      .astype(dtype)
      .reshape(shape)
    if (!program.viewed || shape.length === 0) return made
    // Every second element of the reverse of a wider array, begun at its second.
    const wide = mx.repeat(made, 2, -1).index("...", "::-1")
    const view = mx
      .concatenate([wide.index("...", ":1"), wide], -1)
      .index("...", "1:")
      .index("...", "::-2")
    mx.eval(view)
    return view
  })
}

/** Runs the steps; what is chosen depends on dtypes and names of sizes, not on sizes. */
function functionOf(program: Program, taken?: Step[]): Function {
  return (...given) => {
    const values: Value[] = given.map((array, i) => ({ array, axes: inputs[i], dtype: array.dtype }))
    for (const [at, step] of program.steps.entries()) {
      let chosen = program.chosen?.[at]
      if (chosen === undefined) {
        chosen = choose(values, step)
        if (program.chosen) program.chosen[at] = chosen
      }
      if (!chosen || (program.smooth && chosen.operation.jumps)) continue
      const { operation, k } = chosen
      if (program.large?.has(step)) continue
      const [a, b] = [values[chosen.a], values[chosen.b]]
      const array = operation.run(a.array, b.array, k)
      const axes = operation.axes(a.axes, b.axes, k)
      const args = operation.with ? [a.array, b.array] : [a.array]
      const names = operation.with ? `v${chosen.a}, v${chosen.b}` : `v${chosen.a}`
      const shown = `v${values.length} = ${operation.name}(${names}; ${k}): ${array.dtype.name}[${axes}]`
      // A look at sizes, which files for any sizes refuse: only while steps are chosen.
      if (!program.chosen && array.size > MOST_ELEMENTS) program.large?.add(step)
      taken?.push({ operation, args, k, result: array, shown })
      values.push({ array, axes, dtype: array.dtype })
    }
    const made = values.length - inputs.length
    return program.outputs.map(
      (o, i) => values[i === 0 || made === 0 ? values.length - 1 : o % values.length].array,
    )
  }
}

const sizesOf = fc.tuple(fc.nat(99), fc.nat(99), fc.nat(99), fc.nat(60)).map(([b, m, n, large]): Sizes => {
  const size = (i: number): number => sizes[i % sizes.length]
  return large === 1 ? { b: 2, m: 3, n: LARGE, 1: 1 } : { b: size(b), m: size(m), n: size(n), 1: 1 }
})

const programs: fc.Arbitrary<Program> = fc
  .record({
    steps: fc.array(fc.tuple(fc.nat(400), fc.nat(200), fc.nat(200), fc.nat(11)), {
      minLength: 1,
      maxLength: 14,
    }),
    dtypes: fc.tuple(...inputs.map(() => fc.nat(dtypes.length - 1))),
    outputs: fc.array(fc.nat(200), { minLength: 1, maxLength: 3 }),
    sizes: fc.tuple(sizesOf, sizesOf),
    viewed: fc.boolean(),
    smooth: fc.nat(3).map((n) => n === 3),
  })
  .map((drawn) => {
    const program: Program = { ...drawn, large: new Set(), made: new Map() }
    return Object.assign(program, { [fc.toStringMethod]: () => showOf(program) })
  })

function showOf(program: Program): string {
  const taken: Step[] = []
  try {
    functionOf(program, taken)(...arraysFor(program, program.sizes[0]))
  } catch {
    // Up to where it was refused.
  }
  const { viewed, sizes, smooth } = program
  const given = inputs.map((axes, i) => `${(smooth ? mx.float64 : dtypes[program.dtypes[i]]).name}[${axes}]`)
  const head = `inputs ${given}${viewed ? ", as views" : ""}; sizes ${JSON.stringify(sizes)}`
  const size = program.steps.length === taken.length ? "" : ` (of ${program.steps.length} steps)`
  return [`${head}${size}`, ...taken.map(({ shown }) => shown), `outputs ${program.outputs}`].join("\n")
}

/** Finds what is too large by building the program, without computing it, until nothing is. */
function leaveOutLarge(program: Program): void {
  for (const sizes of program.sizes)
    for (let before = -1; before !== program.large?.size; ) {
      before = program.large?.size ?? 0
      try {
        functionOf(program)(...arraysFor(program, sizes))
      } catch {
        // Refused: nothing further is made.
      }
    }
  program.chosen = []
}

/** The outcome of running: bits, or a refusal. */
function outcomeOf(run: () => readonly mx.Array[]): Seen[] | string {
  try {
    return bitsOf(run())
  } catch (error) {
    if (!(error instanceof mx.LazuliError)) throw new Finding("raw error", String(error), error)
    const internal = internalText(error.message)
    if (internal) throw new Finding("internal text", `${internal}: ${error.message}`, error)
    return error.message
  }
}

const shownOf = (seen: Seen[] | string): string =>
  typeof seen === "string"
    ? seen
    : seen.map(({ kind, elements }) => `${kind} ${Array.from(elements).slice(0, 8)}`).join("; ")

function expectSame(how: string, got: Seen[] | string, want: Seen[] | string): void {
  // The order of several refusals is nobody's business.
  if (typeof want === "string" && typeof got === "string") return
  if (typeof want === "string" || typeof got === "string")
    throw new Finding(`${how}: refused`, `${shownOf(got)}, expected ${shownOf(want)}`)
  const found = differenceOf(got, want)
  if (found) throw new Finding(`${how}: differs`, found)
}

export const programsFuzzer: Fuzzer<Program> = {
  cases: programs,
  seconds: 20,
  attempt(program) {
    leaveOutLarge(program)
    const [first, second] = program.sizes
    const xs = arraysFor(program, first)
    const f = functionOf(program)
    const want = outcomeOf(() => f(...xs))
    stepwise(program, xs, want)
    const compiled = compile((...ys: mx.Array[]) => f(...ys))
    expectSame(
      "compiled",
      outcomeOf(() => compiled(...xs)),
      want,
    )
    expectSame(
      "compiled again",
      outcomeOf(() => compiled(...xs)),
      want,
    )
    anySizes(program, xs, want, second)
    if (typeof want === "string") return "refused"
    batched(program)
    if (program.smooth) differentiated(program, xs)
    return program.smooth ? "smooth" : "ran"
  },
}

/** Each step evaluated before the next, and held to the reference; every value stays what it was. */
function stepwise(program: Program, xs: readonly mx.Array[], want: Seen[] | string): void {
  const taken: Step[] = []
  const kept: { array: mx.Array; seen: Seen; shown: string }[] = []
  const keep = (array: mx.Array, shown: string): void => {
    kept.push({ array, seen: bitsOf([array])[0], shown })
  }
  xs.forEach((x, i) => {
    keep(x, `v${i}`)
  })
  // Pushing evaluates: the next step then has values.
  const watched = Object.assign([] as Step[], {
    push: (step: Step) => {
      mx.eval(step.result)
      keep(step.result, step.shown)
      return taken.push(step)
    },
  })
  const got = outcomeOf(() => functionOf(program, watched)(...xs))
  // A value that nobody asks for is refused only where each step is computed.
  if (typeof got === "string") return
  expectSame("stepwise", got, want)
  for (const { array, seen, shown } of kept) {
    const found = differenceOf(bitsOf([array]), [seen])
    if (found) throw new Finding("older value changed", `${shown}: ${found}`)
  }
  for (const { operation, args, k, result, shown } of taken) {
    const reference = onReference(() => operation.run(args[0], args[1] ?? args[0], k))
    const found = farOf(result, reference, args)
    if (found) throw new Finding(`reference: ${operation.name}`, `${shown}: ${found}`)
  }
}

function onReference(run: () => mx.Array): mx.Array {
  setBackend("reference", "cpu")
  try {
    const made = run()
    mx.eval(made)
    return made
  } finally {
    setBackend("cpu", "cpu")
  }
}

/** One program for these sizes and others, and the same from a file. */
function anySizes(program: Program, xs: readonly mx.Array[], want: Seen[] | string, second: Sizes): void {
  const f = functionOf(program)
  const shapeless = compile((...ys: mx.Array[]) => f(...ys), { shapeless: true })
  expectSame(
    "shapeless",
    outcomeOf(() => shapeless(...xs)),
    want,
  )
  if (typeof want === "string") return
  const ys = arraysFor(program, second)
  const elsewhere = outcomeOf(() => f(...ys))
  expectSame(
    "shapeless elsewhere",
    outcomeOf(() => shapeless(...ys)),
    elsewhere,
  )
  if (program.dtypes[0] % 4 !== 0) return
  exportFunction(file, f, [...xs], { shapeless: true })
  const imported = importFunction<mx.Array[], mx.Array[]>(file)
  expectSame(
    "imported",
    outcomeOf(() => imported(...xs)),
    want,
  )
  expectSame(
    "imported elsewhere",
    outcomeOf(() => imported(...ys)),
    elsewhere,
  )
}

/** A batch of two against a loop. */
function batched(program: Program): void {
  const taken: Step[] = []
  const xs = arraysFor(program, program.sizes[0])
  const ys = arraysFor(program, program.sizes[0], 0.3)
  const f = functionOf(program, taken)
  const loop = [f(...xs), f(...ys)]
  const stacked = xs.map((x, i) => mx.stack([x, ys[i]]))
  const run = (): mx.Array[] => vmap(functionOf(program))(...stacked) as mx.Array[]
  const got = outcomeOf(run)
  if (typeof got === "string") throw new Finding("vmap: refused", got)
  // Where values jump, the last bits decide.
  const jumps = taken.some(({ operation }) => operation.jumps || operation.name === "cast")
  run().forEach((y, i) => {
    const expected = mx.stack(loop.map((each) => each[i]))
    const found = jumps
      ? String(y.shape) === String(expected.shape) && y.dtype === expected.dtype
        ? null
        : `${y.dtype.name}[${y.shape}], expected ${expected.dtype.name}[${expected.shape}]`
      : farOf(y, expected, [...xs, ...taken.map(({ result }) => result)])
    if (found) throw new Finding("vmap: differs", found)
  })
}

/** Derivatives in a direction against differences, which are trusted where two of them agree; and both modes against each other. */
function differentiated(program: Program, xs: readonly mx.Array[]): void {
  const f = (...ys: mx.Array[]): mx.Array => functionOf(program)(...ys)[0].astype(mx.float64)
  const y = f(...xs)
  if (y.dtype !== mx.float64) return
  const direction = arraysFor(program, program.sizes[0], 1)
  const weights = mx.sin(mx.arange(y.size).astype(mx.float64)).reshape(y.shape)
  const value = (t: number): number =>
    f(...xs.map((x, i) => x.add(direction[i].multiply(t))))
      .multiply(weights)
      .sum()
      .item() as number
  const slope = (h: number): number => (value(h) - value(-h)) / (2 * h)
  const [, [tangent]] = jvp(f, [...xs], [...direction])
  const forward = tangent.multiply(weights).sum().item() as number
  const [, gradients] = vjp(f, [...xs], [weights])
  const reverse = gradients.reduce((sum, g, i) => sum + (g.multiply(direction[i]).sum().item() as number), 0)
  const near = (a: number, b: number, tolerance: number): boolean =>
    Object.is(a, b) || Math.abs(a - b) <= tolerance * (1 + Math.abs(a) + Math.abs(b))
  if (![forward, reverse].every(Number.isFinite)) return
  if (!near(forward, reverse, 1e-6)) throw new Finding("jvp against vjp", `${forward}, ${reverse}`)
  const [wide, narrow] = [slope(1e-4), slope(1e-5)]
  if (Number.isFinite(narrow) && near(wide, narrow, 1e-5) && !near(narrow, reverse, 1e-3))
    throw new Finding("derivative against differences", `${reverse}, differences ${wide}, ${narrow}`)
}
