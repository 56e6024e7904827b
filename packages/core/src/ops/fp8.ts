/**
 * The eight-bit float E4M3 of Micikevicius et al., "FP8 formats for deep learning", 2022: a sign, four bits of exponent (bias 7), three of
 * mantissa, no infinities. The encoding of NaN there (all ones) is 480 here, as in MLX. Stored as uint8.
 */
import { operation, type StreamOptions } from "../graph/args"
import { asDtype, bfloat16, type Dtype, float32, uint8 } from "../graph/dtype"
import { DTypeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../graph/primitive"
import type { ScalarOps } from "../graph/scalar-program"

/** Divides by 2^shift wherever x ≥ bound, and counts `shift` there. */
function reduceExponent<V>(s: ScalarOps<V>, x: V, count: V, bound: number, shift: number): [V, V] {
  const f = (value: number): V => s.constant(value, float32)
  const large = s.greaterEqual(x, f(bound))
  return [
    s.select(large, s.multiply(x, f(2 ** -shift)), x),
    s.select(large, s.add(count, f(8 * shift)), count),
  ]
}

/** Rounds x to the nearest E4M3, ties to even. Values beyond ±448, and NaN, become ±448. */
export const encodeFp8: Apply<NoParams> = definePrimitive({
  name: "toFp8",
  infer: ([x]) => {
    if (x.dtype.kind !== "floating")
      throw new DTypeError("toFp8", `x must be of a real floating dtype, received ${x.dtype.name}`)
    return { shape: x.shape, dtype: uint8 }
  },
  scalar: (s, [input]) => {
    const f = (value: number) => s.constant(value, float32)
    const x = s.cast(input, float32)
    const size = s.abs(x)
    // In units of 2⁻⁹, the smallest E4M3. From 16 units on, each doubling of x doubles the spacing and adds 8 to the code.
    let units = s.multiply(s.select(s.lessEqual(size, f(448)), size, f(448)), f(512))
    let code = f(0)
    ;[units, code] = reduceExponent(s, units, code, 2 ** 11, 8)
    ;[units, code] = reduceExponent(s, units, code, 2 ** 7, 4)
    ;[units, code] = reduceExponent(s, units, code, 2 ** 5, 2)
    ;[units, code] = reduceExponent(s, units, code, 2 ** 4, 1)
    const rounded = s.add(s.round(units), code)
    // −0 is negative too: 1/−0 is −∞.
    const negative = s.logicalOr(s.less(x, f(0)), s.less(s.reciprocal(x), f(0)))
    return s.cast(s.select(negative, s.add(rounded, f(128)), rounded), uint8)
  },
})

/** The exact value of an E4M3. */
export const decodeFp8: Apply<{ dtype: Dtype }> = definePrimitive({
  name: "fromFp8",
  params: { dtype: "dtype" },
  infer: ([x], { dtype }) => {
    if (x.dtype !== uint8)
      throw new DTypeError("fromFp8", `x must be uint8, which contains the bits, received ${x.dtype.name}`)
    if (dtype.kind !== "floating")
      throw new DTypeError("fromFp8", `dtype must be a real floating dtype, received ${dtype.name}`)
    return { shape: x.shape, dtype }
  },
  scalar: (s, [x], { dtype }) => {
    const f = (value: number) => s.constant(value, float32)
    const bits = (mask: number) => s.bitwiseAnd(x, s.constant(mask, uint8))
    const isSet = (mask: number) => s.notEqual(bits(mask), s.constant(0, uint8))
    const mantissa = s.cast(bits(7), float32)
    // The unit of the mantissa is 2^(exponent − 10) with the hidden bit, 2⁻⁹ without. The power is a product over the exponent's bits.
    let value = s.multiply(s.select(isSet(0x78), s.add(mantissa, f(8)), mantissa), f(2 ** -10))
    value = s.select(isSet(0x78), value, s.multiply(value, f(2)))
    for (let bit = 0; bit < 4; bit++)
      value = s.select(isSet(8 << bit), s.multiply(value, f(2 ** (1 << bit))), value)
    return s.cast(s.select(isSet(0x80), s.negative(value), value), dtype)
  },
})

const toFp8Args = operation("toFp8", { x: "array" }, (x: Array) => encodeFp8([x]))
/**
 * Rounds to 8-bit floats (E4M3: 1 sign, 4 exponent, 3 mantissa bits), stored as uint8. Rounds to nearest, ties to even; values beyond ±448,
 * and NaN, become ±448.
 * @method false
 * @throws DTypeError unless x is of a real floating dtype
 * @example
 * mx.toFp8(mx.array([1, -1.5, 1000])).tolist() // => [56, 188, 126]
 */
export function toFp8(x: Array, options?: StreamOptions): Array
export function toFp8(...args: unknown[]): Array {
  return toFp8Args(args)
}

const fromFp8Args = operation(
  "fromFp8",
  { x: "array", dtype: "dtype?" },
  (x: Array, dtype: Dtype = bfloat16) => decodeFp8([x], { dtype: asDtype("fromFp8", dtype) }),
)
/**
 * Converts 8-bit floats (E4M3) to a floating dtype, bfloat16 by default. The conversion is exact.
 * @method false
 * @throws DTypeError unless x is uint8 and dtype a real floating one
 * @example
 * mx.fromFp8(mx.array([56, 188, 126], mx.uint8), mx.float32).tolist() // => [1, -1.5, 448]
 */
export function fromFp8(x: Array, dtype?: Dtype, options?: StreamOptions): Array
export function fromFp8(x: Array, options: { dtype?: Dtype } & StreamOptions): Array
export function fromFp8(...args: unknown[]): Array {
  return fromFp8Args(args)
}
