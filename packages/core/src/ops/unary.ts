/**
 * Elementwise unary functions. Each is one scalar instruction, defined together with its derivative, except `degrees` and `radians`, which
 * multiply.
 */
import { type Operand, operation, type StreamOptions } from "../graph/args"
import { calls } from "../graph/calls"
import { Complex } from "../graph/complex-number"
import { bool_, complex64, type Dtype, float32, isInexact } from "../graph/dtype"
import { DTypeError } from "../graph/errors"
import { Array, applyNode, type Meta, type Partial } from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import { definePrimitive } from "../graph/primitive"
import type { UnaryOp } from "../graph/scalar-program"
import { complexUnary } from "../reference/complex"
import { asOperand, scalarArray, toDtype } from "./constant"
import { broadcastTo } from "./reduce"

/** 1 − x. The negative of x − 1 would be −0 where x is 1, and its reciprocal −∞. */
const oneMinus = (x: Array): Array => scalarArray(1, x.dtype).subtract(x)

/** An elementwise function of one array. */
export type UnaryFunction = (a: Operand, options?: StreamOptions) => Array

type Options = {
  /** The dtype to compute in, given that of the argument. */
  convert?: (dtype: Dtype) => Dtype
  /** Its name in recorded programs; the name by default. */
  call?: string
  /** The shape and dtype of the output, if not those of the input. */
  infer?: (x: Meta) => Meta
  /** The Jacobian–vector and vector–Jacobian products, if the derivative is not a factor. */
  change?: (x: Array, y: Array, d: Array) => Array | null
}

/** Defines the primitive and its public function. `derivative` is d(output)/d(input), a number if constant. */
function unary(
  name: UnaryOp,
  derivative: (x: Array, y: Array) => Partial,
  { convert, infer, change, call }: Options = {},
): UnaryFunction {
  const plain = infer ? ([x]: readonly Meta[]) => infer(x) : ([x]: readonly Meta[]) => x
  const { primitive } = definePrimitive({
    name,
    infer:
      name in complexUnary
        ? plain
        : (inputs) => {
            if (inputs[0].dtype === complex64) throw new DTypeError(name, "is not defined for complex64")
            return plain(inputs)
          },
    scalar: (s, [x]) => s[name](x),
    partials: ([x], y) => derivative(x, y),
    vjp: change && (({ inputs: [x], outputs: [y], cotangents: [g] }) => [change(x, y, g)]),
    jvp: change && (({ inputs: [x], outputs: [y], tangents: [t] }) => [t && change(x, y, t)]),
  })
  const apply = (a: unknown): Array => {
    let x = asOperand(call ?? name, a)
    if (convert) x = toDtype(x, convert(x.node.dtype))
    return new Array(applyNode(primitive, [x.node], NO_PARAMS))
  }
  const general = operation(call ?? name, { a: "operand" }, apply)
  return (...args: unknown[]) =>
    args.length === 1 && args[0] instanceof Array && calls.recorder === null ? apply(args[0]) : general(args)
}

/** Floating-point functions: bool and integers become float32. */
const float: Options = { convert: (dtype) => (isInexact(dtype) ? dtype : float32) }
/** Functions that are not defined for complex numbers. */
const realOnly = (name: string, { convert }: Options = {}): Options => ({
  convert: (dtype) => {
    if (dtype === complex64) throw new DTypeError(name, "is not defined for complex64")
    return convert ? convert(dtype) : dtype
  },
})
const toBool: Options = { infer: (x) => ({ shape: x.shape, dtype: bool_ }) }
const toReal: Options = { infer: (x) => (x.dtype === complex64 ? { shape: x.shape, dtype: float32 } : x) }
const flat = (): Partial => 0
const TWO_OVER_SQRT_PI = 1.1283791670955126

/**
 * −a.
 * @example
 * mx.negative(mx.array([1, -2])).tolist() // => [-1, 2]
 */
export const negative: UnaryFunction = unary("negative", () => -1, {
  convert: (dtype) => {
    if (dtype === bool_)
      throw new DTypeError("negative", "is not defined for bool_", { hint: "mx.logicalNot negates booleans" })
    return dtype
  },
})

/**
 * Absolute value; for complex numbers the modulus, as float32.
 * @example
 * mx.abs(mx.array([-1, 2])).tolist() // => [1, 2]
 */
export const abs: UnaryFunction = unary("abs", (x) => x.sign(), toReal)

/**
 * The sign: −1, 0 or 1; for complex numbers a / |a|.
 * @example
 * mx.sign(mx.array([-3, 0, 2])).tolist() // => [-1, 0, 1]
 */
export const sign: UnaryFunction = unary("sign", flat, {
  // Of a complex y = x / |x|, the part of d that turns y: (d − y · Re(conj(y) · d)) / |x|; it is its own transpose.
  change: (x, y, d) => {
    if (x.dtype !== complex64) return null
    const size = x.abs()
    const turning = d.subtract(y.multiply(y.conjugate().multiply(d).real))
    // At 0, where nothing turns, by infinity.
    return turning.divide(size.add(size.equal(0).divide(size)))
  },
})

/**
 * Rounds down to an integer. Integers are unchanged.
 * @example
 * mx.floor(mx.array([1.5, -1.5])).tolist() // => [1, -2]
 */
export const floor: UnaryFunction = unary("floor", flat, realOnly("floor"))

/**
 * Rounds up to an integer. Integers are unchanged.
 * @example
 * mx.ceil(mx.array([1.5, -1.5])).tolist() // => [2, -1]
 */
export const ceil: UnaryFunction = unary("ceil", flat, realOnly("ceil"))

/** Rounds to the nearest integer, ties to even; `round` in shape.ts's sense of decimals is built on it. */
export const roundToInteger: UnaryFunction = unary("round", flat, { call: "roundToInteger" })

/**
 * Square root; float32 for integers.
 * @example
 * mx.sqrt(mx.array([4, 9])).tolist() // => [2, 3]
 */
export const sqrt: UnaryFunction = unary("sqrt", (_x, y) => y.reciprocal().multiply(0.5), float)

/**
 * 1 / √a.
 * @example
 * mx.rsqrt(mx.array([4])).tolist() // => [0.5]
 */
export const rsqrt: UnaryFunction = unary("rsqrt", (x, y) => y.divide(x).multiply(-0.5), float)

/**
 * a².
 * @example
 * mx.square(mx.array([-3, 2])).tolist() // => [9, 4]
 */
export const square: UnaryFunction = unary("square", (x) => x.multiply(2))

/**
 * 1 / a; float32 for integers.
 * @example
 * mx.reciprocal(mx.array([4])).tolist() // => [0.25]
 */
export const reciprocal: UnaryFunction = unary("reciprocal", (_x, y) => y.square().negative(), float)

/**
 * eᵃ.
 * @example
 * mx.exp(mx.array([0])).tolist() // => [1]
 */
export const exp: UnaryFunction = unary("exp", (_x, y) => y, float)

/**
 * eᵃ − 1, accurate for small a.
 * @example
 * mx.expm1(mx.array([0])).tolist() // => [0]
 */
export const expm1: UnaryFunction = unary("expm1", (_x, y) => y.add(1), realOnly("expm1", float))

/**
 * Natural logarithm.
 * @example
 * mx.log(mx.array([1])).tolist() // => [0]
 */
export const log: UnaryFunction = unary("log", (x) => x.reciprocal(), float)

/**
 * Logarithm to base 2.
 * @example
 * mx.log2(mx.array([8])).tolist() // => [3]
 */
export const log2: UnaryFunction = unary("log2", (x) => x.reciprocal().multiply(Math.LOG2E), float)

/**
 * Logarithm to base 10.
 * @example
 * mx.log10(mx.array([100])).tolist() // => [2]
 */
export const log10: UnaryFunction = unary("log10", (x) => x.reciprocal().multiply(Math.LOG10E), float)

/**
 * log(1 + a), accurate for small a.
 * @example
 * mx.log1p(mx.array([0])).tolist() // => [0]
 */
export const log1p: UnaryFunction = unary("log1p", (x) => x.add(1).reciprocal(), float)

/**
 * Sine of radians.
 * @example
 * mx.sin(mx.array([0])).tolist() // => [0]
 */
export const sin: UnaryFunction = unary("sin", (x) => x.cos(), float)

/**
 * Cosine of radians.
 * @example
 * mx.cos(mx.array([0])).tolist() // => [1]
 */
export const cos: UnaryFunction = unary("cos", (x) => x.sin().negative(), float)

/**
 * Tangent of radians.
 * @example
 * mx.tan(mx.array([0])).tolist() // => [0]
 */
export const tan: UnaryFunction = unary("tan", (_x, y) => y.square().add(1), float)

/**
 * Inverse sine, in radians.
 * @example
 * mx.arcsin(mx.array([0])).tolist() // => [0]
 */
export const arcsin: UnaryFunction = unary("arcsin", (x) => oneMinus(x.square()).rsqrt(), float)

/**
 * Inverse cosine, in radians.
 * @example
 * mx.arccos(mx.array([1])).tolist() // => [0]
 */
export const arccos: UnaryFunction = unary("arccos", (x) => oneMinus(x.square()).rsqrt().negative(), float)

/**
 * Inverse tangent, in radians.
 * @example
 * mx.arctan(mx.array([0])).tolist() // => [0]
 */
export const arctan: UnaryFunction = unary("arctan", (x) => x.square().add(1).reciprocal(), float)

/**
 * Hyperbolic sine.
 * @example
 * mx.sinh(mx.array([0])).tolist() // => [0]
 */
export const sinh: UnaryFunction = unary("sinh", (x) => x.cosh(), float)

/**
 * Hyperbolic cosine.
 * @example
 * mx.cosh(mx.array([0])).tolist() // => [1]
 */
export const cosh: UnaryFunction = unary("cosh", (x) => x.sinh(), float)

/**
 * Hyperbolic tangent.
 * @example
 * mx.tanh(mx.array([0])).tolist() // => [0]
 */
export const tanh: UnaryFunction = unary("tanh", (_x, y) => oneMinus(y.square()), float)

/**
 * Inverse hyperbolic sine.
 * @example
 * mx.arcsinh(mx.array([0])).tolist() // => [0]
 */
export const arcsinh: UnaryFunction = unary("arcsinh", (x) => x.square().add(1).rsqrt(), float)

/**
 * Inverse hyperbolic cosine.
 * @example
 * mx.arccosh(mx.array([1])).tolist() // => [0]
 */
export const arccosh: UnaryFunction = unary(
  "arccosh",
  // √(x − 1) · √(x + 1) differs from √(x² − 1) in the left complex half-plane, where only it is correct.
  (x) =>
    x.dtype === complex64 ? x.subtract(1).rsqrt().multiply(x.add(1).rsqrt()) : x.square().subtract(1).rsqrt(),
  float,
)

/**
 * Inverse hyperbolic tangent.
 * @example
 * mx.arctanh(mx.array([0])).tolist() // => [0]
 */
export const arctanh: UnaryFunction = unary("arctanh", (x) => oneMinus(x.square()).reciprocal(), float)

/**
 * The error function 2/√π ∫₀ᵃ exp(−t²) dt.
 * @example
 * mx.erf(mx.array([0])).tolist() // => [0]
 */
export const erf: UnaryFunction = unary(
  "erf",
  (x) => x.square().negative().exp().multiply(TWO_OVER_SQRT_PI),
  float,
)

/**
 * The inverse of {@link erf}, on (−1, 1).
 * @example
 * mx.erfinv(mx.array([0])).tolist() // => [0]
 */
export const erfinv: UnaryFunction = unary(
  "erfinv",
  (_x, y) =>
    y
      .square()
      .exp()
      .multiply(1 / TWO_OVER_SQRT_PI),
  float,
)

/**
 * The logistic function 1 / (1 + e⁻ᵃ).
 * @example
 * mx.sigmoid(mx.array([0])).tolist() // => [0.5]
 */
export const sigmoid: UnaryFunction = unary(
  "sigmoid",
  (_x, y) => y.multiply(oneMinus(y)),
  realOnly("sigmoid", float),
)

/**
 * Bitwise NOT of integers, logical NOT of bools.
 * @example
 * mx.bitwiseInvert(mx.array([0, 5], mx.int32)).tolist() // => [-1, -6]
 */
export const bitwiseInvert: UnaryFunction = unary("bitwiseInvert", flat, {
  convert: (dtype) => {
    if (isInexact(dtype))
      throw new DTypeError("bitwiseInvert", `expected an integer or bool array, received ${dtype.name}`)
    return dtype
  },
})

/**
 * True where an element is zero.
 * @example
 * mx.logicalNot(mx.array([true, false])).tolist() // => [false, true]
 */
export const logicalNot: UnaryFunction = unary("logicalNot", flat, toBool)

const conjugatePrimitive = definePrimitive({
  name: "conjugate",
  infer: ([x]) => x,
  scalar: (s, [x]) => s.conjugate(x),
  vjp: ({ cotangents: [g] }) => [g.conjugate()],
  jvp: ({ tangents: [t] }) => [t ? t.conjugate() : null],
})
const conjugateOf = operation("conjugate", { a: "operand" }, (a: unknown) => {
  const x = asOperand("conjugate", a)
  return x.dtype === complex64 ? conjugatePrimitive([x]) : x
})
/**
 * The complex conjugate; real arrays are unchanged.
 * @example
 * mx.conjugate(mx.array([mx.complex(1, 2)])).imag.tolist() // => [-2]
 */
export const conjugate: UnaryFunction = (...args) => conjugateOf(args)

const realPrimitive = definePrimitive({
  name: "real",
  infer: ([x]) => ({ shape: x.shape, dtype: x.dtype === complex64 ? float32 : x.dtype }),
  scalar: (s, [x]) => s.real(x),
  vjp: ({ inputs: [x], cotangents: [g] }) => [toDtype(g, x.dtype)],
  jvp: ({ tangents: [t] }) => [t ? t.real : null],
})
const realOf = operation("real", { a: "operand" }, (a: unknown) => {
  const x = asOperand("real", a)
  return x.dtype === complex64 ? realPrimitive([x]) : x
})
/**
 * The real part, as float32; real arrays are unchanged.
 * @method false
 * @example
 * mx.real(mx.array([mx.complex(1, 2)])).tolist() // => [1]
 */
export const real: UnaryFunction = (...args) => realOf(args)

const imagPrimitive = definePrimitive({
  name: "imag",
  infer: ([x]) => ({ shape: x.shape, dtype: x.dtype === complex64 ? float32 : x.dtype }),
  scalar: (s, [x]) => s.imag(x),
  // Re(conj(c)·imag(z)) has the gradient i·c.
  vjp: ({ inputs: [x], cotangents: [g] }) => [
    x.dtype === complex64 ? toDtype(g, complex64).multiply(new Complex(0, 1)) : null,
  ],
  jvp: ({ tangents: [t] }) => [t ? t.imag : null],
})
const imagOf = operation("imag", { a: "operand" }, (a: unknown) => {
  const x = asOperand("imag", a)
  return x.dtype === complex64 ? imagPrimitive([x]) : broadcastTo(scalarArray(0, x.dtype), x.shape)
})
/**
 * The imaginary part, as float32; zeros for real arrays.
 * @method false
 * @example
 * mx.imag(mx.array([mx.complex(1, 2)])).tolist() // => [2]
 */
export const imag: UnaryFunction = (...args) => imagOf(args)

function scaled(name: string, factor: number): UnaryFunction {
  const args = operation(name, { a: "operand" }, (a: Operand): Array => asOperand(name, a).multiply(factor))
  return (...rest: unknown[]) => args(rest)
}

/**
 * Radians to degrees.
 * @example
 * mx.degrees(mx.array([Math.PI])).tolist() // => [180]
 */
export const degrees: UnaryFunction = scaled("degrees", 180 / Math.PI)

/**
 * Degrees to radians.
 * @example
 * mx.radians(mx.array([0])).tolist() // => [0]
 */
export const radians: UnaryFunction = scaled("radians", Math.PI / 180)
