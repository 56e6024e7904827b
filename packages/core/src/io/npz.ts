/**
 * NumPy's .npz format (several arrays): a ZIP archive of .npy files, stored or deflated.
 * https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
 */
import { copyOut, evalTrees, partsOf } from "../engine/readback"
import { bool_, type Dtype } from "../graph/dtype"
import { ArgumentError, describe, type ErrorDetails, type FormatError } from "../graph/errors"
import { Array } from "../graph/graph"
import { arrayFromStore } from "../ops/creation"
import {
  asPath,
  type BoundedFile,
  bytesOf,
  checkDisjoint,
  checkNamed,
  type FilePath,
  normalizeBools,
  quoted,
  writeBeside,
} from "./files"
import { formatNpyHeader, NPY_PREAMBLE, npyArray, npyPreamble, parseNpyHeader } from "./npy"

const LOCAL = 0x04034b50
const CENTRAL = 0x02014b50
const END = 0x06054b50
const END64 = 0x06064b50
const LOCATOR64 = 0x07064b50
/** The value of a 32-bit field whose content is in the 64-bit extra field. */
const WIDE = 0xffffffff
/** Deflate expands a byte to at most this many. */
const MAX_RATIO = 1032
/** By default, compressed arrays may expand by this factor, and always to this many bytes. */
const DEFAULT_RATIO = 200
const DEFAULT_BYTES = 2 ** 28
/** The largest chunk to request of zlib, whose counters have 32 bits. */
const MAX_CHUNK = 2 ** 31

/** Loaded on first use: it takes longer to load than all other Node modules that core uses. */
const zlib = () => process.getBuiltinModule("node:zlib")

/** An entry of the archive's directory. */
interface Member {
  readonly name: string
  readonly deflated: boolean
  readonly crc: number
  /** The range of its bytes in the file, and its uncompressed size. */
  readonly begin: number
  readonly length: number
  readonly size: number
}

/** Finds the directory and its number of entries. */
function findDirectory(file: BoundedFile): { begin: number; length: number; count: number } {
  const tail = Math.min(file.size, 22 + 65535)
  const bytes = Buffer.from(file.read(file.size - tail, tail))
  let end = tail - 22
  while (end >= 0 && bytes.readUInt32LE(end) !== END) end--
  if (end < 0) throw file.error("is not a ZIP archive")
  let count = bytes.readUInt16LE(end + 10)
  let length = bytes.readUInt32LE(end + 12)
  let begin = bytes.readUInt32LE(end + 16)
  if (end >= 20 && bytes.readUInt32LE(end - 20) === LOCATOR64) {
    const wide = Buffer.from(file.read(asSize(file, bytes.readBigUInt64LE(end - 12)), 56))
    if (wide.readUInt32LE(0) !== END64) throw file.error("has a damaged directory")
    count = asSize(file, wide.readBigUInt64LE(32))
    length = asSize(file, wide.readBigUInt64LE(40))
    begin = asSize(file, wide.readBigUInt64LE(48))
  }
  if (begin + length > file.size || count * 46 > length) throw file.error("has a damaged directory")
  return { begin, length, count }
}

/** A 64-bit offset or size, which must not exceed the file's size. */
function asSize(file: BoundedFile, value: bigint): number {
  if (value > BigInt(file.size)) throw file.error("points outside the archive")
  return Number(value)
}

function readDirectory(file: BoundedFile): Member[] {
  const { begin, length, count } = findDirectory(file)
  const bytes = Buffer.from(file.read(begin, length))
  const members: Member[] = []
  let at = 0
  for (let i = 0; i < count; i++) {
    if (at + 46 > length || bytes.readUInt32LE(at) !== CENTRAL) throw file.error("has a damaged directory")
    const nameEnd = at + 46 + bytes.readUInt16LE(at + 28)
    const extraEnd = nameEnd + bytes.readUInt16LE(at + 30)
    const next = extraEnd + bytes.readUInt16LE(at + 32)
    if (next > length) throw file.error("has a damaged directory")
    const name = bytes.toString("utf8", at + 46, nameEnd)
    const [size, packed, local] = wideFields(
      [bytes.readUInt32LE(at + 24), bytes.readUInt32LE(at + 20), bytes.readUInt32LE(at + 42)],
      bytes.subarray(nameEnd, extraEnd),
      file,
    )
    const method = bytes.readUInt16LE(at + 10)
    if (bytes.readUInt16LE(at + 8) & 1) throw file.error(`${quoted(name)} is encrypted`)
    if (method !== 0 && method !== 8) throw file.error(`${quoted(name)} uses unknown compression ${method}`)
    if (local + 30 > file.size) throw file.error(`${quoted(name)} points outside the archive`)
    const head = Buffer.from(file.read(local, 30))
    if (head.readUInt32LE(0) !== LOCAL) throw file.error(`${quoted(name)} points outside the archive`)
    const start = local + 30 + head.readUInt16LE(26) + head.readUInt16LE(28)
    if (start + packed > file.size) throw file.error(`${quoted(name)} ends outside the archive`)
    if (method === 0 ? size !== packed : size > packed * MAX_RATIO)
      throw file.error(`${quoted(name)} cannot have ${size} bytes`)
    const crc = bytes.readUInt32LE(at + 16)
    members.push({ name, deflated: method === 8, crc, begin: start, length: packed, size })
    at = next
  }
  const names = new Set<string>()
  for (const { name } of members) {
    if (names.has(name)) throw file.error(`${quoted(name)} appears twice`)
    names.add(name)
  }
  // Overlapping entries would be decompressed many times (a zip bomb).
  checkDisjoint(file, members)
  checkTotal(file, members)
  return members
}

/** Rejects an archive whose stated uncompressed size exceeds the limit; no member may expand beyond its stated size. */
function checkTotal(file: BoundedFile, members: readonly Member[]): void {
  const { maxBytes } = file
  const sum = (list: readonly Member[], key: "size" | "length"): number =>
    list.reduce((total, member) => total + member[key], 0)
  const total = sum(members, "size")
  if (maxBytes !== null) {
    if (total <= maxBytes) return
    throw file.error(`would expand to ${total} bytes, more than maxBytes (${maxBytes})`)
  }
  // A stored entry takes no more memory than on disk.
  const deflated = members.filter((member) => member.deflated)
  const [size, packed] = [sum(deflated, "size"), sum(deflated, "length")]
  if (size > Math.max(DEFAULT_BYTES, packed * DEFAULT_RATIO))
    throw file.error(`would expand from ${packed} bytes to ${size}, as archives made to exhaust memory do`, {
      hint: `If you trust it, load the file with { maxBytes: ${Math.max(total, file.size)} }`,
    })
}

/** Fields that exceed 32 bits are in an extra field, in this order. */
function wideFields(fields: number[], extra: Buffer, file: BoundedFile): number[] {
  if (!fields.includes(WIDE)) return fields
  for (let at = 0; at + 4 <= extra.length; ) {
    const length = extra.readUInt16LE(at + 2)
    if (extra.readUInt16LE(at) === 1) {
      let next = at + 4
      return fields.map((field) => {
        if (field !== WIDE) return field
        if (next + 8 > Math.min(at + 4 + length, extra.length)) throw file.error("has a damaged directory")
        next += 8
        const value = extra.readBigUInt64LE(next - 8)
        if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw file.error("has a damaged directory")
        return Number(value)
      })
    }
    at += 4 + length
  }
  return fields
}

/** The arrays of an .npz archive, by name. @throws FormatError if the file is malformed */
export function readNpz(file: BoundedFile): Record<string, Array> {
  return Object.fromEntries(
    readDirectory(file).map((member) => [
      member.name.replace(/\.npy$/, ""),
      member.deflated ? readDeflated(file, member) : readStored(file, member),
    ]),
  )
}

function failFor(file: BoundedFile, { name }: Member): (fact: string, details?: ErrorDetails) => FormatError {
  return (fact, details) => file.error(`${quoted(name)} ${fact}`, details)
}

function checkSum(got: number, member: Member, fail: (fact: string) => FormatError): void {
  if (got !== member.crc) throw fail("has a wrong checksum")
}

/** Reads a stored member's elements directly into the array. */
function readStored(file: BoundedFile, member: Member): Array {
  const fail = failFor(file, member)
  const { begin, size } = member
  const [from, to] = npyPreamble(file.read(begin, Math.min(NPY_PREAMBLE, size)), size, fail)
  const head = file.read(begin, to)
  const header = parseNpyHeader(Buffer.from(head).toString("latin1", from), size - to, fail)
  let sum = crc32(head)
  const loaded = npyArray(header, (shape, dtype, convert) =>
    file.readArray(begin + to, shape, dtype, (bytes) => {
      sum = crc32(bytes, sum)
      convert?.(bytes)
    }),
  )
  checkSum(sum, member, fail)
  return loaded
}

function readDeflated(file: BoundedFile, member: Member): Array {
  const fail = failFor(file, member)
  let bytes: Buffer
  try {
    const packed = file.read(member.begin, member.length)
    // A single chunk, one byte larger than the output, so that zlib needs no second chunk and no copy.
    const chunkSize = Math.min(Math.max(64, member.size + 1), MAX_CHUNK)
    bytes = zlib().inflateRawSync(packed, { maxOutputLength: Math.max(1, member.size), chunkSize })
  } catch (cause) {
    throw file.error(`${quoted(member.name)} cannot be decompressed`, { cause })
  }
  if (bytes.length !== member.size) throw fail(`has ${bytes.length} bytes, not ${member.size}`)
  checkSum(crc32(bytes), member, fail)
  const [from, to] = npyPreamble(bytes.subarray(0, NPY_PREAMBLE), bytes.length, fail)
  const header = parseNpyHeader(bytes.toString("latin1", from, to), bytes.length - to, fail)
  return npyArray(header, (shape: number[], dtype: Dtype, convert) => {
    const elements = bytes.subarray(to)
    convert?.(elements)
    if (dtype === bool_) normalizeBools(elements)
    return arrayFromStore(elements, shape, dtype)
  })
}

/** Built into newer Node versions, about ten times as fast as {@link tabledCrc32}. */
type Crc32 = (bytes: Uint8Array, before: number) => number

let table: Uint32Array | undefined

function tabledCrc32(bytes: Uint8Array, before: number): number {
  table ??= Uint32Array.from({ length: 256 }, (_, n) => {
    let c = n
    for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1
    return c >>> 0
  })
  let c = ~before
  for (let i = 0; i < bytes.length; i++) c = table[(c ^ bytes[i]) & 255] ^ (c >>> 8)
  return ~c >>> 0
}

function crc32(bytes: Uint8Array, before = 0): number {
  // Given no bytes, the native function may drop the previous checksum.
  if (bytes.length === 0) return before
  return ((zlib() as { crc32?: Crc32 }).crc32 ?? tabledCrc32)(bytes, before)
}

/** The fields common to an entry's local header and its directory record; numbers of at least `limit` go to the extra field. */
function entryFields(
  compress: boolean,
  crc: number,
  sizes: readonly [size: number, packed: number],
  name: Buffer,
  extra: Buffer,
  limit: number,
): Buffer {
  const fields = Buffer.alloc(26)
  const [size, packed] = sizes.map((n) => (n >= limit ? WIDE : n))
  fields.writeUInt16LE(extra.length > 0 ? 45 : 20, 0)
  fields.writeUInt16LE(0x0800, 2)
  fields.writeUInt16LE(compress ? 8 : 0, 4)
  // The earliest ZIP date, so that equal arrays give equal files.
  fields.writeUInt16LE(0x21, 8)
  fields.writeUInt32LE(crc, 10)
  fields.writeUInt32LE(packed, 14)
  fields.writeUInt32LE(size, 18)
  fields.writeUInt16LE(name.length, 22)
  fields.writeUInt16LE(extra.length, 24)
  return fields
}

/** The extra field with the numbers of at least `limit`; empty if there are none. */
function wideExtra(numbers: readonly number[], limit: number): Buffer {
  const wide = numbers.filter((n) => n >= limit)
  if (wide.length === 0) return Buffer.alloc(0)
  const extra = Buffer.alloc(4 + 8 * wide.length)
  extra.writeUInt16LE(1, 0)
  extra.writeUInt16LE(8 * wide.length, 2)
  wide.forEach((n, i) => {
    extra.writeBigUInt64LE(BigInt(n), 4 + 8 * i)
  })
  return extra
}

/** The bytes of an archive, in chunks. Numbers of at least `limit` are written in 64 bits. */
export function* archive(
  op: string,
  arrays: readonly (readonly [string, Array])[],
  compress: boolean,
  limit = WIDE,
): Generator<Uint8Array> {
  const directory: Buffer[] = []
  let offset = 0
  for (const [key, a] of arrays) {
    const name = Buffer.from(`${key}.npy`)
    if (name.length > 65535) throw new ArgumentError(op, `the name ${quoted(key)} is too long`)
    const head = formatNpyHeader(a)
    const size = head.length + a.nbytes
    let crc = crc32(head)
    for (const part of partsOf(a)) crc = crc32(part, crc)
    const packed = compress ? zlib().deflateRawSync(Buffer.concat([head, bytesOf(copyOut(a))])) : null
    const length = packed?.length ?? size
    // In a local header, either both sizes are wide or neither is.
    const local = Math.max(size, length) >= limit ? 0 : limit
    const extra = wideExtra([size, length], local)
    const signature = Buffer.alloc(4)
    signature.writeUInt32LE(LOCAL)
    yield signature
    yield* [entryFields(compress, crc, [size, length], name, extra, local), name, extra]
    if (packed) yield packed
    else {
      yield head
      yield* partsOf(a)
    }
    const more = wideExtra([size, length, offset], limit)
    const entry = Buffer.alloc(46)
    entry.writeUInt32LE(CENTRAL)
    entry.writeUInt16LE(45, 4)
    entryFields(compress, crc, [size, length], name, more, limit).copy(entry, 6)
    entry.writeUInt32LE(offset >= limit ? WIDE : offset, 42)
    directory.push(entry, name, more)
    offset += 30 + name.length + extra.length + length
  }
  const listing = Buffer.concat(directory)
  yield listing
  const numbers = [directory.length / 3, listing.length, offset]
  const wide = numbers[0] >= 65535 || numbers.some((n) => n >= limit)
  if (wide) yield wideEnd(numbers)
  const end = Buffer.alloc(22)
  end.writeUInt32LE(END)
  end.writeUInt16LE(wide ? 65535 : numbers[0], 8)
  end.writeUInt16LE(wide ? 65535 : numbers[0], 10)
  end.writeUInt32LE(wide ? WIDE : numbers[1], 12)
  end.writeUInt32LE(wide ? WIDE : numbers[2], 16)
  yield end
}

/** The zip64 end-of-directory record (number of entries, size, offset) and its locator. */
function wideEnd([count, length, offset]: readonly number[]): Buffer {
  const end = Buffer.alloc(76)
  end.writeUInt32LE(END64)
  end.writeBigUInt64LE(44n, 4)
  end.writeUInt16LE(45, 12)
  end.writeUInt16LE(45, 14)
  end.writeBigUInt64LE(BigInt(count), 24)
  end.writeBigUInt64LE(BigInt(count), 32)
  end.writeBigUInt64LE(BigInt(length), 40)
  end.writeBigUInt64LE(BigInt(offset), 48)
  end.writeUInt32LE(LOCATOR64, 56)
  end.writeBigUInt64LE(BigInt(offset + length), 64)
  end.writeUInt32LE(1, 72)
  return end
}

function saveArchive(op: string, file: FilePath, args: readonly unknown[], compress: boolean): void {
  const path = asPath(op, file, ".npz")
  const named: [string, Array][] = []
  args.forEach((value, i) => {
    if (value instanceof Array) named.push([`arr_${i}`, value])
    else if (typeof value === "object" && value !== null) named.push(...checkNamed(op, value))
    else throw new ArgumentError(op, `expected arrays, received ${describe(value)}`)
  })
  const names = new Set<string>()
  for (const [name] of named) {
    if (names.has(name)) throw new ArgumentError(op, `the name ${quoted(name)} appears twice`)
    names.add(name)
  }
  evalTrees(named.map(([, a]) => a))
  writeBeside(op, path, archive(op, named, compress))
}

/**
 * Saves several arrays as an .npz archive: those in plain objects under their keys, others as `arr_0`, `arr_1`, …
 * @throws ArgumentError unless all are arrays
 * @example
 * mx.savez('/tmp/a.npz', { x: mx.ones([2]) }); mx.load('/tmp/a.npz').x.tolist() // => [1, 1]
 */
export function savez(file: FilePath, ...arrays: (Array | Readonly<Record<string, Array>>)[]): void {
  saveArchive("savez", file, arrays, false)
}

/**
 * Like {@link savez}, compressed.
 * @throws ArgumentError unless all are arrays
 * @example
 * mx.savezCompressed('/tmp/b.npz', mx.ones([2])); mx.load('/tmp/b.npz').arr_0.tolist() // => [1, 1]
 */
export function savezCompressed(
  file: FilePath,
  ...arrays: (Array | Readonly<Record<string, Array>>)[]
): void {
  saveArchive("savezCompressed", file, arrays, true)
}
