/**
 * Initializers: functions that create new values for a parameter of a given shape. `model.apply(nn.init.heUniform())` initializes a whole
 * model.
 */
import * as mx from "@lazuli/core"
import { asArrayArgument, format, renamed, ShapeError } from "@lazuli/core/engine"
import { named } from "./arguments"

/** Creates an array of new values of the shape of `a`. */
export type Initializer = (a: mx.Array) => mx.Array
/** An initializer with a gain. */
export type ScaledInitializer = (a: mx.Array, gain?: number | { gain?: number }) => mx.Array
/** The pass in which a layer preserves variance: the forward pass (`fan_in`) or the backward pass (`fan_out`). */
export type FanMode = "fan_in" | "fan_out"
/** An initializer with a fan mode and a gain. */
export type FanInitializer = (
  a: mx.Array,
  mode?: FanMode | { mode?: FanMode; gain?: number },
  gain?: number | { gain?: number },
) => mx.Array

type DtypeOption = mx.Dtype | { dtype?: mx.Dtype }

/** Reports errors of an initializer under its name. */
function of<A extends unknown[]>(
  name: string,
  make: (a: mx.Array, ...rest: A) => mx.Array,
): (a: mx.Array, ...rest: A) => mx.Array {
  return (a, ...rest) => {
    const op = `init.${name}`
    try {
      return make(asArrayArgument(op, "a", a), ...rest)
    } catch (error) {
      throw renamed(error, op)
    }
  }
}

/** Fan-in and fan-out: the sizes of the last and first axis, times the kernel positions in between. */
function fans(op: string, a: mx.Array): { fanIn: number; fanOut: number } {
  const { ndim, shape } = a
  if (ndim < 2)
    throw new ShapeError(op, `needs an array of at least 2 dimensions, received shape ${format(shape)}`)
  const positions = shape.slice(1, -1).reduce((product, n) => product * n, 1)
  return { fanIn: shape[ndim - 1] * positions, fanOut: shape[0] * positions }
}

/**
 * * Fills with a constant.
 * @example
 * nn.init.constant(0.5)(mx.zeros([2])).tolist() // => [0.5, 0.5]
 */
export function constant(value: number, dtype?: DtypeOption): Initializer
export function constant(...args: unknown[]): Initializer {
  const [value, dtype = mx.float32] = named<[number, mx.Dtype?]>(
    "init.constant",
    { value: "operand", dtype: "dtype?" },
    args,
  )
  return of("constant", (a) => mx.full(a.shape, value, dtype))
}

/**
 * Normal distribution with the given mean and standard deviation.
 * @example
 * nn.init.normal()(mx.zeros([2, 3])).shape // => [2, 3]
 */
export function normal(mean?: number, std?: number, dtype?: DtypeOption): Initializer
export function normal(options: { mean?: number; std?: number; dtype?: mx.Dtype }): Initializer
export function normal(...args: unknown[]): Initializer {
  const [mean = 0, std = 1, dtype = mx.float32] = named<[number?, number?, mx.Dtype?]>(
    "init.normal",
    { mean: "number?", std: "nonNegative?", dtype: "dtype?" },
    args,
  )
  return of("normal", (a) => mx.random.normal(a.shape, dtype, mean, std))
}

/**
 * Uniform distribution on [low, high).
 * @example
 * nn.init.uniform()(mx.zeros([2, 3])).shape // => [2, 3]
 */
export function uniform(low?: number, high?: number, dtype?: DtypeOption): Initializer
export function uniform(options: { low?: number; high?: number; dtype?: mx.Dtype }): Initializer
export function uniform(...args: unknown[]): Initializer {
  const [low = 0, high = 1, dtype = mx.float32] = named<[number?, number?, mx.Dtype?]>(
    "init.uniform",
    { low: "number?", high: "number?", dtype: "dtype?" },
    args,
  )
  return of("uniform", (a) => mx.random.uniform(low, high, a.shape, dtype))
}

/** The dtype argument of an initializer without other parameters. */
function dtypeOf(op: string, args: readonly unknown[]): mx.Dtype {
  const [dtype = mx.float32] = named<[mx.Dtype?]>(`init.${op}`, { dtype: "dtype?" }, args)
  return dtype
}

/**
 * The identity matrix.
 * @throws ShapeError from the initializer, unless the array is a square matrix
 * @example
 * nn.init.identity()(mx.zeros([2, 2])).tolist() // => [[1, 0], [0, 1]]
 */
export function identity(dtype?: DtypeOption): Initializer
export function identity(...args: unknown[]): Initializer {
  const dtype = dtypeOf("identity", args)
  return of("identity", ({ ndim, shape }) => {
    if (ndim !== 2 || shape[0] !== shape[1])
      throw new ShapeError("init.identity", `needs a square matrix, received shape ${format(shape)}`)
    return mx.eye(shape[0], { dtype })
  })
}

const gainOf = (op: string, args: readonly unknown[]): number => {
  const [gain = 1] = named<[number?]>(`init.${op}`, { gain: "number?" }, args)
  return gain
}

/**
 * Normal distribution with standard deviation gain · √(2 / (fanIn + fanOut)). https://proceedings.mlr.press/v9/glorot10a.html
 * @throws ShapeError from the initializer, for fewer than two dimensions
 * @example
 * nn.init.glorotNormal()(mx.zeros([2, 3]), { gain: 4 }).shape // => [2, 3]
 */
export function glorotNormal(dtype?: DtypeOption): ScaledInitializer
export function glorotNormal(...args: unknown[]): ScaledInitializer {
  const dtype = dtypeOf("glorotNormal", args)
  return of("glorotNormal", (a, ...rest: unknown[]) => {
    const { fanIn, fanOut } = fans("init.glorotNormal", a)
    const std = gainOf("glorotNormal", rest) * Math.sqrt(2 / (fanIn + fanOut))
    return mx.random.normal(a.shape, { scale: std, dtype })
  })
}

/**
 * Uniform distribution on ±gain · √(6 / (fanIn + fanOut)). https://proceedings.mlr.press/v9/glorot10a.html
 * @throws ShapeError from the initializer, for fewer than two dimensions
 * @example
 * nn.init.glorotUniform()(mx.zeros([2, 3])).shape // => [2, 3]
 */
export function glorotUniform(dtype?: DtypeOption): ScaledInitializer
export function glorotUniform(...args: unknown[]): ScaledInitializer {
  const dtype = dtypeOf("glorotUniform", args)
  return of("glorotUniform", (a, ...rest: unknown[]) => {
    const { fanIn, fanOut } = fans("init.glorotUniform", a)
    const limit = gainOf("glorotUniform", rest) * Math.sqrt(6 / (fanIn + fanOut))
    return mx.random.uniform(-limit, limit, a.shape, dtype)
  })
}

/** gain / √fan, the standard deviation of He initialization. */
function heStd(op: string, a: mx.Array, args: readonly unknown[]): number {
  const [mode = "fan_in", gain = 1] = named<[FanMode?, number?]>(
    `init.${op}`,
    { mode: ["fan_in", "fan_out"], gain: "number?" },
    args,
  )
  const { fanIn, fanOut } = fans(`init.${op}`, a)
  return gain / Math.sqrt(mode === "fan_in" ? fanIn : fanOut)
}

/**
 * Normal distribution with standard deviation gain / √fan. https://arxiv.org/abs/1502.01852
 * @throws ShapeError from the initializer, for fewer than two dimensions
 * @example
 * nn.init.heNormal()(mx.zeros([2, 3]), 'fan_out').shape // => [2, 3]
 */
export function heNormal(dtype?: DtypeOption): FanInitializer
export function heNormal(...args: unknown[]): FanInitializer {
  const dtype = dtypeOf("heNormal", args)
  return of("heNormal", (a, ...rest: unknown[]) =>
    mx.random.normal(a.shape, { scale: heStd("heNormal", a, rest), dtype }),
  )
}

/**
 * Uniform distribution on ±gain · √(3 / fan). https://arxiv.org/abs/1502.01852
 * @throws ShapeError from the initializer, for fewer than two dimensions
 * @example
 * nn.init.heUniform()(mx.zeros([2, 3]), 'fan_out', 2).shape // => [2, 3]
 */
export function heUniform(dtype?: DtypeOption): FanInitializer
export function heUniform(...args: unknown[]): FanInitializer {
  const dtype = dtypeOf("heUniform", args)
  return of("heUniform", (a, ...rest: unknown[]) => {
    const limit = heStd("heUniform", a, rest) * Math.sqrt(3)
    return mx.random.uniform(-limit, limit, a.shape, dtype)
  })
}

/**
 * Normal distribution, with a fraction `sparsity` of zeros at random positions in each row.
 * https://www.cs.toronto.edu/~jmartens/docs/Deep_HessianFree.pdf
 * @throws ShapeError from the initializer, unless the array is a matrix
 * @example
 * nn.init.sparse(0.5)(mx.zeros([1, 4])).equal(0).sum().item() // => 2
 */
export function sparse(sparsity: number, mean?: number, std?: number, dtype?: DtypeOption): Initializer
export function sparse(
  sparsity: number,
  options: { mean?: number; std?: number; dtype?: mx.Dtype },
): Initializer
export function sparse(...args: unknown[]): Initializer {
  const [sparsity, mean = 0, std = 1, dtype = mx.float32] = named<[number, number?, number?, mx.Dtype?]>(
    "init.sparse",
    { sparsity: "probability", mean: "number?", std: "nonNegative?", dtype: "dtype?" },
    args,
  )
  return of("sparse", ({ ndim, shape }) => {
    if (ndim !== 2) throw new ShapeError("init.sparse", `needs a matrix, received shape ${format(shape)}`)
    const zeros = Math.ceil(sparsity * shape[1])
    // The positions of the smallest random numbers are random.
    const order = mx.argsort(mx.random.uniform({ shape }), 1).index(":", `:${zeros}`)
    const values = mx.random.normal(shape, dtype, mean, std)
    return mx.putAlongAxis(values, order, mx.zeros([1], { dtype }), 1)
  })
}

/**
 * A matrix with orthonormal rows or columns, whichever are fewer, times the gain: part of a random orthogonal matrix, from the QR
 * decomposition of a normal matrix with the signs of R's diagonal moved into Q. https://arxiv.org/abs/1312.6120
 * @throws ShapeError from the initializer, unless the array is a matrix
 * @example
 * const w = nn.init.orthogonal()(mx.zeros([2, 3]))
 * mx.allclose(w.matmul(w.T), mx.eye(2), { atol: 1e-5 }).item() // => true
 */
export function orthogonal(gain?: number, dtype?: DtypeOption): Initializer
export function orthogonal(options: { gain?: number; dtype?: mx.Dtype }): Initializer
export function orthogonal(...args: unknown[]): Initializer {
  const [gain = 1, dtype = mx.float32] = named<[number?, mx.Dtype?]>(
    "init.orthogonal",
    { gain: "number?", dtype: "dtype?" },
    args,
  )
  return of("orthogonal", ({ ndim, shape }) => {
    if (ndim !== 2) throw new ShapeError("init.orthogonal", `needs a matrix, received shape ${format(shape)}`)
    const n = Math.max(...shape)
    const [q, r] = mx.linalg.qr(mx.random.normal([n, n]))
    const rotation = q.multiply(mx.sign(mx.diag(r)))
    return rotation.index(`:${shape[0]}`, `:${shape[1]}`).multiply(gain).astype(dtype)
  })
}
