/**
 * The GGUF format: a header, metadata (key → typed value), descriptions of the tensors, then their bytes at multiples of an
 * alignment. Versions 2 and 3, little-endian. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */

import { copyOut, evalTrees, partsOf } from "../engine/readback"
import {
  bool_,
  type Dtype,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
} from "../graph/dtype"
import { ArgumentError, DTypeError, describe } from "../graph/errors"
import { Array } from "../graph/graph"
import { toDtype } from "../ops/constant"
import { arrayFromStore } from "../ops/creation"
import { ggufNames } from "./element-types"
import {
  asPath,
  type BoundedFile,
  bytesOf,
  bytesOfShape,
  checkDisjoint,
  checkMetadata,
  checkNamed,
  type FilePath,
  normalizeBools,
  quoted,
  writeBeside,
} from "./files"
import { type BlockFormat, blockFormats } from "./gguf-blocks"
import { HeaderReader } from "./gguf-header"

/** A metadata value of a GGUF file: numbers are 0-d arrays, lists of numbers 1-d arrays. */
export type GgufValue = Array | string | string[]

/** The contents of a GGUF file. */
export interface Gguf {
  readonly arrays: Record<string, Array>
  readonly metadata: Record<string, GgufValue>
}

const STRING = 8
const LIST = 9
/** The dtypes of numeric metadata, by type number. */
const valueTypes = new Map<number, Dtype>([
  [0, uint8],
  [1, int8],
  [2, uint16],
  [3, int16],
  [4, uint32],
  [5, int32],
  [6, float32],
  [7, bool_],
  [10, uint64],
  [11, int64],
  [12, float64],
])
const valueTypeOf = new Map([...valueTypes].map(([type, dtype]) => [dtype, type]))
const ALIGNMENT_KEY = "general.alignment"
const MAX_ALIGNMENT = 2 ** 20

function readValue(header: HeaderReader, type: number, key: string): GgufValue {
  if (type === STRING) return header.text()
  const dtype = valueTypes.get(type)
  if (dtype) return readNumbers(header, dtype, [])
  if (type !== LIST) throw header.file.error(`${quoted(key)} has a value of unknown type ${type}`)
  const itemType = header.u32()
  const itemDtype = valueTypes.get(itemType)
  if (!itemDtype && itemType !== STRING)
    throw header.file.error(`${quoted(key)} is a list of type ${itemType}, which is not supported`)
  // A string takes at least the eight bytes of its length.
  const length = header.count(itemDtype ? itemDtype.size : 8, `${quoted(key)} claims a list`)
  if (itemDtype) return readNumbers(header, itemDtype, [length])
  return globalThis.Array.from({ length }, () => header.text())
}

/** An array of numbers; float64 becomes float32, as in MLX. */
function readNumbers(header: HeaderReader, dtype: Dtype, shape: number[]): Array {
  const bytes = header.bytes((shape[0] ?? 1) * dtype.size)
  if (dtype === bool_) normalizeBools(bytes)
  const loaded = arrayFromStore(bytes, shape, dtype)
  return dtype === float64 ? toDtype(loaded, float32) : loaded
}

/** A tensor of a file. */
export interface GgufEntry {
  readonly name: string
  readonly shape: number[]
  /** Exactly one of these is defined: the format of plain or of block-quantized elements. */
  readonly dtype: Dtype | undefined
  readonly blocks: BlockFormat | undefined
  readonly begin: number
  readonly length: number
}

/** Reads and validates one tensor descriptor; `begin` is still relative to the data section. */
function readTensor(header: HeaderReader, alignment: number, formats: typeof blockFormats): GgufEntry {
  const { file } = header
  const name = header.text()
  const what = `tensor ${quoted(name)}`
  const axes = header.u32()
  if (axes > 8) throw file.error(`${what} claims ${axes} axes`)
  // The innermost axis comes first.
  const shape = globalThis.Array.from({ length: axes }, () => header.u64()).reverse()
  const type = header.u32()
  const begin = header.u64()
  const dtype = ggufNames.dtypeOf.get(type)
  const blocks = formats.get(type)
  if (!dtype && !blocks) throw file.error(`${what} has unknown or unsupported type ${type}`)
  if (begin % alignment !== 0) throw file.error(`${what} does not begin at a multiple of ${alignment} bytes`)
  const inner = shape[axes - 1] ?? 1
  if (blocks && (axes === 0 || inner % blocks.elements !== 0))
    throw file.error(
      `${what} of type ${blocks.name} has rows of ${inner}, not a multiple of ${blocks.elements}`,
    )
  const length = blocks
    ? bytesOfShape([...shape.slice(0, -1), inner / blocks.elements], blocks.bytes, file.size)
    : bytesOfShape(shape, (dtype as Dtype).size, file.size)
  if (length === null) throw file.error(`${what} of shape [${shape.join(", ")}] is larger than the file`)
  return { name, shape, dtype, blocks, begin, length }
}

/** The contents of a header. */
export interface GgufHeader {
  readonly metadata: Gguf["metadata"]
  readonly tensors: readonly GgufEntry[]
}

/**
 * Reads the metadata and the descriptions of all tensors.
 * @param formats - the block formats by ggml type
 * @throws FormatError if the header is malformed
 */
export function readGgufHeader(file: BoundedFile, formats = blockFormats): GgufHeader {
  const header = new HeaderReader(file)
  if (file.size < 24 || Buffer.from(header.bytes(4)).toString("latin1") !== "GGUF")
    throw file.error("is not a GGUF file")
  const version = header.u32()
  if (version !== 2 && version !== 3) throw file.error(`has unsupported version ${version}`)
  const tensorCount = header.count(24, "claims a list of tensors")
  const keyCount = header.count(13, "claims metadata")
  const metadata = new Map<string, GgufValue>()
  for (let i = 0; i < keyCount; i++) {
    const key = header.text()
    if (metadata.has(key)) throw file.error(`${quoted(key)} appears twice`)
    metadata.set(key, readValue(header, header.u32(), key))
  }
  const alignment = alignmentOf(metadata.get(ALIGNMENT_KEY))
  if (alignment === null) throw file.error(`has a malformed ${ALIGNMENT_KEY}`)
  const relative = globalThis.Array.from({ length: tensorCount }, () =>
    readTensor(header, alignment, formats),
  )
  const start = Math.ceil(header.position / alignment) * alignment
  const tensors = relative.map((tensor) => ({ ...tensor, begin: start + tensor.begin }))
  for (const { name, begin, length } of tensors)
    if (begin + length > file.size)
      throw file.error(`tensor ${quoted(name)} ends at byte ${begin + length} of ${file.size}`)
  checkDisjoint(file, tensors)
  checkNames(file, tensors)
  return { metadata: Object.fromEntries(metadata), tensors }
}

/** Reads tensors. `take` gives what is kept of each array as soon as it is read. */
export function readGgufTensors(
  file: BoundedFile,
  tensors: readonly GgufEntry[],
  take: (name: string, array: Array) => Array = (_, array) => array,
): Record<string, Array> {
  const arrays = tensors.flatMap((tensor) =>
    readArrays(file, tensor).map(([name, array]) => [name, take(name, array)] as const),
  )
  return Object.fromEntries(arrays)
}

/** Reads all tensors and metadata. @throws FormatError if the file is malformed */
export function readGguf(file: BoundedFile): Gguf {
  const { metadata, tensors } = readGgufHeader(file)
  return { arrays: readGgufTensors(file, tensors), metadata }
}

function alignmentOf(value: GgufValue | undefined): number | null {
  if (value === undefined) return 32
  if (!(value instanceof Array) || value.dtype !== uint32 || value.ndim !== 0) return null
  const alignment = value.item() as number
  return alignment >= 1 && alignment <= MAX_ALIGNMENT ? alignment : null
}

/** The names of a tensor's arrays: its own and, if it stays quantized, those of its scales and biases. */
function namesOf({ name, blocks }: GgufEntry): string[] {
  if (!blocks?.split) return [name]
  const prefix = name.replace(/\.weight$/, "")
  return [name, `${prefix}.scales`, `${prefix}.biases`]
}

function checkNames(file: BoundedFile, tensors: readonly GgufEntry[]): void {
  const known = new Set<string>()
  for (const tensor of tensors)
    for (const name of namesOf(tensor)) {
      if (known.has(name)) throw file.error(`the name ${quoted(name)} appears twice`)
      known.add(name)
    }
}

function readArrays(file: BoundedFile, tensor: GgufEntry): [string, Array][] {
  const { name, shape, dtype, blocks, begin, length } = tensor
  if (!blocks) return [[name, file.readArray(begin, shape, dtype as Dtype)]]
  const data = file.read(begin, length)
  const loaded = blocks.read(data, shape)
  // Some have no biases.
  return loaded.map((array, i) => [namesOf(tensor)[i], array])
}

const word = (n: number): Uint8Array => {
  const out = Buffer.alloc(4)
  out.writeUInt32LE(n)
  return out
}
const long = (n: number): Uint8Array => {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(BigInt(n))
  return out
}
function textBytes(text: string): Uint8Array[] {
  const bytes = Buffer.from(text)
  return [long(bytes.length), bytes]
}

function valueBytes(op: string, key: string, value: unknown): Uint8Array[] {
  if (typeof value === "string") return [word(STRING), ...textBytes(value)]
  if (globalThis.Array.isArray(value) && value.every((item) => typeof item === "string"))
    return [word(LIST), word(STRING), long(value.length), ...value.flatMap(textBytes)]
  if (!(value instanceof Array))
    throw new ArgumentError(
      op,
      `the metadata ${quoted(key)} must be an array, a string or a list of strings, received ${describe(value)}`,
      { hint: "Pass a number as mx.array(3, mx.uint32)" },
    )
  const type = value.dtype === float64 ? undefined : valueTypeOf.get(value.dtype)
  if (type === undefined)
    throw new DTypeError(op, `the metadata ${quoted(key)} cannot have dtype ${value.dtype.name}`)
  if (value.ndim > 1 || value.size === 0)
    throw new ArgumentError(
      op,
      `the metadata ${quoted(key)} must have at most one axis and at least one element, received shape [${value.shape.join(", ")}]`,
    )
  const elements = bytesOf(copyOut(value))
  return value.ndim === 0 ? [word(type), elements] : [word(LIST), word(type), long(value.size), elements]
}

/** A tensor to be written to a file. */
export interface GgufTensor {
  readonly name: string
  readonly shape: readonly number[]
  /** Its ggml type number. */
  readonly type: number
  readonly nbytes: number
  /** Its bytes, in chunks. */
  parts(): Iterable<Uint8Array>
}

/**
 * Saves named arrays and metadata as a GGUF file; the extension `.gguf` is appended if missing. Dtypes: float32, float16, bfloat16,
 * float64, int8, int16, int32, int64. An existing file is replaced atomically.
 * @throws ArgumentError unless `arrays` contains arrays, and `metadata` strings, lists of strings and 0-d or 1-d arrays; DTypeError for
 * another dtype
 * @example
 * mx.saveGguf('/tmp/w.gguf', { w: mx.ones([2]) }, { 'general.name': 'ones' })
 * mx.load('/tmp/w.gguf').w.tolist() // => [1, 1]
 */
export function saveGguf(
  file: FilePath,
  arrays: Readonly<Record<string, Array>>,
  metadata?: Readonly<Record<string, Array | string | readonly string[]>> | null,
): void {
  const op = "saveGguf"
  const path = asPath(op, file, ".gguf")
  const tensors = checkNamed(op, arrays).map(([name, a]): GgufTensor => {
    const type = ggufNames.nameOf.get(a.dtype)
    if (type === undefined)
      throw new DTypeError(op, `${quoted(name)} has dtype ${a.dtype.name}, which the format does not support`)
    if (a.ndim > 8) throw new ArgumentError(op, `${quoted(name)} has ${a.ndim} axes, more than 8`)
    return { name, shape: a.shape, type, nbytes: a.nbytes, parts: () => partsOf(a) }
  })
  const parts = ggufParts(op, tensors, metadata)
  evalTrees(Object.values(arrays))
  writeBeside(op, path, parts)
}

/** The bytes of a GGUF file. */
export function ggufParts(
  op: string,
  tensors: readonly GgufTensor[],
  metadata?: Readonly<Record<string, Array | string | readonly string[]>> | null,
): Iterable<Uint8Array> {
  const values = checkMetadata(op, metadata)
  const head: Uint8Array[] = [Buffer.from("GGUF"), word(3), long(tensors.length), long(values.length)]
  for (const [key, value] of values) head.push(...textBytes(key), ...valueBytes(op, key, value))
  const alignment = alignmentOf((metadata as Record<string, GgufValue> | null)?.[ALIGNMENT_KEY])
  if (alignment === null)
    throw new ArgumentError(op, `${ALIGNMENT_KEY} must be a uint32 from 1 to ${MAX_ALIGNMENT}`)
  const pad = (n: number): number => (alignment - (n % alignment)) % alignment
  let offset = 0
  for (const { name, shape, type, nbytes } of tensors) {
    head.push(
      ...textBytes(name),
      word(shape.length),
      ...[...shape].reverse().map(long),
      word(type),
      long(offset),
    )
    offset += nbytes + pad(nbytes)
  }
  const padding = new Uint8Array(alignment)
  const size = head.reduce((sum, part) => sum + part.length, 0)
  return (function* (): Generator<Uint8Array> {
    yield* [Buffer.concat(head), padding.subarray(0, pad(size))]
    for (const tensor of tensors) {
      yield* tensor.parts()
      yield padding.subarray(0, pad(tensor.nbytes))
    }
  })()
}
