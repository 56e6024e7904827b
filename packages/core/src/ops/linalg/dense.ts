/**
 * Dense matrices for the reference of factorizations: complex numbers in two Float64Arrays, row-major, and the few steps that
 * the algorithms share. Real matrices have zeros for imaginary parts and keep them.
 */
import { complex64 } from "../../graph/dtype"
import type { HostArray } from "../../graph/graph"
import { sizeOf } from "../../graph/shape"

/** A matrix of complex numbers that is computed with in place. */
export class Dense {
  constructor(
    readonly rows: number,
    readonly cols: number,
    readonly re: Float64Array = new Float64Array(rows * cols),
    readonly im: Float64Array = new Float64Array(rows * cols),
  ) {}

  static identity(rows: number, cols: number = rows): Dense {
    const m = new Dense(rows, cols)
    for (let i = 0; i < Math.min(rows, cols); i++) m.re[i * cols + i] = 1
    return m
  }
  /** A column of real numbers. */
  static column(values: ArrayLike<number>): Dense {
    return new Dense(values.length, 1, Float64Array.from(values))
  }
  filled(value: number): Dense {
    this.re.fill(value)
    return this
  }
  copy(): Dense {
    return new Dense(this.rows, this.cols, this.re.slice(), this.im.slice())
  }
  /** The conjugate transpose. */
  adjoint(): Dense {
    const m = new Dense(this.cols, this.rows)
    for (let i = 0; i < this.rows; i++) {
      for (let j = 0; j < this.cols; j++) {
        m.re[j * this.rows + i] = this.re[i * this.cols + j]
        m.im[j * this.rows + i] = -this.im[i * this.cols + j]
      }
    }
    return m
  }
  abs(i: number, j: number): number {
    return Math.hypot(this.re[i * this.cols + j], this.im[i * this.cols + j])
  }
  /** The largest modulus of a part. */
  largest(): number {
    let most = 0
    for (let k = 0; k < this.re.length; k++) most = Math.max(most, Math.abs(this.re[k]), Math.abs(this.im[k]))
    return most
  }
  scale(factor: number): void {
    for (let k = 0; k < this.re.length; k++) {
      this.re[k] *= factor
      this.im[k] *= factor
    }
  }
  /** True if it holds neither NaN nor infinities, which the iterations could not end on. */
  isFinite(): boolean {
    return this.re.every(Number.isFinite) && this.im.every(Number.isFinite)
  }
  /** The given columns, in that order. */
  columns(order: readonly number[]): Dense {
    const m = new Dense(this.rows, order.length)
    for (let i = 0; i < this.rows; i++) {
      order.forEach((from, to) => {
        m.re[i * order.length + to] = this.re[i * this.cols + from]
        m.im[i * order.length + to] = this.im[i * this.cols + from]
      })
    }
    return m
  }
  /** Σ conj(x)·y over the rows of two columns. */
  dot(p: number, q: number): [re: number, im: number] {
    const { re, im, cols } = this
    let [x, y] = [0, 0]
    for (let a = p, b = q; a < re.length; a += cols, b += cols) {
      x += re[a] * re[b] + im[a] * im[b]
      y += re[a] * im[b] - im[a] * re[b]
    }
    return [x, y]
  }
  swapRows(i: number, j: number): void {
    if (i === j) return
    for (const part of [this.re, this.im]) {
      for (let k = 0; k < this.cols; k++) {
        const [a, b] = [i * this.cols + k, j * this.cols + k]
        const kept = part[a]
        part[a] = part[b]
        part[b] = kept
      }
    }
  }
}

/** A plane rotation with a phase: [x, y] ↦ [c·x − s·e·y, s·x + c·e·y], |e| = 1. */
export interface Rotation {
  readonly c: number
  readonly s: number
  readonly re: number
  readonly im: number
}

function rotate(m: Dense, from: number, other: number, step: number, count: number, r: Rotation): void {
  const { re, im } = m
  for (let k = 0, a = from, b = other; k < count; k++, a += step, b += step) {
    const [x, y] = [re[a], im[a]]
    const [u, v] = [r.re * re[b] - r.im * im[b], r.re * im[b] + r.im * re[b]]
    re[a] = r.c * x - r.s * u
    im[a] = r.c * y - r.s * v
    re[b] = r.s * x + r.c * u
    im[b] = r.s * y + r.c * v
  }
}

/** G·m for the rotation G of rows p and q. */
export function rotateRows(m: Dense, p: number, q: number, r: Rotation): void {
  rotate(m, p * m.cols, q * m.cols, 1, m.cols, r)
}

/** m·Gᴴ for the rotation G of columns p and q. */
export function rotateColumns(m: Dense, p: number, q: number, { c, s, re, im }: Rotation): void {
  rotate(m, p, q, m.cols, m.rows, { c, s, re, im: -im })
}

/** The rotation that makes the off-diagonal element g of [[a, g], [conj g, b]] zero: Jacobi's, with the smaller angle. */
export function jacobiRotation(a: number, b: number, re: number, im: number): Rotation {
  const size = Math.hypot(re, im)
  const zeta = (b - a) / (2 * size)
  const t = (zeta >= 0 ? 1 : -1) / (Math.abs(zeta) + Math.hypot(1, zeta))
  const c = 1 / Math.hypot(1, t)
  return { c, s: c * t, re: re / size, im: im / size }
}

function read(x: HostArray, batch: number): Dense {
  const [rows, cols] = x.shape.slice(-2)
  const m = new Dense(rows, cols)
  const count = rows * cols
  for (let k = 0; k < count; k++) {
    const from = batch * count + k
    if (x.dtype === complex64) {
      m.re[k] = x.data[2 * from]
      m.im[k] = x.data[2 * from + 1]
    } else m.re[k] = x.data[from]
  }
  return m
}

function write(out: HostArray, batch: number, m: Dense): void {
  const count = m.re.length
  for (let k = 0; k < count; k++) {
    const to = batch * count + k
    if (out.dtype === complex64) {
      out.data[2 * to] = m.re[k]
      out.data[2 * to + 1] = m.im[k]
    } else out.data[to] = m.re[k]
  }
}

/**
 * Runs `body` for every matrix of a batch: on the matrices of the inputs, for the matrices of the outputs; columns stand for
 * vectors.
 */
export function eachMatrix(
  inputs: readonly HostArray[],
  outputs: readonly HostArray[],
  body: (matrices: Dense[]) => readonly Dense[],
): void {
  const batches = sizeOf(inputs[0].shape.slice(0, -2))
  for (let batch = 0; batch < batches; batch++) {
    const results = body(inputs.map((x) => read(x, batch)))
    for (let i = 0; i < outputs.length; i++) write(outputs[i], batch, results[i])
  }
}
