/**
 * A complex number as a JavaScript value: what `item()` gives for complex64, and what stands beside arrays as a scalar.
 */
import { INSPECT } from "./inspect"

/** A complex number. `mx.complex(re, im)` makes one. */
export class Complex {
  constructor(
    /** Real part. */
    readonly re: number,
    /** Imaginary part. */
    readonly im: number = 0,
  ) {}

  /** As MLX prints it: `1+2j`. */
  toString(): string {
    return `${this.re}${this.im < 0 || Object.is(this.im, -0) ? "-" : "+"}${Math.abs(this.im)}j`
  }

  [INSPECT](): string {
    return this.toString()
  }
}

/**
 * A complex number, for building complex64 arrays.
 *
 * @example
 * mx.array([mx.complex(1, 2)]).dtype.name
 * // => 'complex64'
 */
export function complex(re: number, im = 0): Complex {
  return new Complex(re, im)
}
