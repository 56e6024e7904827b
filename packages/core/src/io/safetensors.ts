/**
 * The safetensors format: eight bytes that give the length of a JSON header, the header (name → dtype, shape, byte range; and
 * `__metadata__`), then the tensors' bytes. https://huggingface.co/docs/safetensors
 */
import { isPlainObject } from "../args"
import {
  bfloat16,
  bool_,
  complex64,
  type Dtype,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  type TypedArray,
  uint8,
  uint16,
  uint32,
  uint64,
} from "../dtype"
import { ArgumentError, describe, FormatError } from "../errors"
import { Array } from "../graph"
import { arrayFromStore } from "../ops/creation"
import { copyOut, evalTrees } from "../readback"
import { type BoundedFile, bytesOf, writeBeside } from "./files"

/** The largest header that is read: what the format's own library allows. */
const MAX_HEADER = 100_000_000

const names: [string, Dtype][] = [
  ["BOOL", bool_],
  ["U8", uint8],
  ["I8", int8],
  ["U16", uint16],
  ["I16", int16],
  ["U32", uint32],
  ["I32", int32],
  ["U64", uint64],
  ["I64", int64],
  ["F16", float16],
  ["BF16", bfloat16],
  ["F32", float32],
  ["F64", float64],
  ["C64", complex64],
]
/** Eight-bit floats have no dtype here and come as their bytes, as in MLX. */
const dtypeOf = new Map<string, Dtype>([...names, ["F8_E4M3", uint8], ["F8_E5M2", uint8]])
const nameOf = new Map<Dtype, string>(names.map(([name, dtype]) => [dtype, name]))

/** What a safetensors file holds. */
export interface Safetensors {
  readonly arrays: Record<string, Array>
  readonly metadata: Record<string, string>
}

interface Entry {
  readonly dtype: Dtype
  readonly shape: number[]
  readonly begin: number
  readonly length: number
}

const isSize = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) >= 0

/** Checks one tensor's description against the bytes that there are. */
function readEntry(file: BoundedFile, name: string, value: unknown, available: number): Entry {
  const what = `tensor ${JSON.stringify(name.slice(0, 100))}`
  if (!isPlainObject(value)) throw file.error(`${what} is described by ${describe(value)}`)
  const { dtype: dtypeName, shape, data_offsets: offsets } = value
  const dtype = dtypeOf.get(dtypeName as string)
  if (!dtype) throw file.error(`${what} has the unknown dtype ${describe(dtypeName)}`)
  if (!globalThis.Array.isArray(shape) || shape.length > 64 || !shape.every(isSize))
    throw file.error(`${what} has the malformed shape ${JSON.stringify(shape)?.slice(0, 100)}`)
  if (!globalThis.Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    throw file.error(`${what} has malformed data_offsets`)
  const [begin, end] = offsets as [number, number]
  // The product is bounded at every step: sizes may be made to overflow. A zero anywhere makes it zero.
  let length = shape.includes(0) ? 0 : dtype.size
  for (const n of shape) {
    length *= n
    if (length > available) break
  }
  if (begin > end || end > available || end - begin !== length)
    throw file.error(
      `${what} of ${dtype.name} and shape ${JSON.stringify(shape).slice(0, 100)} does not fit the bytes ${begin} to ${end} of ${available}`,
    )
  return { dtype, shape: shape.slice(), begin, length }
}

/** Reads all tensors. @throws FormatError when the file is not what it claims to be */
export function readSafetensors(file: BoundedFile): Safetensors {
  const length = Number(new DataView(file.read(0, 8).buffer).getBigUint64(0, true))
  if (length > MAX_HEADER || length > file.size - 8)
    throw file.error(`claims a header of ${length} bytes in a file of ${file.size}`)
  let header: unknown
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(file.read(8, length)))
  } catch (cause) {
    throw new FormatError(file.op, `${file.path}: the header is no JSON`, { cause })
  }
  if (!isPlainObject(header)) throw file.error("the header is no JSON object")
  const start = 8 + length
  const entries = Object.keys(header)
    .filter((name) => name !== "__metadata__")
    .map((name) => [name, readEntry(file, name, header[name], file.size - start)] as const)
  const arrays = entries.map(([name, { dtype, shape, begin, length: bytes }]) => {
    const data = file.read(start + begin, bytes)
    if (dtype === bool_) for (let i = 0; i < data.length; i++) data[i] = data[i] ? 1 : 0
    return [name, arrayFromStore(data, shape, dtype)] as const
  })
  const metadata = header.__metadata__ ?? {}
  if (!isPlainObject(metadata) || Object.values(metadata).some((v) => typeof v !== "string"))
    throw file.error("__metadata__ must hold strings")
  return { arrays: Object.fromEntries(arrays), metadata: metadata as Record<string, string> }
}

/**
 * Writes arrays by name, and metadata, as a safetensors file; `.safetensors` is added to a name without it. Another file of that name is
 * replaced only once the new one is complete.
 * @throws ArgumentError unless every value is an array and all metadata are strings
 * @example
 * mx.saveSafetensors('/tmp/w.safetensors', { w: mx.ones([2]) }); mx.load('/tmp/w.safetensors').w.tolist() // => [1, 1]
 */
export function saveSafetensors(
  file: string,
  arrays: Readonly<Record<string, Array>>,
  metadata?: Readonly<Record<string, string>> | null,
): void {
  const op = "saveSafetensors"
  if (typeof file !== "string") throw new ArgumentError(op, `file must be a path, received ${describe(file)}`)
  const path = file.endsWith(".safetensors") ? file : `${file}.safetensors`
  for (const [name, a] of Object.entries(arrays)) {
    if (!(a instanceof Array))
      throw new ArgumentError(op, `${JSON.stringify(name)} must be an array, received ${describe(a)}`)
    if (name === "__metadata__") throw new ArgumentError(op, 'no array can be named "__metadata__"')
  }
  for (const [name, text] of Object.entries(metadata ?? {}))
    if (typeof text !== "string")
      throw new ArgumentError(
        op,
        `the metadata ${JSON.stringify(name)} must be a string, received ${describe(text)}`,
      )
  evalTrees(Object.values(arrays))
  // Wide elements first, so that every tensor starts at a multiple of its element's size.
  const order = Object.entries(arrays).sort(
    ([a, x], [b, y]) => y.dtype.size - x.dtype.size || (a < b ? -1 : 1),
  )
  let offset = 0
  const header: [string, unknown][] = metadata ? [["__metadata__", metadata]] : []
  for (const [name, a] of order) {
    const end = offset + a.nbytes
    header.push([name, { dtype: nameOf.get(a.dtype), shape: a.shape, data_offsets: [offset, end] }])
    offset = end
  }
  const json = Buffer.from(JSON.stringify(Object.fromEntries(header)))
  const text = Buffer.alloc(Math.ceil(json.length / 8) * 8, " ")
  json.copy(text)
  const length = new Uint8Array(8)
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true)
  writeBeside(
    path,
    (function* (): Generator<Uint8Array> {
      yield length
      yield text
      for (const [, a] of order) yield bytesOf(copyOut(a) as TypedArray)
    })(),
  )
}
