/** For tests: a small assembler of command buffers, independent of the package's own encoder. See native/PROTOCOL.md. */
import { native } from "../src/native"

export const dtypes = [
  "bool",
  "uint8",
  "uint16",
  "uint32",
  "uint64",
  "int8",
  "int16",
  "int32",
  "int64",
  "float16",
  "float32",
  "bfloat16",
  "float64",
  "complex64",
] as const
export type DtypeName = (typeof dtypes)[number]
export const code = (name: DtypeName) => dtypes.indexOf(name)
export const itemsize = (name: DtypeName) => [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 2, 8, 8][code(name)]
export const opNames = native.scalarOps()

export type Operand =
  | { id: number; dtype: DtypeName; shape: number[]; strides?: number[]; offset?: number }
  | { bits: bigint; dtype: DtypeName }
export const size = (shape: number[]) => shape.reduce((a, b) => a * b, 1)
export const pair = (low: number, high: number) => BigInt(low >>> 0) | (BigInt(high >>> 0) << 32n)

export function operandWords(o: Operand): bigint[] {
  if ("bits" in o) return [pair(0, code(o.dtype) | (2 << 16)), o.bits]
  const flags = o.strides ? 0 : 1
  return [
    pair(o.id, code(o.dtype) | (o.shape.length << 8) | (flags << 16)),
    BigInt(o.offset ?? 0),
    BigInt(size(o.shape)),
    ...o.shape.map(BigInt),
    ...(o.strides ?? []).map(BigInt),
  ]
}

export function record(opcode: number, words: bigint[]): bigint[] {
  return [pair(opcode, words.length + 1), ...words]
}
export const alloc = (id: number, bytes: number) => record(1, [BigInt(id), BigInt(bytes)])
/** Bytes are those of whole words, but for the last `less`. */
export const data = (id: number, words: readonly bigint[], less = 0) =>
  record(10, [BigInt(id), BigInt(8 * words.length - less), ...words])
export const free = (id: number) => record(2, [BigInt(id)])
export const call = (
  opcode: number,
  id: number,
  inputs: Operand[],
  outputs: Operand[],
  params: bigint[] = [],
) =>
  record(opcode, [
    pair(id, inputs.length),
    BigInt(outputs.length),
    ...[...inputs, ...outputs].flatMap(operandWords),
    ...params,
  ])
export const run = (id: number, inputs: Operand[], outputs: Operand[], params: bigint[] = []) =>
  call(3, id, inputs, outputs, params)
export const map = (id: number, inputs: Operand[], outputs: Operand[]) => call(4, id, inputs, outputs)
export const plan = (id: number, inputs: [number, number][], outputs: [number, number][]) =>
  record(5, [BigInt(id), ...[...inputs, ...outputs].flat().map(BigInt)])

/** Elementwise work on `size` elements; `bits` as in native/PROTOCOL.md. Operands are ids with offsets, or an immediate's bits. */
export const dense = (
  id: number,
  size: number,
  bits: number,
  inputs: (readonly [number, number] | bigint)[],
  output: readonly [number, number],
) =>
  record(9, [
    pair(id, inputs.length),
    pair(size, bits),
    ...inputs.map((each) => (typeof each === "bigint" ? each : pair(...each))),
    pair(...output),
  ])

/** Elementwise work on a kernel's result, and work that makes a kernel's operand; in plans only. */
export const epilogue = (id: number, inputs: Operand[], outputs: Operand[]) => call(7, id, inputs, outputs)
export const prologue = (id: number, inputs: Operand[], outputs: Operand[]) => call(8, id, inputs, outputs)
export const wait = (queue: number, ticket: number) => record(6, [BigInt(queue), BigInt(ticket)])

export type Code = [op: string, dtype: DtypeName, args: number[], bits?: bigint]
/** Registers a scalar program. */
export function program(inputs: DtypeName[], steps: Code[], outputs?: number[]): number {
  const out = outputs ?? [inputs.length + steps.length - 1]
  const words = [inputs.length, steps.length, out.length, ...inputs.map(code)].map(BigInt)
  for (const [op, dtype, args, bits] of steps) {
    words.push(
      BigInt(opNames.indexOf(op)),
      BigInt(code(dtype)),
      ...[0, 1, 2].map((k) => BigInt(args[k] ?? -1)),
      bits ?? 0n,
    )
  }
  return native.registerProgram(new BigInt64Array([...words, ...out.map(BigInt)]))
}
