/**
 * The op and its primitive: alpha · x + beta · y. The op takes what users write and makes it regular (one dtype, one shape);
 * the primitive says what is computed and how it transforms. How it is computed fast is in kernels.ts.
 */
import * as mx from "@lazuli/core"
import { type Apply, broadcastShapes, definePrimitive, operation, promoteOperands } from "@lazuli/core/plugin"

/** The primitive's name: the package, then a name in it. */
export const NAME = "@lazuli/ext-axpby/axpby"

/** The factors of {@link axpby}. */
export interface AxpbyFactors {
  readonly alpha: number
  readonly beta: number
}

// The type is written out because the rules below apply the primitive to itself.
const apply: Apply<AxpbyFactors> = definePrimitive({
  name: NAME,
  api: 1,
  params: { alpha: "f64", beta: "f64" },

  infer: ([x, y]) => {
    if (x.dtype !== y.dtype || !mx.issubdtype(x.dtype, mx.inexact))
      throw new mx.DTypeError(
        "axpby",
        `expected two arrays of the same floating or complex dtype, received ${x.dtype.name} and ${y.dtype.name}`,
      )
    if (x.shape.length !== y.shape.length || x.shape.some((n, i) => n !== y.shape[i]))
      throw new mx.ShapeError(
        "axpby",
        `expected two arrays of the same shape, received (${x.shape}) and (${y.shape})`,
      )
    return x
  },

  // The semantics, which kernels must agree with: both products are rounded to the dtype, then their sum.
  decompose: ([x, y], { alpha, beta }) => x.multiply(alpha).add(y.multiply(beta)),

  // ∂out/∂x = alpha and ∂out/∂y = beta. Both are real, so complex gradients are scaled alike.
  vjp: ({ cotangents: [g], params: { alpha, beta }, wanted }) => [
    wanted[0] ? g.multiply(alpha) : null,
    wanted[1] ? g.multiply(beta) : null,
  ],

  // alpha · dx + beta · dy, without the term of an input that does not vary.
  jvp: ({ tangents: [dx, dy], params }) => {
    if (dx && dy) return [apply([dx, dy], params)]
    return [dx ? dx.multiply(params.alpha) : (dy as mx.Array).multiply(params.beta)]
  },

  // Batch axes go to the front, so that one application serves the whole batch.
  vmap: ({ inputs, axes, params, size }) => {
    const [x, y] = inputs.map((input, i) => {
      const axis = axes[i]
      return axis === null ? mx.broadcastTo(input, [size, ...input.shape]) : mx.moveaxis(input, axis, 0)
    })
    return { outputs: [apply([x, y], params)], axes: [0] }
  },
})

const body = operation(
  NAME,
  { x: "operand", y: "operand", alpha: "number", beta: "number" },
  (a: mx.Operand, b: mx.Operand, alpha: number, beta: number): mx.Array => {
    const [x, y] = promoteOperands("axpby", a, b, "x", "y").map((v) =>
      mx.issubdtype(v.dtype, mx.inexact) ? v : v.astype(mx.float32),
    )
    const shape = broadcastShapes("axpby", x.shape, y.shape)
    return apply([mx.broadcastTo(x, shape), mx.broadcastTo(y, shape)], { alpha, beta })
  },
)

/**
 * alpha · x + beta · y. Shapes broadcast and dtypes promote; bool and integers become float32.
 *
 * @param x - an array of any shape, or a scalar
 * @param y - an array whose shape broadcasts with that of `x`, or a scalar
 * @param alpha - the factor of `x`
 * @param beta - the factor of `y`
 * @throws ShapeError when the shapes do not broadcast
 * @throws ArgumentError when a factor is not a number
 */
export function axpby(
  x: mx.Operand,
  y: mx.Operand,
  alpha: number,
  beta: number,
  options?: mx.StreamOptions,
): mx.Array
export function axpby(x: mx.Operand, y: mx.Operand, options: AxpbyFactors & mx.StreamOptions): mx.Array
// By hand: what must be given may be given by name.
export function axpby(...args: unknown[]): mx.Array {
  return body(args)
}
