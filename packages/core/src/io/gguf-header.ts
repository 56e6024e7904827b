/**
 * A buffered, bounds-checked reader of the header of a GGUF file.
 */
import type { BoundedFile } from "./files"

const CHUNK = 65536

/** Reads values in sequence. */
export class HeaderReader {
  /** The offset of the next value. */
  position = 0
  private chunk: Uint8Array = new Uint8Array(0)
  private view = new DataView(this.chunk.buffer)
  private start = 0
  private readonly decoder = new TextDecoder("utf-8", { fatal: true })
  constructor(readonly file: BoundedFile) {}

  u32(): number {
    const at = this.take(4)
    return this.view.getUint32(at, true)
  }

  /** A 64-bit integer that is a safe integer. */
  u64(): number {
    const at = this.take(8)
    const value = Number(this.view.getBigUint64(at, true))
    if (!Number.isSafeInteger(value)) throw this.file.error(`claims a size of ${value}`)
    return value
  }

  /** The number of entries that follow, of at least `least` bytes each. @throws FormatError if the file is too small for them */
  count(least: number, what: string): number {
    const n = this.u64()
    if (n > (this.file.size - this.position) / least)
      throw this.file.error(`${what} of ${n} entries in a file of ${this.file.size} bytes`)
    return n
  }

  /** A copy of the next bytes. */
  bytes(length: number): Uint8Array {
    if (length > CHUNK) {
      const out = this.file.read(this.position, length)
      this.position += length
      return out
    }
    const at = this.take(length)
    return this.chunk.slice(at, at + length)
  }

  text(): string {
    const length = this.u64()
    if (length > this.file.size - this.position)
      throw this.file.error(`claims a string of ${length} bytes in a file of ${this.file.size}`)
    try {
      if (length > CHUNK) return this.decoder.decode(this.bytes(length))
      const at = this.take(length)
      return this.decoder.decode(this.chunk.subarray(at, at + length))
    } catch (cause) {
      if (cause instanceof TypeError) throw this.file.error("holds a string that is not UTF-8", { cause })
      throw cause
    }
  }

  /** Buffers the next `length` bytes (at most {@link CHUNK}) and returns their offset in the chunk. */
  private take(length: number): number {
    if (this.position + length > this.start + this.chunk.length) {
      this.start = this.position
      const rest = this.file.size - this.position
      this.chunk = this.file.read(this.position, Math.max(length, Math.min(CHUNK, rest)))
      this.view = new DataView(this.chunk.buffer)
    }
    const at = this.position - this.start
    this.position += length
    return at
  }
}
