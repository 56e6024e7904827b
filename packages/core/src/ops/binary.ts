/**
 * Elementwise binary functions with broadcasting, and `where`. Each is one scalar instruction, defined together with its derivatives.
 */
import { type Operand, operation, type StreamOptions } from "../graph/args"
import { calls } from "../graph/calls"
import { bool_, complex64, type Dtype, float32, isInexact, uint8 } from "../graph/dtype"
import { DTypeError } from "../graph/errors"
import { Array, applyNode, type Meta, type Partial } from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import { definePrimitive } from "../graph/primitive"
import type { BinaryOp } from "../graph/scalar-program"
import { broadcastShapes } from "../graph/shape"
import { asOperand, constant, promoteOperands, scalarOf, toDtype } from "./constant"

/** An elementwise function of two arrays; shapes broadcast, dtypes are promoted. */
export type BinaryFunction = (a: Operand, b: Operand, options?: StreamOptions) => Array

type Options = {
  /** The dtype to compute in, given the promoted dtype. */
  convert?: (dtype: Dtype) => Dtype
  /** The dtype of the output, if not that of the arguments. */
  result?: Dtype
  /** Reject complex numbers. */
  realOnly?: boolean
}
type Derivatives = readonly [
  (x: Array, y: Array, out: Array) => Partial,
  (x: Array, y: Array, out: Array) => Partial,
]

/** Defines the primitive and its public function. `derivatives` are those of the output with respect to each argument. */
function binary(
  name: BinaryOp,
  derivatives: Derivatives,
  { convert, result, realOnly }: Options = {},
): BinaryFunction {
  const infer = (inputs: readonly Meta[]): Meta => {
    // Indexed: destructuring would run an iterator in every operation.
    const x = inputs[0]
    const y = inputs[1]
    if (result === undefined && x.shape === y.shape) return x
    return { shape: broadcastShapes(name, x.shape, y.shape), dtype: result ?? x.dtype }
  }
  const inferReal = (inputs: readonly Meta[]): Meta => {
    if (inputs[0].dtype === complex64) throw new DTypeError(name, "is not defined for complex64")
    return infer(inputs)
  }
  const { primitive } = definePrimitive({
    name,
    infer: realOnly ? inferReal : infer,
    scalar: (s, [x, y]) => s[name](x, y),
    partials: ([x, y], out, _params, which) => derivatives[which](x, y, out),
  })
  const apply = (a: unknown, b: unknown): Array => {
    let [x, y] = promoteOperands(name, a, b)
    if (convert) {
      const dtype = convert(x.node.dtype)
      x = toDtype(x, dtype)
      y = toDtype(y, dtype)
    }
    return new Array(applyNode(primitive, [x.node, y.node], NO_PARAMS))
  }
  const general = operation(name, { a: "operand", b: "operand" }, apply)
  return (a: unknown, b: unknown, ...rest: unknown[]) => {
    if (rest.length > 0 || !(b instanceof Array) || calls.recorder !== null) return general([a, b, ...rest])
    if (convert || !(a instanceof Array) || a.node.dtype !== b.node.dtype) return apply(a, b)
    return new Array(applyNode(primitive, [a.node, b.node], NO_PARAMS))
  }
}

const zeroPartial = (): Partial => 0
const noDerivatives: Derivatives = [zeroPartial, zeroPartial]
const comparison: Options = { result: bool_ }
const float: Options = { convert: (dtype) => (isInexact(dtype) ? dtype : float32) }
const integral = (name: string): Options => ({
  convert: (dtype) => {
    if (isInexact(dtype))
      throw new DTypeError(name, `expected integer or bool arrays, received ${dtype.name}`)
    return dtype
  },
})
/** bools are shifted as uint8. */
const shifting = (name: string): Options => ({
  convert: (dtype) => {
    const same = integral(name).convert?.(dtype) ?? dtype
    return same === bool_ ? uint8 : same
  },
})
/** 1 where the condition holds, in the dtype of `like`. */
const indicator = (condition: Array, like: Array): Array => toDtype(condition, like.dtype)

/**
 * a + b.
 * @example
 * mx.add(mx.array([1, 2]), 10).tolist() // => [11, 12]
 */
export const add: BinaryFunction = binary("add", [() => 1, () => 1])

/**
 * a − b.
 * @example
 * mx.subtract(1, mx.array([1, 2])).tolist() // => [0, -1]
 */
export const subtract: BinaryFunction = binary("subtract", [() => 1, () => -1])

/**
 * a · b.
 * @example
 * mx.multiply(mx.array([1, 2]), 3).tolist() // => [3, 6]
 */
export const multiply: BinaryFunction = binary("multiply", [(_x, y) => y, (x) => x])

/**
 * a / b. Integers are converted to floating point.
 * @example
 * mx.divide(mx.array([1, 2], mx.int32), 2).tolist() // => [0.5, 1]
 */
export const divide: BinaryFunction = binary(
  "divide",
  [(_x, y) => y.reciprocal(), (_x, y, out) => out.divide(y).negative()],
  float,
)

/**
 * ⌊a / b⌋; for integers, a / b rounded towards zero, as in MLX. Integer division by zero gives 0.
 * @example
 * mx.floorDivide(mx.array([7, -7]), 2).tolist() // => [3, -4]
 */
export const floorDivide: BinaryFunction = binary("floorDivide", noDerivatives, {
  realOnly: true,
})

/**
 * a − b · ⌊a / b⌋: the remainder, with the sign of b.
 * @example
 * mx.remainder(mx.array([7, -7], mx.int32), 4).tolist() // => [3, 1]
 */
export const remainder: BinaryFunction = binary(
  "remainder",
  [() => 1, (x, y) => x.floorDivide(y).negative()],
  { realOnly: true },
)

/** y·x^(y−1), and 0 instead of NaN where both are 0. */
function slopeOfPower(x: Array, y: Array): Partial {
  const { primitive, params } = y.node
  const isLiteral = primitive === constant.primitive
  if (isLiteral && params.value === 0) return 0
  const base = isLiteral ? x : select(x.equal(0).bitwiseAnd(y.equal(0)), x.add(1), x)
  return base.power(y.subtract(1)).multiply(y)
}

/**
 * a to the power b.
 * @example
 * mx.power(mx.array([2, 3]), 2).tolist() // => [4, 9]
 */
export const power: BinaryFunction = binary("power", [
  slopeOfPower,
  // Where a is 0, log a is replaced by 0, so that the derivative is 0 rather than NaN.
  (x, _y, out) => out.multiply(select(x.equal(0), x.multiply(0), x.log())),
])

/**
 * The elementwise maximum; NaN if either is NaN. At ties, the gradient goes to b, as in MLX.
 * @example
 * mx.maximum(mx.array([1, 5]), 3).tolist() // => [3, 5]
 */
export const maximum: BinaryFunction = binary("maximum", [
  (x, y) => indicator(x.greater(y), x),
  (x, y) => indicator(x.lessEqual(y), x),
])

/**
 * The elementwise minimum; NaN if either is NaN. At ties, the gradient goes to b, as in MLX.
 * @example
 * mx.minimum(mx.array([1, 5]), 3).tolist() // => [1, 3]
 */
export const minimum: BinaryFunction = binary("minimum", [
  (x, y) => indicator(x.less(y), x),
  (x, y) => indicator(x.greaterEqual(y), x),
])

/**
 * The angle of the point (x, y) = (b, a), in radians.
 * @example
 * mx.arctan2(mx.array([0]), mx.array([1])).tolist() // => [0]
 */
export const arctan2: BinaryFunction = binary(
  "arctan2",
  [(x, y) => y.divide(x.square().add(y.square())), (x, y) => x.divide(x.square().add(y.square())).negative()],
  { ...float, realOnly: true },
)

/** eˣ / (eˣ + eʸ). */
const shareOf = (x: Array, y: Array, out: Array): Array =>
  x.dtype === complex64 ? x.subtract(out).exp() : x.subtract(y).sigmoid()

/**
 * log(eᵃ + eᵇ), without overflow.
 * @example
 * mx.logaddexp(mx.array([0]), -Infinity).tolist() // => [0]
 */
export const logaddexp: BinaryFunction = binary(
  "logaddexp",
  [(x, y, out) => shareOf(x, y, out), (x, y, out) => shareOf(y, x, out)],
  float,
)

/**
 * Bitwise AND of integers, logical AND of bools.
 * @example
 * mx.bitwiseAnd(mx.array([6], mx.int32), 3).tolist() // => [2]
 */
export const bitwiseAnd: BinaryFunction = binary("bitwiseAnd", noDerivatives, integral("bitwiseAnd"))

/**
 * Bitwise OR of integers, logical OR of bools.
 * @example
 * mx.bitwiseOr(mx.array([6], mx.int32), 1).tolist() // => [7]
 */
export const bitwiseOr: BinaryFunction = binary("bitwiseOr", noDerivatives, integral("bitwiseOr"))

/**
 * Bitwise XOR of integers, logical XOR of bools.
 * @example
 * mx.bitwiseXor(mx.array([6], mx.int32), 3).tolist() // => [5]
 */
export const bitwiseXor: BinaryFunction = binary("bitwiseXor", noDerivatives, integral("bitwiseXor"))

/**
 * Shifts the bits of integers left: a · 2ᵇ without overflow bits.
 * @example
 * mx.leftShift(mx.array([1], mx.int32), 3).tolist() // => [8]
 */
export const leftShift: BinaryFunction = binary("leftShift", noDerivatives, shifting("leftShift"))

/**
 * Shifts the bits of integers right: ⌊a / 2ᵇ⌋.
 * @example
 * mx.rightShift(mx.array([8], mx.int32), 3).tolist() // => [1]
 */
export const rightShift: BinaryFunction = binary("rightShift", noDerivatives, shifting("rightShift"))

/**
 * Logical AND: true where both are nonzero.
 * @example
 * mx.logicalAnd(mx.array([true, true]), mx.array([true, false])).tolist() // => [true, false]
 */
export const logicalAnd: BinaryFunction = binary("logicalAnd", noDerivatives, comparison)

/**
 * Logical OR: true where either is nonzero.
 * @example
 * mx.logicalOr(mx.array([true, false]), mx.array([false, false])).tolist() // => [true, false]
 */
export const logicalOr: BinaryFunction = binary("logicalOr", noDerivatives, comparison)

/**
 * Elementwise a == b.
 * @example
 * mx.equal(mx.array([1, 2]), 2).tolist() // => [false, true]
 */
export const equal: BinaryFunction = binary("equal", noDerivatives, comparison)

/**
 * Elementwise a ≠ b.
 * @example
 * mx.notEqual(mx.array([1, 2]), 2).tolist() // => [true, false]
 */
export const notEqual: BinaryFunction = binary("notEqual", noDerivatives, comparison)

/**
 * Elementwise a < b.
 * @example
 * mx.less(mx.array([1, 2]), 2).tolist() // => [true, false]
 */
export const less: BinaryFunction = binary("less", noDerivatives, comparison)

/**
 * Elementwise a ≤ b.
 * @example
 * mx.lessEqual(mx.array([1, 3]), 2).tolist() // => [true, false]
 */
export const lessEqual: BinaryFunction = binary("lessEqual", noDerivatives, comparison)

/**
 * Elementwise a > b.
 * @example
 * mx.greater(mx.array([1, 3]), 2).tolist() // => [false, true]
 */
export const greater: BinaryFunction = binary("greater", noDerivatives, comparison)

/**
 * Elementwise a ≥ b.
 * @example
 * mx.greaterEqual(mx.array([1, 2]), 2).tolist() // => [false, true]
 */
export const greaterEqual: BinaryFunction = binary("greaterEqual", noDerivatives, comparison)

/** The primitive of {@link where}: a condition and two branches of one dtype. */
const select_ = definePrimitive({
  name: "select",
  infer: ([c, x, y]): Meta => ({
    shape: broadcastShapes("where", c.shape, broadcastShapes("where", x.shape, y.shape)),
    dtype: x.dtype,
  }),
  scalar: (s, [c, x, y]) => s.select(c, x, y),
  vjp: ({ inputs: [c, x], cotangents: [g], wanted }) => {
    const zero = scalarOf("where", 0, x.dtype)
    return [null, wanted[1] ? select(c, g, zero) : null, wanted[2] ? select(c, zero, g) : null]
  },
  jvp: ({ inputs: [c, x], tangents: [, tx, ty] }) => {
    const zero = scalarOf("where", 0, x.dtype)
    return [select(c, tx ?? zero, ty ?? zero)]
  },
})

/** `x` where `condition` (bool_) is true, `y` elsewhere; `x` and `y` have one dtype. */
function select(condition: Array, x: Array, y: Array): Array {
  return select_([condition, x, y])
}

const whereArgs = operation(
  "where",
  { condition: "operand", x: "operand", y: "operand" },
  (condition: Operand, a: Operand, b: Operand) => {
    const [x, y] = promoteOperands("where", a, b, "x", "y")
    return select(toDtype(asOperand("where", condition), bool_), x, y)
  },
)
/**
 * `x` where the condition is true, `y` elsewhere; all three broadcast.
 * @example
 * mx.where(mx.array([true, false]), mx.array([1, 2]), 0).tolist() // => [1, 0]
 */
export const where: (condition: Operand, x: Operand, y: Operand, options?: StreamOptions) => Array = (
  ...args
) => whereArgs(args)
