/**
 * The safetensors format: the length of the header in eight bytes, a JSON header (name → dtype, shape, byte range; and `__metadata__`),
 * then the tensors' bytes. https://huggingface.co/docs/safetensors
 */

import { evalTrees, partsOf } from "../engine/readback"
import { isList, isPlainObject } from "../graph/args"
import type { Dtype } from "../graph/dtype"
import { ArgumentError, describe } from "../graph/errors"
import type { Array } from "../graph/graph"
import { safetensorsNames } from "./element-types"
import {
  asPath,
  type BoundedFile,
  bytesOfShape,
  checkMetadata,
  checkNamed,
  type FilePath,
  quoted,
  writeBeside,
} from "./files"

/** The largest accepted header, as in the reference implementation. */
const MAX_HEADER = 100_000_000
/** The characters that JSON allows between its tokens. */
const SPACE = [" ", "\t", "\n", "\r"]

/** The contents of a safetensors file. */
export interface Safetensors {
  readonly arrays: Record<string, Array>
  readonly metadata: Record<string, string>
}

/** Where a file holds a tensor. */
export interface StoredTensor {
  readonly name: string
  readonly dtype: Dtype
  readonly shape: readonly number[]
  /** The first of its bytes, counted from the end of the header. */
  readonly begin: number
  readonly length: number
}

/** The header of a safetensors file. */
export interface SafetensorsHeader {
  readonly tensors: readonly StoredTensor[]
  readonly metadata: Record<string, string>
  /** The bytes before those of the tensors. */
  readonly start: number
}

const isSize = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) >= 0

/** Validates one tensor's entry; the data section has `available` bytes. */
function readEntry(file: BoundedFile, name: string, value: unknown, available: number): StoredTensor {
  const what = `tensor ${quoted(name)}`
  if (!isPlainObject(value)) throw file.error(`${what} is described by ${describe(value)}`)
  const { dtype: dtypeName, shape, data_offsets: offsets } = value
  const dtype = safetensorsNames.dtypeOf.get(dtypeName as string)
  if (dtypeName === undefined) throw file.error(`${what} has no dtype`)
  if (!dtype) throw file.error(`${what} has unknown dtype ${describe(dtypeName)}`)
  if (!globalThis.Array.isArray(shape) || !shape.every(isSize))
    throw file.error(
      `${what} has a malformed shape: ${isList(shape) ? "a list of things other than sizes" : describe(shape)}`,
    )
  if (!globalThis.Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    throw file.error(`${what} has malformed data_offsets`)
  const [begin, end] = offsets as [number, number]
  const length = bytesOfShape(shape, dtype.size, available)
  if (begin > end || end > available || end - begin !== length)
    throw file.error(
      `${what} of ${dtype.name} and shape ${JSON.stringify(shape).slice(0, 100)} does not fit the bytes ${begin} to ${end} of ${available}`,
    )
  return { name, dtype, shape, begin, length }
}

/** Rejects duplicate keys, of which JSON.parse would keep the last. `text` is valid JSON. */
function checkKeys(file: BoundedFile, text: string): void {
  const open: Set<string>[] = []
  for (let at = 0; at < text.length; at++) {
    const mark = text[at]
    if (mark === "{") open.push(new Set())
    else if (mark === "}") open.pop()
    if (mark !== '"') continue
    const begin = at++
    while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1
    let next = at + 1
    while (SPACE.includes(text[next])) next++
    if (text[next] !== ":") continue
    const key = JSON.parse(text.slice(begin, at + 1)) as string
    const keys = open[open.length - 1]
    if (keys.has(key)) throw file.error(`${quoted(key)} appears twice`)
    keys.add(key)
  }
}

/** Rejects overlapping tensors and gaps between them, which the format forbids. */
function checkFilled(file: BoundedFile, entries: readonly StoredTensor[], available: number): void {
  let end = 0
  const hole = (to: number) => file.error(`the bytes ${end} to ${to} of ${available} belong to no tensor`)
  for (const { name, begin, length } of entries
    .slice()
    .sort((a, b) => a.begin - b.begin || a.length - b.length)) {
    if (begin < end) throw file.error(`${quoted(name)} and a tensor before it overlap`)
    if (begin > end) throw hole(begin)
    end = begin + length
  }
  if (end < available) throw hole(available)
}

/** Reads the header. @throws FormatError if the file is malformed */
export function readSafetensorsHeader(file: BoundedFile): SafetensorsHeader {
  const length = Number(new DataView(file.read(0, 8).buffer).getBigUint64(0, true))
  if (length > MAX_HEADER || length > file.size - 8)
    throw file.error(`claims a header of ${length} bytes in a file of ${file.size}`)
  let text: string
  let header: unknown
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(file.read(8, length))
    header = JSON.parse(text)
  } catch (cause) {
    throw file.error("the header is not JSON", { cause })
  }
  if (!isPlainObject(header)) throw file.error("the header is not a JSON object")
  checkKeys(file, text)
  const metadata = header.__metadata__ ?? {}
  if (!isPlainObject(metadata) || Object.values(metadata).some((v) => typeof v !== "string"))
    throw file.error("__metadata__ must hold strings")
  const start = 8 + length
  const entries = Object.keys(header)
    .filter((name) => name !== "__metadata__")
    .map((name) => readEntry(file, name, header[name], file.size - start))
  checkFilled(file, entries, file.size - start)
  return { tensors: entries, metadata: metadata as Record<string, string>, start }
}

/** Reads a tensor, or rows `from` to `to` of its first axis. */
export function readTensor(
  file: BoundedFile,
  { start }: SafetensorsHeader,
  { shape, dtype, begin, length }: StoredTensor,
  [from, to]: readonly [from: number, to: number] = [0, shape[0]],
): Array {
  if (shape.length === 0) return file.readArray(start + begin, shape, dtype)
  const row = shape[0] === 0 ? 0 : length / shape[0]
  return file.readArray(start + begin + from * row, [to - from, ...shape.slice(1)], dtype)
}

/**
 * Reads all tensors.
 * @param take - what is kept of each array as soon as it is read, such as a conversion; the array itself by default
 * @throws FormatError if the file is malformed
 */
export function readSafetensors(
  file: BoundedFile,
  take: (name: string, array: Array) => Array = (_, array) => array,
): Safetensors {
  const header = readSafetensorsHeader(file)
  const arrays = header.tensors.map(
    (tensor) => [tensor.name, take(tensor.name, readTensor(file, header, tensor))] as const,
  )
  return { arrays: Object.fromEntries(arrays), metadata: header.metadata }
}

/**
 * Saves named arrays and metadata as a safetensors file; the extension `.safetensors` is appended if missing. An existing file is replaced
 * atomically.
 * @throws ArgumentError unless every value is an array and all metadata are strings
 * @example
 * mx.saveSafetensors('/tmp/w.safetensors', { w: mx.ones([2]) }); mx.load('/tmp/w.safetensors').w.tolist() // => [1, 1]
 */
export function saveSafetensors(
  file: FilePath,
  arrays: Readonly<Record<string, Array>>,
  metadata?: Readonly<Record<string, string>> | null,
): void {
  writeSafetensors("saveSafetensors", asPath("saveSafetensors", file, ".safetensors"), arrays, metadata)
}

/** The same with any extension, for `op`. */
export function writeSafetensors(
  op: string,
  path: string,
  arrays: Readonly<Record<string, Array>>,
  metadata?: Readonly<Record<string, string>> | null,
): void {
  const entries = checkNamed(op, arrays)
  if (Object.hasOwn(arrays, "__metadata__"))
    throw new ArgumentError(op, 'no array can be named "__metadata__"')
  for (const [name, text] of checkMetadata(op, metadata))
    if (typeof text !== "string")
      throw new ArgumentError(op, `the metadata ${quoted(name)} must be a string, received ${describe(text)}`)
  evalTrees(entries.map(([, a]) => a))
  // Widest dtypes first, so that every tensor is aligned to its element size.
  const order = entries.sort(([a, x], [b, y]) => y.dtype.size - x.dtype.size || (a < b ? -1 : 1))
  let offset = 0
  const header: [string, unknown][] = metadata ? [["__metadata__", metadata]] : []
  for (const [name, a] of order) {
    const end = offset + a.nbytes
    header.push([
      name,
      { dtype: safetensorsNames.nameOf.get(a.dtype), shape: a.shape, data_offsets: [offset, end] },
    ])
    offset = end
  }
  const json = Buffer.from(JSON.stringify(Object.fromEntries(header)))
  const text = Buffer.alloc(Math.ceil(json.length / 8) * 8, " ")
  json.copy(text)
  const length = new Uint8Array(8)
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true)
  writeBeside(
    op,
    path,
    (function* (): Generator<Uint8Array> {
      yield length
      yield text
      for (const [, a] of order) yield* partsOf(a)
    })(),
  )
}
