/**
 * Elementwise work: a scalar program becomes the body of kernel `map`.
 */

import type { ScalarValue, Storage } from "@lazuli/core/engine"
import { contiguousStrides, type Dtype, type Node, programOf, type ScalarProgram } from "@lazuli/core/engine"
import type { DispatchQueue } from "../dispatch"
import { type Family, isCountable } from "../family"
import { encodeFlat } from "../flat-map"
import { type Body, dispatchMap, type MapInput } from "../map"
import type { ElementBody } from "../map-source"
import { computeType, elementType, metalType } from "../metal-types"
import { MAX_BUFFER_INDEX } from "../msl/lint"
import { bytesOf, constantSource, conversion, expressionFor, instructionFor } from "../scalar-source"

/** By program: true if it can be written in Metal; and where float64 is there too. */
const writable = new Map<string, boolean>()
const wide = new Map<string, boolean>()

/** True if Metal has what a program computes with. */
export const isWritable = (program: ScalarProgram): boolean => canWrite(program, metalType, writable)

function canWrite(
  program: ScalarProgram,
  typeOf: (dtype: Dtype) => string | undefined,
  answers: Map<string, boolean>,
): boolean {
  let known = answers.get(program.key)
  if (known === undefined) {
    const dtypes = [...program.inputs, ...program.code.map((step) => step.dtype)]
    const dtypeOf = (register: number): Dtype => dtypes[register]
    known =
      dtypes.every((dtype) => typeOf(dtype) !== undefined) &&
      program.code.every(
        ({ op, args }) =>
          op === "constant" ||
          op === "cast" ||
          op === "select" ||
          expressionFor(op, dtypeOf(args[0])) !== undefined,
      ) &&
      // One index is left for the layout.
      program.inputs.length + program.outputs.length <= MAX_BUFFER_INDEX
    answers.set(program.key, known)
  }
  return known
}

/** The statements of a program on `a0`, `a1`, …, the registers of its results, and those in the types of memory. */
export function programText(program: ScalarProgram): {
  lines: string[]
  registers: string[]
  results: string[]
} {
  const { inputs, code, outputs } = program
  const dtypes = [...inputs, ...code.map((step) => step.dtype)]
  const lines = inputs.map((dtype, k) => `${computeType(dtype)} r${k} = ${computeType(dtype)}(a${k});`)
  code.forEach((step, k) => {
    lines.push(
      `${computeType(step.dtype)} r${inputs.length + k} = ${instructionSource(step.op, step.args, dtypes, step.dtype, step.value)};`,
    )
  })
  const registers = outputs.map((register) => `r${register}`)
  return { lines, registers, results: outputs.map((k) => `${elementType(dtypes[k])}(r${k})`) }
}

function bodyOf(program: ScalarProgram): ElementBody {
  const { lines, results } = programText(program)
  const { inputs, code, outputs } = program
  const dtypes = [...inputs, ...code.map((step) => step.dtype)]
  return {
    inputs: inputs.map((dtype) => elementType(dtype) as string),
    outputs: outputs.map((register) => elementType(dtypes[register]) as string),
    text: [...lines, ...results.map((value, k) => `o${k} = ${value};`)].join("\n"),
  }
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
  const instruction = instructionFor(op, dtypes[args[0]], dtype) as (x: string, y: string) => string
  return instruction(a, b)
}

const inputOf = ({ storage, dtype, shape, strides, offset, params }: Node): MapInput =>
  storage === null
    ? { bytes: bytesOf(params.value as ScalarValue, dtype), size: dtype.size }
    : { storage, size: dtype.size, shape, strides: strides ?? contiguousStrides(shape), offset }

/** Adds a program's work over operands; `shape` is the output's. */
export function encodeProgram(
  queue: DispatchQueue,
  op: string,
  program: ScalarProgram,
  inputs: readonly Node[],
  outputs: readonly Node[],
  shape: readonly number[],
): void {
  dispatchMap(
    queue,
    op,
    { key: program.key, make: () => bodyOf(program) },
    inputs.map(inputOf),
    outputs.map(({ storage, dtype, offset }) => ({ storage: storage as Storage, size: dtype.size, offset })),
    shape,
  )
}

const bodies = new WeakMap<ScalarProgram, Body>()
function bodyFor(program: ScalarProgram): Body {
  const body = { key: program.key, make: () => bodyOf(program) }
  bodies.set(program, body)
  return body
}

/** Every elementwise primitive. */
export const elementwise: Family = {
  supports: (node) => isCountable(node) && isWritable(programOf(node)),
  encode(node, queue) {
    const program = programOf(node)
    if (queue.flat !== null) {
      const body = bodies.get(program) ?? bodyFor(program)
      if (encodeFlat(queue.flat, program, body, node)) return
    }
    encodeProgram(
      queue,
      node.primitive?.name as string,
      program,
      node.inputs,
      node.outputs ?? [node],
      node.shape,
    )
  },
}

/** The same, where float64 is there too. */
export const wideElementwise: Family = {
  supports: (node) => isCountable(node) && canWrite(programOf(node), elementType, wide),
  encode: elementwise.encode,
}
