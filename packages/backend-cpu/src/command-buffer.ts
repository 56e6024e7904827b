/**
 * The command buffer: 64-bit words in one ArrayBuffer, in the format of native/PROTOCOL.md. Nothing here knows nodes or kernels.
 */
import {
  ArgumentError,
  type Dtype,
  encoder,
  type ScalarValue,
  type TypedArray,
  viewStore,
} from "@lazuli/core/engine"

/** Operation codes of records. */
export enum Op {
  Alloc = 1,
  Free = 2,
  Run = 3,
  Map = 4,
  Plan = 5,
  Wait = 6,
  Epilogue = 7,
  Prologue = 8,
  Dense = 9,
  Data = 10,
}

/** Operand flags. */
export enum Flag {
  Contiguous = 1,
  Immediate = 2,
}

const HIGH = 4294967296
/** The first number that a word does not hold. */
const LIMIT = 2 ** 63
/** The largest number that the low half of a word holds alone. */
export const MAX_INT = 2147483647

const layoutOf = (code: number, shape: readonly number[], strides: readonly number[] | null): number =>
  code | (shape.length << 8) | (strides === null ? Flag.Contiguous << 16 : 0)

/**
 * Writes an operand at once, as operands are most of a record, and gives the place after it; -1, with nothing that counts written, where a
 * number takes more than half a word.
 */
export function putOperand(
  i32: Int32Array,
  at: number,
  id: number,
  code: number,
  offset: number,
  size: number,
  shape: readonly number[],
  strides: readonly number[] | null,
): number {
  // Sizes whose product is 0 may be as large as they like.
  if (offset > MAX_INT || size > MAX_INT || size === 0) return -1
  const ndim = shape.length
  i32[at] = id
  i32[at + 1] = layoutOf(code, shape, strides)
  i32[at + 2] = offset
  i32[at + 3] = 0
  i32[at + 4] = size
  i32[at + 5] = 0
  let end = at + 6
  for (let i = 0; i < ndim; i++, end += 2) {
    i32[end] = shape[i]
    i32[end + 1] = 0
  }
  if (strides !== null)
    for (let i = 0; i < ndim; i++, end += 2) {
      const step = strides[i]
      if (step !== (step | 0)) return -1
      i32[end] = step
      i32[end + 1] = step >> 31
    }
  return end
}

/** A growing buffer of 64-bit words. */
export class CommandBuffer {
  /** The number of words written. */
  length = 0
  buffer: ArrayBuffer
  /** The same as halves of words, for what writes many at once: every call of a method stores the length anew. */
  i32: Int32Array
  f32: Float32Array
  private u8: Uint8Array
  private f64: Float64Array
  private recordStart = 0

  constructor(words: number) {
    this.buffer = new ArrayBuffer(words * 8)
    this.i32 = new Int32Array(this.buffer)
    this.f32 = new Float32Array(this.buffer)
    this.u8 = new Uint8Array(this.buffer)
    this.f64 = new Float64Array(this.buffer)
  }

  /** Words that fit. */
  get capacity(): number {
    return this.f64.length
  }

  /** Makes room for `words` more words. Returns whether the buffer was replaced. */
  reserve(words: number): boolean {
    if (this.length + words <= this.f64.length) return false
    this.grow(words)
    return true
  }

  private grow(words: number): void {
    const bigger = new ArrayBuffer(Math.max(this.f64.length * 2, this.length + words) * 8)
    new Int32Array(bigger).set(this.i32.subarray(0, this.length * 2))
    this.buffer = bigger
    this.i32 = new Int32Array(bigger)
    this.f32 = new Float32Array(bigger)
    this.u8 = new Uint8Array(bigger)
    this.f64 = new Float64Array(bigger)
  }

  /** A word that holds an integer. */
  int(value: number): void {
    const at = this.length++ * 2
    if (value === (value | 0)) {
      this.i32[at] = value
      this.i32[at + 1] = value >> 31
    } else {
      if (!Number.isInteger(value) || value >= LIMIT || value < -LIMIT)
        throw new ArgumentError("backend-cpu", `a record holds 64-bit integers, received ${value}`)
      // Beyond 32 bits: two's complement from the floor of the quotient.
      const high = Math.floor(value / HIGH)
      this.i32[at] = (value - high * HIGH) | 0
      this.i32[at + 1] = high | 0
    }
  }

  /** A word of two unsigned halves, which their writers keep within 32 bits. */
  pair(low: number, high: number): void {
    const at = this.length++ * 2
    this.i32[at] = low
    this.i32[at + 1] = high
  }

  /** A word that holds a double. */
  double(value: number): void {
    this.f64[this.length++] = value
  }

  /** A word that starts with the bits of a scalar in its dtype. */
  scalar(dtype: Dtype, value: ScalarValue): void {
    const at = this.length++
    this.f64[at] = 0
    const store = viewStore(dtype, this.buffer, at * 8, 1) as TypedArray
    if (typeof value === "object") {
      store[0] = value.re
      store[1] = value.im
    } else store[0] = encoder(dtype)(value) as never
  }

  /** Opens a record; `end` closes it. */
  begin(op: Op): void {
    this.recordStart = this.length
    this.pair(op, 0)
  }

  /** Opens a record of a kernel or scalar program on operands. */
  beginCall(op: Op, id: number, inputs: number, outputs: number): void {
    const { i32 } = this
    const at = this.length * 2
    this.recordStart = this.length
    i32[at] = op
    i32[at + 1] = 0
    i32[at + 2] = id
    i32[at + 3] = inputs
    i32[at + 4] = outputs
    i32[at + 5] = 0
    this.length += 3
  }

  /** Writes the open record's length. */
  end(): void {
    this.i32[this.recordStart * 2 + 1] = this.length - this.recordStart
  }

  /** An operand: see native/PROTOCOL.md. `strides` null means row-major. */
  operand(
    id: number,
    code: number,
    offset: number,
    size: number,
    shape: readonly number[],
    strides: readonly number[] | null,
  ): void {
    const end = putOperand(this.i32, this.length * 2, id, code, offset, size, shape, strides)
    if (end > 0) {
      this.length = end / 2
      return
    }
    this.pair(id, layoutOf(code, shape, strides))
    this.int(offset)
    this.int(size)
    for (let i = 0; i < shape.length; i++) this.int(shape[i])
    if (strides !== null) for (let i = 0; i < shape.length; i++) this.int(strides[i])
  }

  /** A buffer and an offset into it. */
  bufferAt(id: number, offset: number): void {
    const { i32 } = this
    const at = this.length * 2
    i32[at] = id
    i32[at + 1] = 0
    if (offset > MAX_INT) {
      this.length++
      this.int(offset)
      return
    }
    i32[at + 2] = offset
    i32[at + 3] = 0
    this.length += 2
  }

  /** Memory for a buffer id. */
  alloc(id: number, bytes: number): void {
    const { i32 } = this
    const at = this.length * 2
    i32[at] = Op.Alloc
    i32[at + 1] = 3
    i32[at + 2] = id
    i32[at + 3] = 0
    if (bytes > MAX_INT) {
      this.length += 2
      this.int(bytes)
      return
    }
    i32[at + 4] = bytes
    i32[at + 5] = 0
    this.length += 3
  }

  /** Memory for a buffer id, and what it holds. There is room for it. */
  data(id: number, bytes: ArrayBufferView): void {
    const { i32 } = this
    const at = this.length * 2
    const { byteLength } = bytes
    const words = 3 + ((byteLength + 7) >> 3)
    i32[at] = Op.Data
    i32[at + 1] = words
    i32[at + 2] = id
    i32[at + 3] = 0
    i32[at + 4] = byteLength
    i32[at + 5] = 0
    // V8 makes the buffer of a small typed array only when it is asked for, at a high price.
    if (bytes instanceof Float32Array) this.f32.set(bytes, at + 6)
    else if (bytes instanceof Int32Array) i32.set(bytes, at + 6)
    else this.u8.set(new Uint8Array(bytes.buffer, bytes.byteOffset, byteLength), (at + 6) * 4)
    this.length += words
  }

  /** Holds what follows back until another queue has done a ticket. */
  wait(queue: number, ticket: number): void {
    this.pair(Op.Wait, 3)
    this.int(queue)
    this.int(ticket)
  }

  /** The end of a buffer. */
  free(id: number): void {
    const { i32 } = this
    const at = this.length * 2
    i32[at] = Op.Free
    i32[at + 1] = 2
    i32[at + 2] = id
    i32[at + 3] = 0
    this.length += 2
  }
}
