/**
 * Rounding to decimals and towards zero, and division with remainder.
 */
import { type Operand, operation, type StreamOptions } from "../graph/args"
import { complex64, isInexact } from "../graph/dtype"
import { ArgumentError, DTypeError, describe } from "../graph/errors"
import type { Array } from "../graph/graph"
import { floorDivide, less, notEqual, remainder, where } from "./binary"
import { asOperand, toDtype } from "./constant"
import type { UnaryFunction } from "./unary"

const roundArgs = operation(
  "round",
  { a: "operand", decimals: "integer?" },
  (a: Array, decimals: number = 0): Array => {
    const x = asOperand("round", a)
    if (!Number.isInteger(decimals))
      throw new ArgumentError("round", `decimals must be an integer, received ${describe(decimals)}`)
    if (decimals === 0) return x.roundToInteger()
    if (!isInexact(x.dtype) && decimals > 0) return x
    const scale = 10 ** Math.abs(decimals)
    if (decimals > 0) return x.multiply(scale).roundToInteger().divide(scale)
    const tens = x.divide(scale).roundToInteger().multiply(scale)
    return tens.astype(x.dtype)
  },
)
/**
 * Rounds to the given number of decimals, ties to even; negative decimals round to tens, hundreds, …
 * @throws ArgumentError unless decimals is an integer
 * @example
 * mx.round(mx.array([1.25, 2.5]), 1).tolist()[1] // => 2.5
 */
export function round(a: Array, decimals?: number, options?: StreamOptions): Array
export function round(a: Array, options: { decimals?: number } & StreamOptions): Array
export function round(...args: unknown[]): Array {
  return roundArgs(args)
}

const truncArgs = operation("trunc", { a: "operand" }, (a: unknown): Array => {
  const x = asOperand("trunc", a)
  if (x.dtype === complex64) throw new DTypeError("trunc", "is not defined for complex64")
  return isInexact(x.dtype) ? where(x.less(0), x.ceil(), x.floor()) : x
})
/**
 * Rounds towards zero. Integers are unchanged.
 * @throws DTypeError for complex numbers
 * @example
 * mx.trunc(mx.array([1.7, -1.7])).tolist() // => [1, -1]
 */
export const trunc: UnaryFunction = (...args) => truncArgs(args)

const positiveArgs = operation("positive", { a: "operand" }, (a: unknown): Array => asOperand("positive", a))
/**
 * * Unary plus: returns the array unchanged.
 * @example
 * mx.positive(mx.array([-1])).tolist() // => [-1]
 */
export const positive: UnaryFunction = (...args) => positiveArgs(args)

const divmodArgs = operation(
  "divmod",
  { a: "operand", b: "operand" },
  (a: Operand, b: Operand): [Array, Array] => {
    const rest = remainder(a, b)
    const quotient = floorDivide(a, b)
    if (isInexact(rest.dtype)) return [quotient, rest]
    // Integers divide towards zero, and the remainder has the sign of b: where it has not that of a, the floor is one below.
    const isBelow = notEqual(rest, 0).logicalAnd(notEqual(less(a, 0), less(b, 0)))
    return [quotient.subtract(toDtype(isBelow, rest.dtype)), rest]
  },
)
/**
 * Quotient ⌊a / b⌋ and remainder, with the sign of b.
 * @example
 * mx.divmod(mx.array([7]), 2).map((part) => part.tolist()) // => [[3], [1]]
 */
export function divmod(a: Operand, b: Operand, options?: StreamOptions): [Array, Array]
export function divmod(...args: unknown[]): [Array, Array] {
  return divmodArgs(args)
}
