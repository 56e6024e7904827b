/**
 * Elementwise work: a scalar program becomes the source of one kernel, with one thread an element. The source depends on how each
 * input lies in memory, and not on its size: `i` an immediate, `s` one element, `c` row-major like the output, `g` anything else.
 */
import {
  broadcastStrides,
  contiguousStrides,
  type Dtype,
  isContiguous,
  type Node,
  programOf,
  type ScalarProgram,
  type ScalarValue,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Kernel, Place } from "../dispatch"
import { type Family, MAX_ELEMENTS } from "../family"
import { collapse } from "../layout"
import { computeType, METAL_HEADER, metalType } from "../metal-types"
import { MAX_BUFFER_INDEX } from "../msl/lint"
import { bytesOf, constantSource, conversion, expressionFor, functionsFor, rounded } from "../scalar-source"

const GROUP = 256

/** Whether each program can be written in Metal. */
const writable = new Map<string, boolean>()

function isWritable(program: ScalarProgram): boolean {
  let known = writable.get(program.key)
  if (known === undefined) {
    const dtypes = [...program.inputs, ...program.code.map((step) => step.dtype)]
    const dtypeOf = (register: number): Dtype => dtypes[register]
    known =
      dtypes.every((dtype) => metalType(dtype) !== undefined) &&
      program.code.every(
        ({ op, args }) =>
          op === "constant" ||
          op === "cast" ||
          op === "select" ||
          expressionFor(op, dtypeOf(args[0])) !== undefined,
      ) &&
      // One index is left for the layout.
      program.inputs.length + program.outputs.length <= MAX_BUFFER_INDEX
    writable.set(program.key, known)
  }
  return known
}

/** The source of a kernel `map` for a program; `classes` has a letter for each input, `ndim` counts the axes of those with `g`. */
export function mapSource(program: ScalarProgram, classes: string, ndim: number): string {
  const { inputs, code, outputs } = program
  const dtypes = [...inputs, ...code.map((step) => step.dtype)]
  const general = [...classes].map((c, i) => (c === "g" ? i : -1)).filter((i) => i >= 0)
  const parameters = inputs.map((dtype, i) =>
    classes[i] === "i"
      ? `constant ${metalType(dtype)}& x${i} [[buffer(${i})]]`
      : `device const ${metalType(dtype)}* x${i} [[buffer(${i})]]`,
  )
  outputs.forEach((register, k) => {
    parameters.push(`device ${metalType(dtypes[register])}* y${k} [[buffer(${inputs.length + k})]]`)
  })
  const lines: string[] = []
  if (general.length > 0) {
    parameters.push(`constant int* layout [[buffer(${inputs.length + outputs.length})]]`)
    general.forEach((i, k) => lines.push(`int p${i} = layout[${ndim + k * (ndim + 1)}];`))
    lines.push("uint rest = i;")
    for (let axis = ndim - 1; axis >= 0; axis--) {
      lines.push(
        axis === 0
          ? "{ int c = int(rest);"
          : `{ int c = int(rest % uint(layout[${axis}])); rest /= uint(layout[${axis}]);`,
      )
      general.forEach((i, k) => lines.push(`p${i} += c * layout[${ndim + k * (ndim + 1) + 1 + axis}];`))
      lines.push("}")
    }
  }
  inputs.forEach((dtype, i) => {
    const place = { i: `x${i}`, s: `x${i}[0]`, c: `x${i}[i]`, g: `x${i}[p${i}]` }[classes[i]]
    lines.push(`${computeType(dtype)} r${i} = ${computeType(dtype)}(${place});`)
  })
  code.forEach((step, k) => {
    lines.push(
      `${computeType(step.dtype)} r${inputs.length + k} = ${instructionSource(step.op, step.args, dtypes, step.dtype, step.value)};`,
    )
  })
  outputs.forEach((register, k) => lines.push(`y${k}[i] = ${metalType(dtypes[register])}(r${register});`))
  const body = lines.map((line) => `  ${line}\n`).join("")
  return `${METAL_HEADER}${functionsFor(body)}kernel void map(${parameters.join(", ")}, uint i [[thread_position_in_grid]]) {\n${body}}\n`
}

function instructionSource(
  op: ScalarProgram["code"][number]["op"],
  args: readonly number[],
  dtypes: readonly Dtype[],
  dtype: Dtype,
  value: ScalarValue | undefined,
): string {
  const [a, b, c] = args.map((r) => `r${r}`)
  if (op === "constant") return constantSource(value as ScalarValue, dtype)
  if (op === "cast") return conversion(a, dtypes[args[0]], dtype)
  if (op === "select") return `${a} ? ${b} : ${c}`
  const expression = expressionFor(op, dtypes[args[0]]) as (x: string, y: string) => string
  return rounded(expression(a, b), dtype)
}

interface Operand {
  readonly letter: "i" | "s" | "c" | "g"
  readonly argument: Argument
  readonly strides: number[]
  readonly offset: number
}

/** How an input lies in memory, beside an output of `shape`. */
function operandOf(input: Node, shape: readonly number[]): Operand {
  const { dtype } = input
  if (input.storage === null)
    return {
      letter: "i",
      argument: bytesOf(input.params.value as ScalarValue, dtype),
      strides: [],
      offset: 0,
    }
  const own = input.strides ?? contiguousStrides(input.shape)
  const place = (offset: number): Place => ({
    storage: input.storage as Storage,
    offset: offset * dtype.size,
  })
  if (sizeOf(input.shape) === 1) return { letter: "s", argument: place(input.offset), strides: [], offset: 0 }
  const strides = broadcastStrides(input.shape, own, shape)
  return isContiguous(shape, strides)
    ? { letter: "c", argument: place(input.offset), strides, offset: 0 }
    : { letter: "g", argument: place(0), strides, offset: input.offset }
}

/** Adds a program's work over operands; `shape` is the output's. */
export function encodeProgram(
  queue: DispatchQueue,
  op: string,
  program: ScalarProgram,
  inputs: readonly Node[],
  outputs: readonly Node[],
  shape: readonly number[],
): void {
  const size = sizeOf(shape)
  if (size === 0) return
  const operands = inputs.map((input) => operandOf(input, shape))
  const general = operands.filter((o) => o.letter === "g")
  const { shape: axes, strides } = collapse(shape, [
    ...general.map((o) => o.strides),
    contiguousStrides(shape),
  ])
  const ndim = general.length > 0 ? axes.length : 0
  const classes = operands.map((o) => o.letter).join("")
  const kernel: Kernel = {
    key: `map ${classes} ${ndim} ${program.key}`,
    source: () => mapSource(program, classes, ndim),
    name: "map",
  }
  const args: Argument[] = operands.map((o) => o.argument)
  for (const output of outputs)
    args.push({ storage: output.storage as Storage, offset: output.offset * output.dtype.size })
  if (ndim > 0) args.push(Int32Array.from([...axes, ...general.flatMap((o, k) => [o.offset, ...strides[k]])]))
  queue.dispatch({
    op,
    kernel,
    arguments: args,
    writes: outputs.map((o) => o.storage as Storage),
    grid: [size, 1, 1],
    threadgroup: [Math.min(GROUP, size), 1, 1],
  })
}

/** Every elementwise primitive. */
export const elementwise: Family = {
  supports: (node) =>
    sizeOf(node.shape) <= MAX_ELEMENTS &&
    node.inputs.every((n) => n.storage === null || n.storage.nbytes / n.dtype.size <= MAX_ELEMENTS) &&
    isWritable(programOf(node)),
  encode: (node, queue) =>
    encodeProgram(
      queue,
      node.primitive?.name as string,
      programOf(node),
      node.inputs,
      node.outputs ?? [node],
      node.shape,
    ),
}
