/**
 * Constants and dtype conversions, and the rules of weak typing, by which a JavaScript scalar operand gets its dtype.
 */
import { type Operand, operation, type Scalar, type StreamOptions } from "../graph/args"
import { Complex } from "../graph/complex-number"
import {
  asDtype,
  bool_,
  complex64,
  type Dtype,
  float32,
  int32,
  int64,
  integerRange,
  isInteger,
  promote,
} from "../graph/dtype"
import { ArgumentError, DTypeError, describe } from "../graph/errors"
import { Array, type ArrayOf, applyNode } from "../graph/graph"
import type { ValueIn } from "../graph/option-types"
import { definePrimitive } from "../graph/primitive"
import type { ScalarValue } from "../graph/scalar-program"
import { SCALAR } from "../graph/shape"

/** A scalar stored in its node; kernels read it from the command buffer. */
export const constant = definePrimitive({
  name: "constant",
  params: { value: "value", dtype: "dtype" },
  infer: (_inputs, { dtype }) => ({ shape: SCALAR, dtype }),
  scalar: (s, _inputs, { value, dtype }) => s.constant(value, dtype),
  facts: { immediate: true },
})

/** Conversion between dtypes; floating to integer truncates. */
export const cast = definePrimitive({
  name: "cast",
  params: { dtype: "dtype" },
  infer: ([x], { dtype }) => ({ shape: x.shape, dtype }),
  scalar: (s, [x], { dtype }) => s.cast(x, dtype),
  vjp: ({ inputs: [x], cotangents: [g] }) => [
    x.dtype.kind === "floating" || x.dtype.kind === "complex" ? toDtype(g, x.dtype) : null,
  ],
  jvp: ({ outputs: [y], tangents: [t] }) => [
    t && (y.dtype.kind === "floating" || y.dtype.kind === "complex") ? toDtype(t, y.dtype) : null,
  ],
})

/** `x` converted to `dtype`; `x` itself if it has that dtype. */
export function toDtype(x: Array, dtype: Dtype): Array {
  return x.node.dtype === dtype ? x : cast([x], { dtype })
}

/** float32 for 16-bit floats, otherwise the dtype itself. */
export const wide = (dtype: Dtype): Dtype => (dtype.kind === "floating" && dtype.size === 2 ? float32 : dtype)

const NO_NODES: never[] = []

/** A constant as a 0-d array. */
export function scalarArray(value: ScalarValue, dtype: Dtype): Array {
  return new Array(applyNode(constant.primitive, NO_NODES, { value, dtype }))
}

/** True if a value is a scalar operand. */
export function isScalar(value: unknown): value is Scalar {
  return (
    typeof value === "number" ||
    typeof value === "boolean" ||
    typeof value === "bigint" ||
    value instanceof Complex
  )
}

/** The dtype of a scalar without an array operand. */
export function scalarDtype(value: Scalar): Dtype {
  if (typeof value === "number") return float32
  if (typeof value === "boolean") return bool_
  return typeof value === "bigint" ? int64 : complex64
}

/** The dtype of a scalar with an array operand of `dtype`. */
export function weakDtype(value: Scalar, dtype: Dtype): Dtype {
  if (value instanceof Complex) return complex64
  if (typeof value === "boolean" || dtype.kind === "floating" || dtype.kind === "complex") return dtype
  if (typeof value === "bigint" || Number.isInteger(value)) return dtype === bool_ ? int32 : dtype
  return float32
}

/** A scalar as a 0-d array of a dtype. @throws DTypeError if the value is out of range */
export function scalarOf(op: string, value: Scalar, dtype: Dtype, hint?: string): Array {
  checkScalar(op, value, dtype, hint)
  return scalarArray(value, dtype)
}

/** @throws DTypeError if a value is out of a dtype's range */
export function checkScalar(op: string, value: Scalar, dtype: Dtype, hint?: string): void {
  if (value instanceof Complex && dtype !== complex64)
    throw new DTypeError(op, `a complex number does not fit ${dtype.name}`, { hint })
  if (!isInteger(dtype)) return
  const { min, max } = integerRange(dtype)
  const fits =
    typeof value === "bigint" ? value >= min && value <= max : !(Number(value) < min || Number(value) > max)
  if (fits) return
  throw new DTypeError(op, `the value ${value} does not fit ${dtype.name} (${min} to ${max})`, {
    hint: hint ?? `Convert the array first, or pass mx.array(${value}, dtype)`,
  })
}

/** Converts an operand to an array. @throws ArgumentError */
export function asOperand(op: string, value: unknown, name = "a"): Array {
  if (value instanceof Array) return value
  if (isScalar(value)) return scalarArray(value, scalarDtype(value))
  throw new ArgumentError(op, `${name} must be an array or a scalar, received ${describe(value)}`, {
    hint: "mx.array(data) makes an array",
  })
}

/** Converts two operands to arrays of one dtype: arrays are promoted, scalars are weakly typed. */
export function promoteOperands(
  op: string,
  a: unknown,
  b: unknown,
  /** The names of the arguments, for errors. */
  first = "a",
  second = "b",
): [Array, Array] {
  if (a instanceof Array) {
    if (b instanceof Array) {
      if (a.node.dtype === b.node.dtype) return [a, b]
      const dtype = promote(a.dtype, b.dtype)
      return [toDtype(a, dtype), toDtype(b, dtype)]
    }
    if (isScalar(b)) {
      const dtype = weakDtype(b, a.dtype)
      return [toDtype(a, dtype), scalarOf(op, b, dtype)]
    }
  } else if (b instanceof Array && isScalar(a)) {
    const dtype = weakDtype(a, b.dtype)
    return [scalarOf(op, a, dtype), toDtype(b, dtype)]
  }
  const [x, y] = [asOperand(op, a, first), asOperand(op, b, second)]
  const dtype = promote(x.dtype, y.dtype)
  return [toDtype(x, dtype), toDtype(y, dtype)]
}

const astypeArgs = operation("astype", { a: "array", dtype: "dtype" }, (a: Array, dtype: Dtype) =>
  toDtype(a, asDtype("astype", dtype)),
)
/**
 * Converts to another dtype. Floating to integer truncates towards zero; complex to real takes the real part.
 *
 * @example
 * mx.array([1.7, -1.7]).astype(mx.int32).tolist()
 * // => [1, -1]
 */
export function astype<D extends Dtype>(a: Array, dtype: D, options?: StreamOptions): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function astype(...args: unknown[]): Array {
  return astypeArgs(args)
}

/** Converts an operand of a floating-point function: bool and integers become float32. */
export function floatOperand(op: string, a: Operand): Array {
  const x = asOperand(op, a)
  const { kind } = x.node.dtype
  return kind === "floating" || kind === "complex" ? x : toDtype(x, float32)
}
