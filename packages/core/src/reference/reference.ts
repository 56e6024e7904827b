/**
 * Runs the semantics in plain TypeScript: scalar programs by interpretation, reference loops on row-major copies.
 * It is the definition that every backend is held to, the fallback for what a backend lacks, and the engine of the reference backend.
 */

import {
  bfloat16,
  bool_,
  complex64,
  type Dtype,
  float16,
  newStore,
  storeWidth,
  type TypedArray,
  viewStore,
} from "../graph/dtype"
import { DTypeError } from "../graph/errors"
import type { Application, HostArray, HostData, Node, Primitive } from "../graph/graph"
import { fromBfloat16Bits, fromFloat16Bits, toBfloat16Bits, toFloat16Bits } from "../graph/half"
import { programOf } from "../graph/primitive"
import type { BinaryOp, Instruction, ScalarProgram, ScalarValue, UnaryOp } from "../graph/scalar-program"
import { broadcastStrides, contiguousStrides, type Shape, type Strides, sizeOf } from "../graph/shape"
import type { Storage } from "../graph/storage"
import { complexBinary, complexUnary, type Pair } from "./complex"
import { scalarFunction } from "./scalar-math"

type Values = { [i: number]: number | bigint; readonly length: number }

/** A work array: float16 and bfloat16 as float32, everything else as stored. */
function newValues(dtype: Dtype, count: number): Values {
  return isHalf(dtype) ? new Float32Array(count) : (newStore(dtype, count) as unknown as Values)
}

const isHalf = (dtype: Dtype): boolean => dtype === float16 || dtype === bfloat16

/** The nearest number that a half dtype holds. */
function halfOf(value: number | bigint, dtype: Dtype): number {
  return dtype === float16 ? fromFloat16Bits(toFloat16Bits(value)) : fromBfloat16Bits(toBfloat16Bits(value))
}

/** Rounds a work array of a half dtype in place, as storing it would. */
function roundHalf(values: Values, dtype: Dtype): void {
  for (let i = 0; i < values.length; i++) values[i] = halfOf(values[i], dtype)
}

/** Calls `visit(i, position)` for each element in row-major order with its position in the storage. */
export function forEachPosition(
  shape: Shape,
  strides: Strides,
  offset: number,
  visit: (i: number, position: number) => void,
): void {
  const n = sizeOf(shape)
  const index = new globalThis.Array<number>(shape.length).fill(0)
  let position = offset
  for (let i = 0; i < n; i++) {
    visit(i, position)
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index[axis]++
      position += strides[axis]
      if (index[axis] < shape[axis]) break
      position -= strides[axis] * shape[axis]
      index[axis] = 0
    }
  }
}

/**
 * The storage's memory as a typed array: itself where it is JavaScript's, a copy where it is native. A view of native memory would
 * keep it until the next turn of the event loop, and synchronous programs have none.
 */
function storeOf(storage: Storage, dtype: Dtype): TypedArray {
  const count = Math.floor(storage.nbytes / dtype.size)
  if (storage.bytes) return viewStore(dtype, storage.bytes as ArrayBuffer, 0, count)
  const copy = new Uint8Array(storage.nbytes)
  if (storage.nbytes > 0) storage.memory.read(storage, 0, copy)
  return viewStore(dtype, copy.buffer, 0, count)
}

/** The elements of an evaluated node, row-major, in a fresh work array, read as if it had the shape `as`. */
function gather(node: Node, as: Shape): Values {
  const { dtype } = node
  const size = sizeOf(as)
  const out = newValues(dtype, size)
  if (size === 0) return out
  const store = storeOf(node.storage as Storage, dtype) as unknown as Values
  const strides = broadcastStrides(node.shape, node.strides ?? contiguousStrides(node.shape), as)
  if (dtype === complex64) {
    forEachPosition(as, strides, node.offset, (i, p) => {
      out[2 * i] = store[2 * p]
      out[2 * i + 1] = store[2 * p + 1]
    })
  } else if (isHalf(dtype)) {
    const decode = dtype === float16 ? fromFloat16Bits : fromBfloat16Bits
    forEachPosition(as, strides, node.offset, (i, p) => {
      out[i] = decode(store[p] as number)
    })
  } else {
    forEachPosition(as, strides, node.offset, (i, p) => {
      out[i] = store[p]
    })
  }
  return out
}

/** Writes a work array into an output's storage, row-major. */
function scatter(values: Values, node: Node): void {
  const { dtype } = node
  const count = sizeOf(node.shape) * storeWidth(dtype)
  const storage = node.storage as Storage
  const elements = storage.bytes ? storeOf(storage, dtype) : newStore(dtype, sizeOf(node.shape))
  const store = elements as unknown as Values
  if (isHalf(dtype)) {
    const encode = dtype === float16 ? toFloat16Bits : toBfloat16Bits
    for (let i = 0; i < count; i++) store[i] = encode(values[i] as number)
  } else if (dtype === bool_) {
    for (let i = 0; i < count; i++) store[i] = values[i] ? 1 : 0
  } else {
    for (let i = 0; i < count; i++) store[i] = values[i]
  }
  if (!storage.bytes && count > 0) storage.memory.write(storage, 0, elements)
}

/** Computes a node by its primitive's semantics, in the host's view of its storages. Decompositions are evaluate.ts's business. */
export function runReference(application: Application): void {
  const primitive = application.primitive
  const outputs = application.outputs ?? [application]
  if (primitive.elementwise) {
    const registers = application.inputs.map((node) =>
      node.storage === null
        ? constantValues(node.dtype, node.params.value as ScalarValue, sizeOf(application.shape))
        : gather(node, application.shape),
    )
    const results = interpret(programOf(application), registers, sizeOf(application.shape))
    for (let i = 0; i < outputs.length; i++) scatter(results[i], outputs[i])
    return
  }
  const { reference } = primitive.rules
  if (!reference) throw new DTypeError(primitive.name, "has no reference implementation that can run here")
  runOnHost(application, reference)
}

/** Computes a node by a loop over typed arrays: row-major inputs, outputs that start as zeros. */
export function runOnHost(
  application: Application,
  loop: NonNullable<Primitive["rules"]["reference"]>,
): void {
  const outputs = application.outputs ?? [application]
  const host = (node: Node, data: Values): HostArray => ({
    shape: node.shape,
    dtype: node.dtype,
    data: data as unknown as HostData,
  })
  // A half result is rounded once, from what the reference computed.
  const results = outputs.map(
    ({ dtype, shape }): Values =>
      isHalf(dtype) ? new Float64Array(sizeOf(shape)) : newValues(dtype, sizeOf(shape)),
  )
  loop(
    application.inputs.map((node) => host(node, gather(node, node.shape))),
    outputs.map((node, i) => host(node, results[i])),
    application.params,
  )
  for (let i = 0; i < outputs.length; i++) scatter(results[i], outputs[i])
}

/** Runs a scalar program over work arrays of `count` elements each; gives its outputs. */
export function interpret(program: ScalarProgram, inputs: readonly Values[], count: number): Values[] {
  const registers = inputs.slice()
  const dtypeOf = (r: number): Dtype =>
    r < program.inputs.length ? program.inputs[r] : program.code[r - program.inputs.length].dtype
  for (const step of program.code) {
    const out = execute(
      step,
      step.args.map((a) => registers[a]),
      step.args.map(dtypeOf),
      count,
    )
    if (isHalf(step.dtype)) roundHalf(out, step.dtype)
    registers.push(out)
  }
  return program.outputs.map((r) => registers[r])
}

function constantValues(dtype: Dtype, value: ScalarValue, count: number): Values {
  const out = newValues(dtype, count)
  for (let i = 0; i < count; i++) {
    if (dtype === complex64) {
      const [re, im] = typeof value === "object" ? [value.re, value.im] : [Number(value), 0]
      out[2 * i] = re
      out[2 * i + 1] = im
    } else out[i] = convert(value as number | bigint | boolean, dtype)
  }
  if (isHalf(dtype)) roundHalf(out, dtype)
  return out
}

/** A value converted as a kernel's cast does: truncation towards zero, wrapping; NaN becomes 0 as an integer. */
function convert(value: number | bigint | boolean, dtype: Dtype): number | bigint {
  // NaN is not zero, so it is true.
  if (dtype.kind === "bool") return Number(value) === 0 ? 0 : 1
  // Here, because the work array would round to float32 first.
  if (isHalf(dtype)) return halfOf(typeof value === "boolean" ? Number(value) : value, dtype)
  if (dtype.size === 8 && (dtype.kind === "signed" || dtype.kind === "unsigned")) {
    if (typeof value === "bigint") return value
    const n = Number(value)
    return Number.isFinite(n) ? BigInt(Math.trunc(n)) : 0n
  }
  if (typeof value === "bigint")
    return dtype.kind === "floating" ? Number(value) : Number(BigInt.asIntN(32, value))
  return Number(value)
}

function execute(
  step: Instruction,
  args: readonly Values[],
  dtypes: readonly Dtype[],
  count: number,
): Values {
  if (step.op === "constant") return constantValues(step.dtype, step.value as ScalarValue, count)
  const out = newValues(step.dtype, count)
  const [x, y] = args
  if (step.op === "cast") castValues(x, dtypes[0], out, step.dtype, count)
  else if (step.op === "complex") {
    for (let i = 0; i < count; i++) {
      out[2 * i] = x[i]
      out[2 * i + 1] = y[i]
    }
  } else if (step.op === "select")
    selectValues(args, out, count * storeWidth(step.dtype), storeWidth(step.dtype))
  else if (dtypes[0] === complex64) executeComplex(step, x, y, out, count)
  else {
    const f = scalarFunction(step.op, dtypes[0]) as ((a: unknown, b?: unknown) => number | bigint) | undefined
    if (!f) throw new DTypeError(step.op, `is not defined for ${dtypes[0].name}`)
    if (y) for (let i = 0; i < count; i++) out[i] = f(x[i], y[i])
    else for (let i = 0; i < count; i++) out[i] = f(x[i])
  }
  if (step.dtype === bool_) for (let i = 0; i < count; i++) out[i] = out[i] ? 1 : 0
  return out
}

function selectValues(args: readonly Values[], out: Values, count: number, width: number): void {
  const [condition, x, y] = args
  for (let i = 0; i < count; i++) out[i] = condition[width === 1 ? i : i >> 1] ? x[i] : y[i]
}

function castValues(x: Values, from: Dtype, out: Values, to: Dtype, count: number): void {
  for (let i = 0; i < count; i++) {
    if (from === complex64) {
      // bool asks whether the number differs from zero; everything else takes the real part.
      out[i] = to === bool_ ? (x[2 * i] === 0 && x[2 * i + 1] === 0 ? 0 : 1) : convert(x[2 * i], to)
    } else if (to === complex64) {
      out[2 * i] = Number(x[i])
    } else out[i] = convert(x[i], to)
  }
}

function executeComplex(
  step: Instruction,
  x: Values,
  y: Values | undefined,
  out: Values,
  count: number,
): void {
  const pair = (v: Values, i: number): Pair => [v[2 * i] as number, v[2 * i + 1] as number]
  const unary = complexUnary[step.op as UnaryOp]
  const binary = complexBinary[step.op as BinaryOp]
  if (!unary && !binary) throw new DTypeError(step.op, "is not defined for complex64")
  for (let i = 0; i < count; i++) {
    const result = y && binary ? binary(pair(x, i), pair(y, i)) : unary?.(pair(x, i))
    if (typeof result === "object") {
      out[2 * i] = result[0]
      out[2 * i + 1] = result[1]
    } else if (result !== undefined) out[i] = result
  }
}

/** Copies elements of any layout to the start of another storage, row-major. */
export function copyElements(source: Node, target: Node): void {
  scatter(gather(source, source.shape), target)
}
