/**
 * NumPy's formats: one array (.npy), or several by name in a ZIP archive (.npz). Format 1.0 to 3.0:
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 */
import { deflateRawSync, inflateRawSync } from "node:zlib"
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
  uint8,
  uint16,
  uint32,
  uint64,
} from "../dtype"
import { ArgumentError, describe, FormatError } from "../errors"
import { Array } from "../graph"
import { arrayFromStore } from "../ops/creation"
import { transpose } from "../ops/view"
import { copyOut, evalTrees } from "../readback"
import { bytesOf, writeBeside } from "./files"

const MAX_HEADER = 65536
const codes: [string, Dtype][] = [
  ["b1", bool_],
  ["u1", uint8],
  ["u2", uint16],
  ["u4", uint32],
  ["u8", uint64],
  ["i1", int8],
  ["i2", int16],
  ["i4", int32],
  ["i8", int64],
  ["f2", float16],
  ["f4", float32],
  ["f8", float64],
  ["c8", complex64],
  // NumPy has no bfloat16: its two bytes travel as an opaque type.
  ["V2", bfloat16],
]
const dtypeOf = new Map(codes)
const codeOf = new Map(codes.map(([code, dtype]) => [dtype, code]))

/** The array that the bytes of an .npy file hold. @throws FormatError */
export function parseNpy(op: string, source: string, bytes: Uint8Array<ArrayBuffer>): Array {
  const fail = (fact: string): FormatError => new FormatError(op, `${source}: ${fact}`)
  const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]
  if (bytes.length < 10 || magic.some((b, i) => bytes[i] !== b)) throw fail("is no .npy file")
  const [major] = [bytes[6]]
  if (major < 1 || major > 3) throw fail(`has the unknown format version ${major}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const lengthSize = major === 1 ? 2 : 4
  if (bytes.length < 8 + lengthSize) throw fail("ends in its header")
  const length = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true)
  const start = 8 + lengthSize + length
  if (length > MAX_HEADER || start > bytes.length) throw fail(`claims a header of ${length} bytes`)
  const header = Buffer.from(bytes.buffer, bytes.byteOffset + 8 + lengthSize, length).toString("latin1")
  const descr = /'descr'\s*:\s*'([<>|=]?)([a-zA-Z]\d+)'/.exec(header)
  const order = /'fortran_order'\s*:\s*(True|False)/.exec(header)
  const sizes = /'shape'\s*:\s*\(([\d\s,]*)\)/.exec(header)
  if (!descr || !order || !sizes) throw fail("has a header that cannot be read")
  const dtype = dtypeOf.get(descr[2])
  if (!dtype) throw fail(`has elements of the unknown type ${descr[2]}`)
  const shape = sizes[1]
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .map(Number)
  const available = bytes.length - start
  let expected = shape.includes(0) ? 0 : dtype.size
  for (const n of shape) {
    if (!Number.isSafeInteger(n)) throw fail(`has the size ${n}`)
    expected *= n
    if (expected > available) break
  }
  if (expected > available)
    throw fail(`holds ${available} bytes of elements where its shape (${shape.join(", ")}) needs more`)
  const data = bytes.slice(start, start + expected)
  if (descr[1] === ">") swapBytes(data, dtype === complex64 ? 4 : dtype.size)
  if (dtype === bool_) for (let i = 0; i < data.length; i++) data[i] = data[i] ? 1 : 0
  if (order[1] === "False" || shape.length < 2) return arrayFromStore(data, shape, dtype)
  return transpose(arrayFromStore(data, shape.slice().reverse(), dtype))
}

function swapBytes(data: Uint8Array, width: number): void {
  for (let i = 0; i < data.length; i += width) data.subarray(i, i + width).reverse()
}

/** The bytes of an .npy file, in parts. */
export function formatNpy(a: Array): Uint8Array[] {
  const code = codeOf.get(a.dtype) as string
  const shape = `(${a.shape.join(", ")}${a.ndim === 1 ? "," : ""})`
  const text = `{'descr': '${a.dtype.size === 1 ? "|" : "<"}${code}', 'fortran_order': False, 'shape': ${shape}, }`
  const padding = (64 - ((10 + text.length + 1) % 64)) % 64
  const header = Buffer.from(`${text}${" ".repeat(padding)}\n`, "latin1")
  const lead = Buffer.from([
    0x93,
    0x4e,
    0x55,
    0x4d,
    0x50,
    0x59,
    1,
    0,
    header.length & 255,
    header.length >> 8,
  ])
  return [lead, header, bytesOf(copyOut(a))]
}

/**
 * Writes an array as an .npy file; `.npy` is added to a name without it. Another file of that name is replaced only once the new
 * one is complete.
 * @throws ArgumentError unless it is given a path and an array
 * @example
 * mx.save('/tmp/a.npy', mx.ones([2])); mx.load('/tmp/a.npy').tolist() // => [1, 1]
 */
export function save(file: string, arr: Array): void {
  if (typeof file !== "string")
    throw new ArgumentError("save", `file must be a path, received ${describe(file)}`)
  if (!(arr instanceof Array))
    throw new ArgumentError("save", `arr must be an array, received ${describe(arr)}`)
  writeBeside(file.endsWith(".npy") ? file : `${file}.npy`, formatNpy(arr))
}

const LOCAL = 0x04034b50
const CENTRAL = 0x02014b50
const END = 0x06054b50

/** The arrays of an .npz archive, by name. @throws FormatError */
export function parseNpz(op: string, source: string, bytes: Uint8Array<ArrayBuffer>): Record<string, Array> {
  const fail = (fact: string): FormatError => new FormatError(op, `${source}: ${fact}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let end = bytes.length - 22
  const lowest = Math.max(0, end - 65535)
  while (end >= lowest && view.getUint32(end, true) !== END) end--
  if (end < lowest) throw fail("is no ZIP archive")
  const count = view.getUint16(end + 10, true)
  let at = view.getUint32(end + 16, true)
  const out: [string, Array][] = []
  for (let i = 0; i < count; i++) {
    if (at + 46 > end || view.getUint32(at, true) !== CENTRAL) throw fail("has a damaged directory")
    const method = view.getUint16(at + 10, true)
    const packed = view.getUint32(at + 20, true)
    const size = view.getUint32(at + 24, true)
    const nameLength = view.getUint16(at + 28, true)
    const local = view.getUint32(at + 42, true)
    const name = Buffer.from(
      bytes.buffer,
      bytes.byteOffset + at + 46,
      Math.min(nameLength, end - at - 46),
    ).toString()
    at += 46 + nameLength + view.getUint16(at + 30, true) + view.getUint16(at + 32, true)
    if (packed === 0xffffffff || size === 0xffffffff || local === 0xffffffff)
      throw fail(`${JSON.stringify(name)} uses ZIP64, which is not supported`)
    if (local + 30 > bytes.length || view.getUint32(local, true) !== LOCAL)
      throw fail(`${JSON.stringify(name)} points outside the archive`)
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true)
    if (start + packed > bytes.length) throw fail(`${JSON.stringify(name)} ends outside the archive`)
    const data = bytes.subarray(start, start + packed)
    let member: Uint8Array
    if (method === 0) member = data
    else if (method === 8) {
      try {
        member = inflateRawSync(data, { maxOutputLength: Math.max(1, size) })
      } catch (cause) {
        throw new FormatError(op, `${source}: ${JSON.stringify(name)} cannot be unpacked`, { cause })
      }
    } else throw fail(`${JSON.stringify(name)} uses the unknown compression ${method}`)
    if (member.length !== size) throw fail(`${JSON.stringify(name)} has ${member.length} bytes, not ${size}`)
    if (crc32(member) !== view.getUint32(local + 14, true) && !(view.getUint16(local + 6, true) & 8))
      throw fail(`${JSON.stringify(name)} has a wrong checksum`)
    out.push([name.replace(/\.npy$/, ""), parseNpy(op, `${source}, ${name}`, Uint8Array.from(member))])
  }
  return Object.fromEntries(out)
}

const table = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1
  return c >>> 0
})
function crc32(bytes: Uint8Array): number {
  let c = 0xffffffff
  for (const b of bytes) c = table[(c ^ b) & 255] ^ (c >>> 8)
  return (c ^ 0xffffffff) >>> 0
}

function* archive(arrays: Readonly<Record<string, Array>>, compress: boolean): Generator<Uint8Array> {
  const directory: Buffer[] = []
  let offset = 0
  for (const [key, a] of Object.entries(arrays)) {
    const name = Buffer.from(`${key}.npy`)
    const data = Buffer.concat(formatNpy(a))
    const packed = compress ? deflateRawSync(data) : data
    if (data.length > 0xfffffffe || offset + packed.length > 0xfffffffe)
      throw new ArgumentError("savez", "archives above 4 GiB are not supported", {
        hint: "mx.saveSafetensors has no such limit",
      })
    const common = Buffer.alloc(26)
    common.writeUInt16LE(20, 0)
    common.writeUInt16LE(0x0800, 2)
    common.writeUInt16LE(compress ? 8 : 0, 4)
    // The first day that ZIP can name, so that equal arrays make equal files.
    common.writeUInt16LE(0x21, 8)
    common.writeUInt32LE(crc32(data), 10)
    common.writeUInt32LE(packed.length, 14)
    common.writeUInt32LE(data.length, 18)
    common.writeUInt16LE(name.length, 22)
    const signature = Buffer.alloc(4)
    signature.writeUInt32LE(LOCAL)
    const entry = Buffer.alloc(46)
    entry.writeUInt32LE(CENTRAL)
    entry.writeUInt16LE(20, 4)
    common.copy(entry, 6)
    entry.writeUInt32LE(offset, 42)
    directory.push(entry, name)
    yield* [signature, common, name, packed]
    offset += 30 + name.length + packed.length
  }
  const listing = Buffer.concat(directory)
  const end = Buffer.alloc(22)
  end.writeUInt32LE(END)
  end.writeUInt16LE(directory.length / 2, 8)
  end.writeUInt16LE(directory.length / 2, 10)
  end.writeUInt32LE(listing.length, 12)
  end.writeUInt32LE(offset, 16)
  yield* [listing, end]
}

function saveArchive(op: string, file: string, args: readonly unknown[], compress: boolean): void {
  if (typeof file !== "string") throw new ArgumentError(op, `file must be a path, received ${describe(file)}`)
  const named: Record<string, Array> = {}
  args.forEach((value, i) => {
    if (value instanceof Array) named[`arr_${i}`] = value
    else if (typeof value === "object" && value !== null) Object.assign(named, value)
    else throw new ArgumentError(op, `expected arrays, received ${describe(value)}`)
  })
  for (const [name, a] of Object.entries(named))
    if (!(a instanceof Array))
      throw new ArgumentError(op, `${JSON.stringify(name)} must be an array, received ${describe(a)}`)
  evalTrees(Object.values(named))
  writeBeside(file.endsWith(".npz") ? file : `${file}.npz`, archive(named, compress))
}

/**
 * Writes several arrays as an .npz archive: those in plain objects under their keys, others as `arr_0`, `arr_1`, …
 * @throws ArgumentError unless all are arrays
 * @example
 * mx.savez('/tmp/a.npz', { x: mx.ones([2]) }); mx.load('/tmp/a.npz').x.tolist() // => [1, 1]
 */
export function savez(file: string, ...arrays: (Array | Readonly<Record<string, Array>>)[]): void {
  saveArchive("savez", file, arrays, false)
}

/**
 * {@link savez}, compressed.
 * @throws ArgumentError unless all are arrays
 * @example
 * mx.savezCompressed('/tmp/b.npz', mx.ones([2])); mx.load('/tmp/b.npz').arr_0.tolist() // => [1, 1]
 */
export function savezCompressed(file: string, ...arrays: (Array | Readonly<Record<string, Array>>)[]): void {
  saveArchive("savezCompressed", file, arrays, true)
}
