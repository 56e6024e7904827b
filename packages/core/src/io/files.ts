/**
 * Bounds-checked reading of files, and atomic writing: to a temporary file in the same folder, which is then renamed.
 */
import { PART_BYTES } from "../engine/readback"
import { isPlainObject } from "../graph/args"
import { bool_, complex64, type Dtype } from "../graph/dtype"
import { ArgumentError, describe, type ErrorDetails, FormatError } from "../graph/errors"
import { Array } from "../graph/graph"
import type { Shape } from "../graph/shape"
import { arrayFromParts } from "../ops/creation"

const {
  closeSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} = process.getBuiltinModule("node:fs")
const { fileURLToPath } = process.getBuiltinModule("node:url")

/** One system call moves at most 2 GiB. */
const PART = 2 ** 30
/** The most axes that a tensor in a file may have. */
const MAX_AXES = 64

/** A path or a `file:` URL. */
export type FilePath = string | URL

/** No system accepts longer paths, and the system's error message would include all of it. */
const LONGEST_PATH = 32_768

/** The path of a file argument, with the format's extension appended if missing. @throws ArgumentError */
export function asPath(op: string, file: unknown, ending = ""): string {
  const path = file instanceof URL && file.protocol === "file:" ? fileURLToPath(file) : file
  if (typeof path !== "string" || path === "" || path.includes("\0"))
    throw new ArgumentError(op, `file must be a path or a file: URL, received ${describe(file)}`)
  if (path.length > LONGEST_PATH)
    throw new ArgumentError(op, `file must be a path, received one of ${path.length} characters`)
  return path.endsWith(ending) ? path : path + ending
}

/** The entries of a metadata argument, if any. @throws ArgumentError */
export function checkMetadata(op: string, metadata: unknown): [string, unknown][] {
  if (metadata === undefined || metadata === null) return []
  if (!isPlainObject(metadata))
    throw new ArgumentError(op, `metadata must be a plain object, received ${describe(metadata)}`)
  return Object.entries(metadata)
}

/** A file open for reading. Every read is checked against its size. */
export class BoundedFile {
  readonly size: number
  private readonly fd: number
  constructor(
    /** The name of the calling function, for errors. */
    readonly op: string,
    readonly path: string,
    /** The largest allowed uncompressed size in bytes; null if the format decides. */
    readonly maxBytes: number | null = null,
  ) {
    this.fd = withPath(op, "read", path, () => openSync(path, "r"))
    const stats = fstatSync(this.fd)
    this.size = stats.size
    if (!stats.isFile()) {
      closeSync(this.fd)
      throw this.error("is not a regular file")
    }
    // The format's reader checks the uncompressed size.
    if (maxBytes !== null && this.size > maxBytes) {
      closeSync(this.fd)
      throw this.error(`has ${this.size} bytes, more than maxBytes (${maxBytes})`)
    }
  }

  /** Reads `length` bytes at `offset`. @throws FormatError if the file is shorter */
  read(offset: number, length: number): Uint8Array {
    this.check(offset, length)
    const out = new Uint8Array(length)
    this.readInto(offset, out)
    return out
  }

  /** Fills `out` with the bytes at `offset`. @throws FormatError if the file is shorter */
  readInto(offset: number, out: Uint8Array): void {
    const { length } = out
    this.check(offset, length)
    let done = 0
    while (done < length) {
      const got = readSync(this.fd, out, done, Math.min(length - done, PART), offset + done)
      if (got === 0) throw this.error("shrank while it was being read")
      done += got
    }
  }

  /**
   * Reads an array from the bytes at `offset`, in chunks of whole elements, each of which `convert` may modify. The size must have been
   * checked with {@link bytesOfShape}.
   */
  readArray(offset: number, shape: Shape, dtype: Dtype, convert?: (bytes: Uint8Array) => void): Array {
    return arrayFromParts(shape, dtype, PART_BYTES, (bytes, at) => {
      this.readInto(offset + at, bytes)
      convert?.(bytes)
      if (dtype === bool_) normalizeBools(bytes)
    })
  }

  error(fact: string, details?: ErrorDetails): FormatError {
    return new FormatError(this.op, `${this.path}: ${fact}`, details)
  }

  close(): void {
    closeSync(this.fd)
  }

  private check(offset: number, length: number): void {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.size))
      throw this.error(`ends at byte ${this.size}, before bytes ${offset} to ${offset + length}`)
  }
}

/** Runs `body` with an open file, then closes it. */
export function withFile<T>(
  op: string,
  path: string,
  body: (file: BoundedFile) => T,
  maxBytes: number | null = null,
): T {
  const file = new BoundedFile(op, path, maxBytes)
  try {
    return body(file)
  } finally {
    file.close()
  }
}

/**
 * The number of bytes of an array of a shape found in a file, with `unit` bytes per element; null if a size is invalid or the array would
 * need more than `available` bytes. Checked at every step, since malicious sizes could overflow the product.
 */
export function bytesOfShape(shape: readonly unknown[], unit: number, available: number): number | null {
  if (shape.length > MAX_AXES || !shape.every((n) => Number.isSafeInteger(n) && (n as number) >= 0))
    return null
  if (shape.includes(0)) return 0
  let bytes = unit
  for (const n of shape as number[]) {
    bytes *= n
    if (bytes > available) return null
  }
  return bytes > available ? null : bytes
}

/** Rejects overlapping tensors. @throws FormatError */
export function checkDisjoint(
  file: BoundedFile,
  ranges: readonly { readonly name: string; readonly begin: number; readonly length: number }[],
): void {
  const order = ranges.filter(({ length }) => length > 0).sort((a, b) => a.begin - b.begin)
  for (let i = 1; i < order.length; i++) {
    const [before, after] = [order[i - 1], order[i]]
    if (before.begin + before.length > after.begin)
      throw file.error(`${quoted(before.name)} and ${quoted(after.name)} overlap`)
  }
}

/** A name from a file, for an error message. */
export const quoted = (name: string): string =>
  JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}…` : name)

/** Sets every nonzero byte to 1. */
export function normalizeBools(bytes: Uint8Array): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = bytes[i] ? 1 : 0
}

/** Swaps the byte order of the elements. */
export function swapBytes(bytes: Uint8Array, dtype: Dtype): void {
  const width = dtype === complex64 ? 4 : dtype.size
  for (let i = 0; i < bytes.length; i += width) bytes.subarray(i, i + width).reverse()
}

/** Runs `body`; an error of the system in it keeps its class and code, and its message names the function and the file. */
function withPath<T>(op: string, action: "read" | "write", path: string, body: () => T): T {
  try {
    return body()
  } catch (error) {
    const { syscall, message } = error as NodeJS.ErrnoException
    // The system's message ends in the call and the name of the temporary file.
    if (syscall !== undefined)
      (error as Error).message = `[${op}] cannot ${action} ${path}: ${message.split(`, ${syscall}`)[0]}`
    throw error
  }
}

/**
 * Writes a file atomically: to a temporary file in the same folder, which is then renamed. An existing file's permissions, and symbolic
 * links to it, are kept.
 */
export function writeBeside(op: string, path: string, parts: Iterable<Uint8Array>): void {
  withPath(op, "write", path, () => replaceFile(path, parts))
}

function replaceFile(path: string, parts: Iterable<Uint8Array>): void {
  const { target, mode } = existing(path)
  const temporary = `${target}.${process.pid}.${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}.tmp`
  const fd = openSync(temporary, "wx")
  let open = true
  try {
    for (const part of parts) {
      let done = 0
      while (done < part.byteLength) done += writeSync(fd, part, done, Math.min(part.byteLength - done, PART))
    }
    if (mode !== null) fchmodSync(fd, mode)
    fsyncSync(fd)
    closeSync(fd)
    open = false
    renameSync(temporary, target)
  } catch (error) {
    if (open) closeSync(fd)
    unlinkSync(temporary)
    throw error
  }
}

function existing(path: string): { target: string; mode: number | null } {
  try {
    const target = realpathSync(path)
    return { target, mode: statSync(target).mode & 0o7777 }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
    return { target: path, mode: null }
  }
}

/** The bytes of a typed array. */
export const bytesOf = (view: ArrayBufferView): Uint8Array<ArrayBufferLike> =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength)

/** The entries of an object of arrays. @throws ArgumentError */
export function checkNamed(op: string, arrays: unknown): [string, Array][] {
  if (!isPlainObject(arrays))
    throw new ArgumentError(op, `arrays must be a plain object of arrays, received ${describe(arrays)}`)
  const entries = Object.entries(arrays)
  for (const [name, a] of entries)
    if (!(a instanceof Array))
      throw new ArgumentError(op, `${quoted(name)} must be an array, received ${describe(a)}`)
  return entries as [string, Array][]
}
