/**
 * Activation functions. Composite ones are primitives with scalar semantics, so that each is one pass over memory even without compilation,
 * and derivatives are derived. The layers of the same names are in layers/activations.ts. It is long because there are many functions.
 */
import * as mx from "@lazuli/core"
import {
  asArrayArgument,
  atLeastFloat,
  DTypeError,
  type Meta,
  normalizeAxis,
  type ParamSchema,
  type ParamsOf,
  type PrimitiveRules,
  ShapeError,
} from "@lazuli/core/engine"
import { belowMaximum } from "./below-maximum"
import { operation } from "./operation"

/** An elementwise function of an array. */
export type Activation = (x: mx.Array, options?: mx.StreamOptions) => mx.Array

type Rules<S extends ParamSchema> = Pick<PrimitiveRules<ParamsOf<S>>, "scalar" | "partials">

/** Checks for a floating dtype; integers have been converted to float32. @throws DTypeError */
function ofReals(name: string, x: Meta): Meta {
  if (x.dtype.kind === "floating") return x
  throw new DTypeError(name, `expected real floating-point numbers, received ${x.dtype.name}`)
}

/** Defines an elementwise unary primitive on floating dtypes. */
const elementwise = <const S extends ParamSchema>(name: string, params: S, rules: Rules<S>) =>
  mx.definePrimitive<S>({ name: `@lazuli/nn/${name}`, params, infer: ([x]) => ofReals(name, x), ...rules })

/** Converts an argument to floating point: integers become float32. */
function floating(op: string, x: unknown): mx.Array {
  const array = asArrayArgument(op, "x", x)
  const dtype = atLeastFloat(array.dtype)
  return dtype === array.dtype ? array : array.astype(dtype)
}

/** The public function of a unary primitive without parameters. */
function activation(name: string, apply: (inputs: readonly mx.Array[]) => mx.Array): Activation {
  return ofArray(name, (x) => apply([floating(name, x)]))
}

/** A public function of one array of any dtype. */
function ofArray(name: string, apply: (x: mx.Array) => mx.Array): Activation {
  const args = operation(name, { x: "array" }, apply)
  return (...rest) => args(rest)
}

/**
 * max(x, 0).
 * @example
 * nn.relu(mx.array([-1, 2])).tolist() // => [0, 2]
 */
export const relu: Activation = ofArray("relu", (x) => mx.maximum(x, 0))

/**
 * max(x, 0)².
 * @example
 * nn.relu2(mx.array([-1, 2])).tolist() // => [0, 4]
 */
export const relu2: Activation = ofArray("relu2", (x) => mx.maximum(x, 0).square())

/**
 * min(max(x, 0), 6).
 * @example
 * nn.relu6(mx.array([-1, 2, 9])).tolist() // => [0, 2, 6]
 */
export const relu6: Activation = activation(
  "relu6",
  elementwise(
    "relu6",
    {},
    {
      scalar: (s, [x]) => {
        const dtype = s.dtypeOf(x)
        return s.minimum(s.maximum(x, s.constant(0, dtype)), s.constant(6, dtype))
      },
    },
  ),
)

const leakyReluOf = elementwise(
  "leakyRelu",
  { negativeSlope: "f64" },
  {
    scalar: (s, [x], { negativeSlope }) =>
      s.maximum(s.multiply(s.constant(negativeSlope, s.dtypeOf(x)), x), x),
  },
)
const leakyReluArgs = operation(
  "leakyRelu",
  { x: "array", negativeSlope: "number?" },
  (x: mx.Array, negativeSlope: number = 0.01) => leakyReluOf([floating("leakyRelu", x)], { negativeSlope }),
)
/**
 * max(negativeSlope · x, x).
 * @example
 * nn.leakyRelu(mx.array([-1, 2]), 0.5).tolist() // => [-0.5, 2]
 */
export function leakyRelu(x: mx.Array, negativeSlope?: number, options?: mx.StreamOptions): mx.Array
export function leakyRelu(x: mx.Array, options: { negativeSlope?: number } & mx.StreamOptions): mx.Array
export function leakyRelu(...args: unknown[]): mx.Array {
  return leakyReluArgs(args)
}

const eluOf = elementwise(
  "elu",
  { alpha: "f64" },
  {
    scalar: (s, [x], { alpha }) => {
      const dtype = s.dtypeOf(x)
      const one = s.constant(1, dtype)
      const below = s.multiply(s.constant(alpha, dtype), s.subtract(s.exp(x), one))
      return s.select(s.greater(x, s.constant(0, dtype)), x, below)
    },
    // Explicit, since the exponential of the branch not taken may overflow, which would give 0 · ∞.
    partials: ([x], _y, params) => eluSlope([x], params),
  },
)
/** 1 for x > 0, otherwise alpha · eˣ. */
const eluSlope = elementwise(
  "eluSlope",
  { alpha: "f64" },
  {
    scalar: (s, [x], { alpha }) => {
      const dtype = s.dtypeOf(x)
      const zero = s.constant(0, dtype)
      const below = s.multiply(s.constant(alpha, dtype), s.exp(s.minimum(x, zero)))
      return s.select(s.greater(x, zero), s.constant(1, dtype), below)
    },
  },
)
const eluArgs = operation("elu", { x: "array", alpha: "number?" }, (x: mx.Array, alpha: number = 1) =>
  eluOf([floating("elu", x)], { alpha }),
)
/**
 * x for x > 0, otherwise alpha · (eˣ − 1).
 * @example
 * nn.elu(mx.array([0, 2])).tolist() // => [0, 2]
 */
export function elu(x: mx.Array, alpha?: number, options?: mx.StreamOptions): mx.Array
export function elu(x: mx.Array, options: { alpha?: number } & mx.StreamOptions): mx.Array
export function elu(...args: unknown[]): mx.Array {
  return eluArgs(args)
}

/**
 * The scaled exponential linear unit: 1.0507 · elu(x, 1.67326). https://arxiv.org/abs/1706.02515
 * @example
 * nn.selu(mx.array([0])).tolist() // => [0]
 */
export const selu: Activation = ofArray("selu", (x) => elu(x, 1.67326).multiply(1.0507))

const celuOf = elementwise(
  "celu",
  { alpha: "f64" },
  {
    scalar: (s, [x], { alpha }) => {
      const dtype = s.dtypeOf(x)
      const [zero, scale] = [s.constant(0, dtype), s.constant(alpha, dtype)]
      const below = s.subtract(s.exp(s.divide(s.minimum(x, zero), scale)), s.constant(1, dtype))
      return s.add(s.maximum(x, zero), s.multiply(scale, below))
    },
  },
)
const celuArgs = operation("celu", { x: "array", alpha: "positive?" }, (x: mx.Array, alpha: number = 1) =>
  celuOf([floating("celu", x)], { alpha }),
)
/**
 * max(x, 0) + alpha · (exp(min(x, 0) / alpha) − 1). https://arxiv.org/abs/1704.07483
 * @example
 * nn.celu(mx.array([0, 2])).tolist() // => [0, 2]
 */
export function celu(x: mx.Array, alpha?: number, options?: mx.StreamOptions): mx.Array
export function celu(x: mx.Array, options: { alpha?: number } & mx.StreamOptions): mx.Array
export function celu(...args: unknown[]): mx.Array {
  return celuArgs(args)
}

/**
 * The logistic function 1 / (1 + e⁻ˣ).
 * @example
 * nn.sigmoid(mx.array([0])).tolist() // => [0.5]
 */
export const sigmoid: Activation = ofArray("sigmoid", (x) => mx.sigmoid(x))

/**
 * log sigmoid(x), accurate where sigmoid(x) is near 0.
 * @example
 * nn.logSigmoid(mx.array([1000])).tolist() // => [0]
 */
export const logSigmoid: Activation = activation(
  "logSigmoid",
  elementwise(
    "logSigmoid",
    {},
    {
      scalar: (s, [x]) => s.negative(s.logaddexp(s.negative(x), s.constant(0, s.dtypeOf(x)))),
    },
  ),
)

/**
 * Hyperbolic tangent.
 * @example
 * nn.tanh(mx.array([0])).tolist() // => [0]
 */
export const tanh: Activation = ofArray("tanh", (x) => mx.tanh(x))

/**
 * x · sigmoid(x), also called swish.
 * @example
 * nn.silu(mx.array([0])).tolist() // => [0]
 */
export const silu: Activation = activation(
  "silu",
  elementwise(
    "silu",
    {},
    {
      scalar: (s, [x]) => s.multiply(x, s.sigmoid(x)),
      partials: ([x]) => siluSlope([x]),
    },
  ),
)
/** σ + x·σ·(1 − σ) */
const siluSlope = elementwise(
  "siluSlope",
  {},
  {
    scalar: (s, [x]) => {
      const y = s.sigmoid(x)
      const one = s.constant(1, s.dtypeOf(x))
      return s.multiply(y, s.add(one, s.multiply(x, s.subtract(one, y))))
    },
  },
)

/**
 * log(1 + eˣ), without overflow.
 * @example
 * nn.softplus(mx.array([-Infinity, 1000])).tolist() // => [0, 1000]
 */
export const softplus: Activation = ofArray("softplus", (x) => mx.logaddexp(x, 0))

/**
 * x / (1 + |x|).
 * @example
 * nn.softsign(mx.array([-1, 3])).tolist() // => [-0.5, 0.75]
 */
export const softsign: Activation = activation(
  "softsign",
  elementwise(
    "softsign",
    {},
    {
      scalar: (s, [x]) => s.divide(x, s.add(s.constant(1, s.dtypeOf(x)), s.abs(x))),
    },
  ),
)

const softshrinkOf = elementwise(
  "softshrink",
  { lambd: "f64" },
  {
    scalar: (s, [x], { lambd }) => {
      const dtype = s.dtypeOf(x)
      const limit = s.constant(lambd, dtype)
      const shrunk = s.subtract(x, s.multiply(s.sign(x), limit))
      return s.select(s.greater(s.abs(x), limit), shrunk, s.constant(0, dtype))
    },
  },
)
const softshrinkArgs = operation(
  "softshrink",
  { x: "array", lambd: "nonNegative?" },
  (x: mx.Array, lambd: number = 0.5) => softshrinkOf([floating("softshrink", x)], { lambd }),
)
/**
 * x shrunk towards 0 by lambd, 0 if |x| ≤ lambd.
 * @example
 * nn.softshrink(mx.array([-2, 0.25, 2])).tolist() // => [-1.5, 0, 1.5]
 */
export function softshrink(x: mx.Array, lambd?: number, options?: mx.StreamOptions): mx.Array
export function softshrink(x: mx.Array, options: { lambd?: number } & mx.StreamOptions): mx.Array
export function softshrink(...args: unknown[]): mx.Array {
  return softshrinkArgs(args)
}

const hardShrinkArgs = operation(
  "hardShrink",
  { x: "array", lambd: "nonNegative?" },
  (x: mx.Array, lambd: number = 0.5) => mx.where(mx.abs(x).greater(lambd), x, 0),
)
/**
 * x, but 0 if |x| ≤ lambd.
 * @example
 * nn.hardShrink(mx.array([-2, 0.25, 2])).tolist() // => [-2, 0, 2]
 */
export function hardShrink(x: mx.Array, lambd?: number, options?: mx.StreamOptions): mx.Array
export function hardShrink(x: mx.Array, options: { lambd?: number } & mx.StreamOptions): mx.Array
export function hardShrink(...args: unknown[]): mx.Array {
  return hardShrinkArgs(args)
}

const hardTanhOf = elementwise(
  "hardTanh",
  { minVal: "f64", maxVal: "f64" },
  {
    scalar: (s, [x], { minVal, maxVal }) => {
      const dtype = s.dtypeOf(x)
      return s.minimum(s.maximum(x, s.constant(minVal, dtype)), s.constant(maxVal, dtype))
    },
  },
)
const hardTanhArgs = operation(
  "hardTanh",
  { x: "array", minVal: "number?", maxVal: "number?" },
  (x: mx.Array, minVal: number = -1, maxVal: number = 1) =>
    hardTanhOf([floating("hardTanh", x)], { minVal, maxVal }),
)
/**
 * min(max(x, minVal), maxVal).
 * @example
 * nn.hardTanh(mx.array([-2, 0.5, 2])).tolist() // => [-1, 0.5, 1]
 */
export function hardTanh(x: mx.Array, minVal?: number, maxVal?: number, options?: mx.StreamOptions): mx.Array
export function hardTanh(
  x: mx.Array,
  minVal: number,
  options: { maxVal?: number } & mx.StreamOptions,
): mx.Array
export function hardTanh(
  x: mx.Array,
  options: { minVal?: number; maxVal?: number } & mx.StreamOptions,
): mx.Array
export function hardTanh(...args: unknown[]): mx.Array {
  return hardTanhArgs(args)
}

/**
 * x · min(max(x + 3, 0), 6) / 6. https://arxiv.org/abs/1905.02244
 * @example
 * nn.hardswish(mx.array([-3, 0, 3])).tolist() // => [0, 0, 3]
 */
export const hardswish: Activation = activation(
  "hardswish",
  elementwise(
    "hardswish",
    {},
    {
      scalar: (s, [x]) => {
        const dtype = s.dtypeOf(x)
        const six = s.constant(6, dtype)
        const gate = s.maximum(s.add(x, s.constant(3, dtype)), s.constant(0, dtype))
        return s.divide(s.multiply(x, s.minimum(gate, six)), six)
      },
    },
  ),
)

/**
 * x · tanh(softplus(x)). https://arxiv.org/abs/1908.08681
 * @example
 * nn.mish(mx.array([0])).tolist() // => [0]
 */
export const mish: Activation = activation(
  "mish",
  elementwise(
    "mish",
    {},
    {
      scalar: (s, [x]) => s.multiply(x, s.tanh(s.logaddexp(x, s.constant(0, s.dtypeOf(x))))),
    },
  ),
)

/**
 * x · Φ(x), with the standard normal CDF Φ, computed with the error function. See {@link geluApprox} and {@link geluFastApprox}.
 * @example
 * nn.gelu(mx.array([0])).tolist() // => [0]
 */
export const gelu: Activation = activation(
  "gelu",
  elementwise(
    "gelu",
    {},
    {
      scalar: (s, [x]) => {
        const dtype = s.dtypeOf(x)
        const twice = s.add(s.constant(1, dtype), s.erf(s.divide(x, s.constant(Math.SQRT2, dtype))))
        // Halved before the product, which could overflow in float16.
        return s.multiply(x, s.divide(twice, s.constant(2, dtype)))
      },
      partials: ([x]) => geluSlope([x]),
    },
  ),
)
/** Φ(x) + x·φ(x) */
const geluSlope = elementwise(
  "geluSlope",
  {},
  {
    scalar: (s, [x]) => {
      const dtype = s.dtypeOf(x)
      const half = s.constant(0.5, dtype)
      const erf = s.erf(s.divide(x, s.constant(Math.SQRT2, dtype)))
      const below = s.multiply(s.add(s.constant(1, dtype), erf), half)
      const density = s.multiply(
        s.exp(s.multiply(s.constant(-0.5, dtype), s.square(x))),
        s.constant(1 / Math.sqrt(2 * Math.PI), dtype),
      )
      return s.add(below, s.multiply(x, density))
    },
  },
)

const GELU_SCALE = Math.sqrt(2 / Math.PI)
const GELU_CUBIC = 0.044715
/**
 * {@link gelu} with Φ(x) ≈ ½ (1 + tanh(√(2/π) (x + 0.044715 x³))). https://arxiv.org/abs/1606.08415
 * @example
 * nn.geluApprox(mx.array([0])).tolist() // => [0]
 */
export const geluApprox: Activation = activation(
  "geluApprox",
  elementwise(
    "geluApprox",
    {},
    {
      scalar: (s, [x]) => {
        const dtype = s.dtypeOf(x)
        const cubic = s.multiply(s.constant(GELU_CUBIC, dtype), s.multiply(s.square(x), x))
        const t = s.tanh(s.multiply(s.constant(GELU_SCALE, dtype), s.add(x, cubic)))
        return s.multiply(s.multiply(s.constant(0.5, dtype), x), s.add(s.constant(1, dtype), t))
      },
      partials: ([x]) => geluApproxSlope([x]),
    },
  ),
)
/** ½ (1 + t) + ½ x (1 − t²) c (1 + 3·0.044715 x²) with t = tanh(c (x + 0.044715 x³)) */
const geluApproxSlope = elementwise(
  "geluApproxSlope",
  {},
  {
    scalar: (s, [x]) => {
      const dtype = s.dtypeOf(x)
      const [one, half, c] = [s.constant(1, dtype), s.constant(0.5, dtype), s.constant(GELU_SCALE, dtype)]
      // tanh is ±1 beyond, and x³ overflows in float16 from 41 on, which would give 0 · ∞.
      const near = s.minimum(s.maximum(x, s.constant(-10, dtype)), s.constant(10, dtype))
      const squared = s.square(near)
      const cubic = s.multiply(s.constant(GELU_CUBIC, dtype), s.multiply(squared, near))
      const t = s.tanh(s.multiply(c, s.add(near, cubic)))
      const inner = s.multiply(c, s.add(one, s.multiply(s.constant(3 * GELU_CUBIC, dtype), squared)))
      const right = s.multiply(s.multiply(s.multiply(half, x), s.subtract(one, s.square(t))), inner)
      return s.add(s.multiply(half, s.add(one, t)), right)
    },
  },
)

/**
 * {@link gelu} with Φ(x) ≈ sigmoid(1.702 x). https://arxiv.org/abs/1606.08415
 * @example
 * nn.geluFastApprox(mx.array([0])).tolist() // => [0]
 */
export const geluFastApprox: Activation = activation(
  "geluFastApprox",
  elementwise(
    "geluFastApprox",
    {},
    {
      scalar: (s, [x]) => s.multiply(x, s.sigmoid(s.multiply(s.constant(1.702, s.dtypeOf(x)), x))),
    },
  ),
)

const preluArgs = operation("prelu", { x: "array", alpha: "operand" }, (x: mx.Array, alpha: mx.Operand) =>
  mx.maximum(0, x).add(mx.multiply(alpha, mx.minimum(0, x))),
)
/**
 * max(x, 0) + alpha · min(x, 0), with an alpha that broadcasts.
 * @example
 * nn.prelu(mx.array([-2, 2]), mx.array(0.25)).tolist() // => [-0.5, 2]
 */
export function prelu(x: mx.Array, alpha: mx.Operand, options?: mx.StreamOptions): mx.Array
export function prelu(...args: unknown[]): mx.Array {
  return preluArgs(args)
}

const stepArgs = operation(
  "step",
  { x: "array", threshold: "number?" },
  (x: mx.Array, threshold: number = 0) => mx.greaterEqual(x, threshold).astype(mx.int32),
)
/**
 * 1 if x ≥ threshold, otherwise 0, as int32.
 * @example
 * nn.step(mx.array([-1, 0, 2])).tolist() // => [0, 1, 1]
 */
export function step(x: mx.Array, threshold?: number, options?: mx.StreamOptions): mx.Array
export function step(x: mx.Array, options: { threshold?: number } & mx.StreamOptions): mx.Array
export function step(...args: unknown[]): mx.Array {
  return stepArgs(args)
}

/** A function along an axis, the last by default. */
export interface AxisActivation {
  (x: mx.Array, axis?: number, options?: mx.StreamOptions): mx.Array
  (x: mx.Array, options: { axis?: number } & mx.StreamOptions): mx.Array
}
function alongAxis(name: string, body: (x: mx.Array, axis: number) => mx.Array): AxisActivation {
  const args = operation(name, { x: "array", axis: "axis?" }, (x: mx.Array, axis: number = -1) =>
    body(floating(name, x), axis),
  )
  return (...rest: unknown[]) => args(rest)
}

/**
 * eˣ over its sum along the axis.
 * @example
 * nn.softmax(mx.array([0, 0])).tolist() // => [0.5, 0.5]
 */
export const softmax: AxisActivation = alongAxis("softmax", (x, axis) => mx.softmax(x, axis))

/**
 * softmax(−x).
 * @example
 * nn.softmin(mx.array([0, 0])).tolist() // => [0.5, 0.5]
 */
export const softmin: AxisActivation = alongAxis("softmin", (x, axis) => mx.softmax(x.negative(), axis))

/**
 * log softmax(x), without underflow.
 * @example
 * nn.logSoftmax(mx.array([0, -1000])).tolist() // => [0, -1000]
 */
export const logSoftmax: AxisActivation = alongAxis("logSoftmax", (x, axis) => {
  const shifted = belowMaximum(x, axis)
  return shifted.subtract(mx.logsumexp(shifted, axis, true))
})

/**
 * The gated linear unit: the first half of x along the axis, times the sigmoid of the second. https://arxiv.org/abs/1612.08083
 * @throws ShapeError if the axis has an odd size
 * @example
 * nn.glu(mx.array([3, 0])).tolist() // => [1.5]
 */
export const glu: AxisActivation = alongAxis("glu", (x, axis) => {
  const size = x.shape[normalizeAxis("glu", axis, x.ndim)]
  if (size % 2 !== 0) throw new ShapeError("glu", `axis ${axis} must have an even size, received ${size}`)
  const halves = x.unflatten(axis, [2, size / 2])
  const before = x.shape.slice(0, normalizeAxis("glu", axis, x.ndim)).map(() => ":")
  const at = (i: number): mx.Array => halves.index(...before, i)
  return at(0).multiply(at(1).sigmoid())
})
