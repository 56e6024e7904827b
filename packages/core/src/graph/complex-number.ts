/**
 * Complex numbers as JavaScript values: results of `item()` for complex64, and scalar operands.
 */
import { INSPECT } from "./inspect"

/** A complex number; see {@link complex}. */
export class Complex {
  constructor(
    /** Real part. */
    readonly re: number,
    /** Imaginary part. */
    readonly im: number = 0,
  ) {}

  /** Formatted as in MLX: `1+2j`. */
  toString(): string {
    return `${this.re}${this.im < 0 || Object.is(this.im, -0) ? "-" : "+"}${Math.abs(this.im)}j`
  }

  [INSPECT](): string {
    return this.toString()
  }
}

/**
 * Creates a complex number, for use in complex64 arrays and as a scalar.
 *
 * @example
 * mx.array([mx.complex(1, 2)]).dtype.name
 * // => 'complex64'
 */
export function complex(re: number, im = 0): Complex {
  return new Complex(re, im)
}
