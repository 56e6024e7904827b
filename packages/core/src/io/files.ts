/**
 * Files read in bounded pieces, and written beside their place and renamed, so that no reader ever sees half of one.
 */
import { randomBytes } from "node:crypto"
import {
  closeSync,
  fstatSync,
  fsyncSync,
  openSync,
  readSync,
  renameSync,
  unlinkSync,
  writeSync,
} from "node:fs"
import { FormatError } from "../errors"

/** A file open for reading; every read is checked against its size. */
export class BoundedFile {
  readonly size: number
  private readonly fd: number
  constructor(
    /** The function that reads, for its errors. */
    readonly op: string,
    readonly path: string,
  ) {
    this.fd = openSync(path, "r")
    this.size = fstatSync(this.fd).size
  }

  /** `length` bytes from `offset`. @throws FormatError when the file is shorter */
  read(offset: number, length: number): Uint8Array<ArrayBuffer> {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.size))
      throw this.error(`ends at byte ${this.size}, before bytes ${offset} to ${offset + length}`)
    const out = new Uint8Array(length)
    let done = 0
    while (done < length) {
      // Large reads come in parts: one system call moves at most 2 GiB.
      const got = readSync(this.fd, out, done, Math.min(length - done, 2 ** 30), offset + done)
      if (got === 0) throw this.error(`became shorter while it was read`)
      done += got
    }
    return out
  }

  error(fact: string): FormatError {
    return new FormatError(this.op, `${this.path}: ${fact}`)
  }

  close(): void {
    closeSync(this.fd)
  }
}

/** Opens a file, reads it with `body`, closes it. */
export function withFile<T>(op: string, path: string, body: (file: BoundedFile) => T): T {
  const file = new BoundedFile(op, path)
  try {
    return body(file)
  } finally {
    file.close()
  }
}

/** Writes a new file of these parts: beside its place under another name first. */
export function writeBeside(path: string, parts: Iterable<Uint8Array>): void {
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}.tmp`
  const fd = openSync(temporary, "wx")
  let open = true
  try {
    for (const part of parts) {
      let done = 0
      while (done < part.byteLength)
        done += writeSync(fd, part, done, Math.min(part.byteLength - done, 2 ** 30))
    }
    fsyncSync(fd)
    closeSync(fd)
    open = false
    renameSync(temporary, path)
  } catch (error) {
    if (open) closeSync(fd)
    unlinkSync(temporary)
    throw error
  }
}

/** The bytes of a typed array. */
export const bytesOf = (view: ArrayBufferView): Uint8Array<ArrayBufferLike> =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
