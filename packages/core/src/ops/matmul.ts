/**
 * Products of matrices.
 */
import { asArrayArgument, composition, type StreamOptions } from "../graph/args"
import { calls } from "../graph/calls"
import { atLeastFloat, complex64, isInexact, promote } from "../graph/dtype"
import { DTypeError, ShapeError } from "../graph/errors"
import {
  type Array,
  Array as ArrayClass,
  composed,
  type HostArray,
  type Node,
  type VmapContext,
  withoutHandles,
} from "../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../graph/primitive"
import {
  broadcastShapes,
  contiguousStrides,
  format,
  type Shape,
  type Strides,
  sameShape,
} from "../graph/shape"
import { toDtype } from "./constant"
import { sumTo } from "./reduce"
import { flattenAxes, moveToFront, reversed, swapLast, transpose, unflattenAxis } from "./view"

/** a [..., M, K] times b [..., K, N], batch axes equal. */
const product: Apply<NoParams> = definePrimitive({
  name: "matmul",
  infer: ([a, b]) => {
    if (a.shape[a.shape.length - 1] !== b.shape[b.shape.length - 2])
      throw new ShapeError(
        "matmul",
        `the last axis of a and the second-to-last of b differ: shapes ${format(a.shape)} and ${format(b.shape)}`,
      )
    return { shape: shapeOfProduct(a.shape, b.shape), dtype: a.dtype }
  },
  reference: ([a, b], [out]) => multiplyHost(a, b, out),
  vjp: ({ inputs: [a, b], cotangents: [g], wanted }) => [
    wanted[0] ? gradientOfLeft(a, b, g) : null,
    wanted[1] ? gradientOfRight(a, b, g) : null,
  ],
  jvp: ({ inputs: [a, b], tangents: [ta, tb] }) => {
    const left = ta && product([ta, b])
    const right = tb && product([a, tb])
    return [left && right ? left.add(right) : (left ?? right)]
  },
  vmap: ({ inputs: [a, b], axes, size }) => {
    const [x, y] = alignBatches([a, b], axes, size)
    return { outputs: [product([x, y])], axes: [0] }
  },
})

/** The shape of a matrix product with batch axes. */
function shapeOfProduct(a: Shape, b: Shape): number[] {
  const shape = a.slice()
  shape[shape.length - 1] = b[b.length - 1]
  return shape
}

/**
 * g @ bᴴ, the gradient of a @ b with respect to a. It is column-major if a is, such as the transposed weight of a layer, to avoid a
 * transposing copy.
 */
function gradientOfLeft(a: Array, b: Array, g: Array): Array {
  return isTransposed(a.node)
    ? swapLast(product([b.conjugate(), swapLast(g)]))
    : product([g, swapLast(b).conjugate()])
}

/** aᴴ @ g, the gradient of a @ b with respect to b, likewise. */
function gradientOfRight(a: Array, b: Array, g: Array): Array {
  return isTransposed(b.node)
    ? swapLast(product([swapLast(g), a.conjugate()]))
    : product([swapLast(a).conjugate(), g])
}

/** True if a matrix is known to be column-major. */
function isTransposed(node: Node): boolean {
  const { shape, storage, primitive } = node
  let steps: Strides | null | undefined
  if (storage !== null) steps = node.strides
  else {
    const view = primitive?.rules.view
    if (view === undefined) return false
    const [{ shape, dtype }] = node.inputs
    steps = view({ shape, dtype, offset: 0, strides: contiguousStrides(shape) }, node.params, node)?.strides
  }
  return !!steps && steps[shape.length - 2] === 1 && steps[shape.length - 1] > 1
}

/** Moves the batch axis of both operands to the front, broadcasting an operand without one. */
function alignBatches(inputs: readonly Array[], axes: VmapContext<unknown>["axes"], size: number): Array[] {
  return inputs.map((x, i) => {
    const axis = axes[i]
    return axis === null ? x.broadcastTo([size, ...x.shape]) : moveToFront(x, axis)
  })
}

function multiplyHost(a: HostArray, b: HostArray, out: HostArray): void {
  const [m, k] = a.shape.slice(-2)
  const n = b.shape[b.shape.length - 1]
  const batches = out.data.length === 0 ? 0 : a.shape.slice(0, -2).reduce((x, y) => x * y, 1)
  const complex = a.dtype === complex64
  const big = out.data instanceof BigInt64Array || out.data instanceof BigUint64Array
  const integers = !big && !isInexact(out.dtype)
  for (let batch = 0; batch < batches; batch++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let re = (big ? 0n : 0) as number
        let im = 0
        for (let p = 0; p < k; p++) {
          const x = (batch * m + i) * k + p
          const y = (batch * k + p) * n + j
          if (complex) {
            re += a.data[2 * x] * b.data[2 * y] - a.data[2 * x + 1] * b.data[2 * y + 1]
            im += a.data[2 * x] * b.data[2 * y + 1] + a.data[2 * x + 1] * b.data[2 * y]
          } else if (integers) re = (re + Math.imul(a.data[x], b.data[y])) | 0
          else re += a.data[x] * b.data[y]
        }
        const o = (batch * m + i) * n + j
        if (complex) {
          out.data[2 * o] = re
          out.data[2 * o + 1] = im
        } else out.data[o] = re
      }
    }
  }
}

/** Validates and promotes the operands of a product, for which `times` multiplies matrices of equal batch axes. */
function inMatrices(op: string, a: unknown, b: unknown, times: (x: Array, y: Array) => Array): Array {
  const x = asArrayArgument(op, "a", a)
  const y = asArrayArgument(op, "b", b)
  const { shape: left, dtype: first } = x.node
  const { shape: right, dtype: second } = y.node
  if (left.length === 0 || right.length === 0)
    throw new ShapeError(
      op,
      `needs arrays of at least one dimension, received shapes ${format(left)} and ${format(right)}`,
    )
  const inner = left[left.length - 1]
  const matching = right[Math.max(0, right.length - 2)]
  if (inner !== matching) {
    throw new ShapeError(
      op,
      `the last axis of a has size ${inner} and the matching axis of b has size ${matching}: shapes ${format(left)} and ${format(right)}`,
    )
  }
  const dtype = atLeastFloat(promote(first, second))
  return byAxes(op, toDtype(x, dtype), toDtype(y, dtype), times)
}

/** Adds the axes that vectors and batches lack, and removes them from the result. */
function byAxes(op: string, x: Array, y: Array, times: (x: Array, y: Array) => Array): Array {
  const { shape: left } = x.node
  const { shape: right } = y.node
  if (left.length === 2 && right.length === 2) return times(x, y)
  if (left.length === 1 || right.length === 1) {
    const out = byAxes(
      op,
      left.length === 1 ? x.expandDims(0) : x,
      right.length === 1 ? y.expandDims(1) : y,
      times,
    )
    return out.squeeze([...(left.length === 1 ? [-2] : []), ...(right.length === 1 ? [-1] : [])])
  }
  // Batches times one matrix: fold the batches into the rows, for a single large product.
  if (right.length === 2) {
    const rows = flattenAxes([x], { start: 0, end: left.length - 2 })
    return unflattenAxis([times(rows, y)], { axis: 0, shape: left.slice(0, -1) })
  }
  const [batchX, batchY]: Shape[] = [left.slice(0, -2), right.slice(0, -2)]
  if (sameShape(batchX, batchY)) return times(x, y)
  const batch = broadcastShapes(op, batchX, batchY)
  return times(x.broadcastTo([...batch, ...left.slice(-2)]), y.broadcastTo([...batch, ...right.slice(-2)]))
}

const timesMatrix = (x: Array, y: Array): Array => product([x, y])

const matmulArgs = composition("matmul", { a: "array", b: "array" }, (a: Array, b: Array) =>
  inMatrices("matmul", a, b, timesMatrix),
)
/**
 * Matrix product over the last two axes; leading axes broadcast. A 1-d operand is a row vector on the left and a column vector on the
 * right. Integers are converted to float32.
 * @throws ShapeError if the inner sizes differ
 * @example
 * mx.matmul(mx.array([[1, 2], [3, 4]]), mx.array([1, 1])).tolist() // => [3, 7]
 */
export function matmul(a: Array, b: Array, options?: StreamOptions): Array
export function matmul(...args: unknown[]): Array {
  return matmulArgs(args)
}

/** Checks that c broadcasts to the product. @throws ShapeError */
function checkAddend(c: Shape, product: Shape): void {
  if (c.length <= product.length && sameShape(broadcastShapes("addmm", c, product), product)) return
  throw new ShapeError(
    "addmm",
    `c of shape ${format(c)} does not broadcast to the product's shape ${format(product)}`,
  )
}

/** alpha · a@b + beta · c, with c broadcast to the product. */
const scaledProduct: Apply<{ alpha: number; beta: number }> = definePrimitive({
  name: "addmm",
  params: { alpha: "f64", beta: "f64" },
  infer: ([c, a, b]) => {
    if (!isInexact(a.dtype)) throw new DTypeError("addmm", `needs a floating dtype, received ${a.dtype.name}`)
    const shape = shapeOfProduct(a.shape, b.shape)
    checkAddend(c.shape, shape)
    return { shape, dtype: a.dtype }
  },
  decompose: ([c, a, b], { alpha, beta }) => scale(product([a, b]), alpha).add(scale(c, beta)),
  vjp: ({ inputs: [c, a, b], cotangents: [g], params: { alpha, beta }, wanted }) => [
    wanted[0] ? scale(sumTo(g, c.shape), beta) : null,
    wanted[1] ? scale(gradientOfLeft(a, b, g), alpha) : null,
    wanted[2] ? scale(gradientOfRight(a, b, g), alpha) : null,
  ],
  jvp: ({ inputs: [, a, b], outputs: [y], tangents: [tc, ta, tb], params: { alpha, beta } }) => {
    let sum: Array | null = tc && scale(tc, beta).broadcastTo(y.shape)
    if (ta) sum = plus(sum, scale(product([ta, b]), alpha))
    if (tb) sum = plus(sum, scale(product([a, tb]), alpha))
    return [sum]
  },
  vmap: ({ inputs: [c, a, b], axes, size, params }) => {
    const [x, y] = alignBatches([a, b], axes.slice(1), size)
    const rank = x.ndim
    const moved = axes[0] === null ? c : moveToFront(c, axes[0])
    // The batch axis must stay in front when c has fewer axes than the product.
    const aligned =
      axes[0] === null
        ? moved
        : moved.reshape([
            size,
            ...new globalThis.Array<number>(rank - moved.ndim).fill(1),
            ...moved.shape.slice(1),
          ])
    return { outputs: [scaledProduct([aligned, x, y], params)], axes: [0] }
  },
})
const scale = (x: Array, factor: number): Array => (factor === 1 ? x : x.multiply(factor))
const plus = (a: Array | null, b: Array): Array => (a ? a.add(b) : b)

function addProduct(c: Array, a: Array, b: Array, alpha: number = 1, beta: number = 1): Array {
  const bias = asArrayArgument("addmm", "c", c)
  const dtype = atLeastFloat(promote(promote(a.dtype, b.dtype), bias.dtype))
  const addend = toDtype(bias, dtype)
  const left = toDtype(a, dtype)
  const right = toDtype(b, dtype)
  // In the primitive a vector on the right is a column, with which c would not align.
  if (bias.ndim <= 1 && b.ndim > 1)
    return inMatrices("addmm", left, right, (x, y) => scaledProduct([addend, x, y], { alpha, beta }))
  const out = inMatrices("addmm", left, right, timesMatrix)
  checkAddend(bias.shape, out.shape)
  return scale(out, alpha).add(scale(addend, beta))
}

const addmmArgs = composition(
  "addmm",
  { c: "operand", a: "array", b: "array", alpha: "number?", beta: "number?" },
  addProduct,
)
/**
 * beta · c + alpha · (a @ b), fused if the backend supports it.
 * @throws ShapeError if the inner sizes differ or c does not broadcast to the product
 * @example
 * mx.addmm(mx.array([10]), mx.array([[1, 2]]), mx.array([[1], [1]])).tolist() // => [[13]]
 */
export function addmm(
  c: Array,
  a: Array,
  b: Array,
  alpha?: number,
  beta?: number,
  options?: StreamOptions,
): Array
export function addmm(
  c: Array,
  a: Array,
  b: Array,
  alpha: number,
  options: { beta?: number } & StreamOptions,
): Array
export function addmm(
  c: Array,
  a: Array,
  b: Array,
  options: { alpha?: number; beta?: number } & StreamOptions,
): Array
export function addmm(...args: unknown[]): Array {
  return addmmArgs(args)
}

/**
 * x Wᵀ, plus the bias if there is one: `matmul` and `addmm` as layers call them, most of what models call, without what calls from outside
 * take. The transposed weight has no handle, which would keep the weight until it is found dead.
 */
export function timesTransposed(x: Array, weight: Array, bias?: Array): Array {
  if (calls.recorder !== null || !(x instanceof ArrayClass && weight instanceof ArrayClass)) {
    const transposed = withoutHandles(() => transpose(weight))
    return bias ? addmm(bias, x, transposed) : matmul(x, transposed)
  }
  return composed(() => {
    const transposed = reversed(weight)
    return bias ? addProduct(bias, x, transposed) : inMatrices("matmul", x, transposed, timesMatrix)
  })
}
