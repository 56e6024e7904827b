/**
 * The same elements, differently laid out in memory; and the variants of a sample in which kernels are tried: dtypes, values, sizes.
 */
import * as mx from "@lazuli/core"
import { isInexact, viewStore } from "@lazuli/core/engine"
import { isHermitian } from "./values"

/** Elements outside of any backend. */
export interface HostInput {
  readonly dtype: mx.Dtype
  readonly shape: readonly number[]
  readonly bytes: ArrayBuffer
}

/** An array's elements. */
export function hostInput(a: mx.Array): HostInput {
  const store = a.toTypedArray() as Uint8Array
  const bytes = new ArrayBuffer(store.byteLength)
  new Uint8Array(bytes).set(new Uint8Array(store.buffer, store.byteOffset, store.byteLength))
  return { dtype: a.dtype, shape: a.shape, bytes }
}

/** An array of those elements, in the memory of the backend that serves now. */
export function arrayFrom({ dtype, shape, bytes }: HostInput): mx.Array {
  const count = shape.reduce((a, b) => a * b, 1)
  const store = viewStore(dtype, bytes, 0, count) as Float32Array
  if (dtype !== mx.complex64) return mx.array(store, dtype).reshape(shape)
  return mx
    .array(store.slice(0, 2 * count), mx.float32)
    .view(mx.complex64)
    .reshape(shape)
}

/** Layouts by name, and how an array gets them: the same elements, or null where there is no such layout. */
export const LAYOUTS: Readonly<Record<string, (x: mx.Array) => mx.Array | null>> = {
  "row-major": (x) => x,
  transposed: (x) => (x.ndim > 1 ? laid(x.transpose()).transpose() : null),
  strided: (x) => (x.ndim > 0 ? laid(mx.stack([x, mx.zerosLike(x)], -1)).index("...", 0) : null),
  reversed: (x) => (x.ndim > 0 ? laid(x.index(...reversal(x))).index(...reversal(x)) : null),
  offset: (x) =>
    laid(mx.concatenate([mx.zeros([3], x.dtype), x.flatten()]))
      .index("3:")
      .reshape(x.shape),
  // Only where all elements along the first axis are equal; `broadcastable` makes them so.
  broadcast: (x) => (x.ndim > 0 && x.shape[0] > 1 ? laid(x.index("0:1")).broadcastTo(x.shape) : null),
}
const reversal = (x: mx.Array): string[] => x.shape.map(() => "::-1")
const laid = (x: mx.Array): mx.Array => {
  const copy = mx.contiguous(x)
  mx.eval(copy)
  return copy
}

/** The elements of which a broadcast view exists: the first row, repeated. */
export function broadcastable(input: HostInput): HostInput {
  const { shape, bytes } = input
  if (shape.length === 0 || shape[0] < 2) return input
  const row = bytes.byteLength / shape[0]
  const repeated = new Uint8Array(bytes.byteLength)
  for (let i = 0; i < shape[0]; i++) repeated.set(new Uint8Array(bytes, 0, row), i * row)
  return { ...input, bytes: repeated.buffer }
}

/** The numbers to put in place of a sample's. */
export type Filling = "as given" | "of both signs" | "special"

const SPECIAL = [Number.NaN, 1, Number.POSITIVE_INFINITY, -2.5, -0, 0, Number.NEGATIVE_INFINITY, 0.5, 3, -1]

/** A sample's input in another dtype, its numbers replaced by those of the filling. */
export function converted(x: mx.Array, dtype: mx.Dtype, filling: Filling): mx.Array {
  const whole = !isInexact(dtype)
  const numbers = x.size
  if (filling === "special" && numbers > 0) {
    const cycle = mx.array(globalThis.Array.from({ length: numbers }, (_, i) => SPECIAL[i % SPECIAL.length]))
    const limits = whole && dtype.kind !== "bool" ? mx.iinfo(dtype) : null
    if (!limits) return complexOf(cycle, dtype).reshape(x.shape)
    const ends = mx.concatenate([limits.min, limits.max, 0, 1, 2, 7].map((v) => mx.array([v], dtype)))
    return mx.take(ends, mx.arange(numbers).remainder(6).astype(mx.int32), 0).reshape(x.shape)
  }
  const real = x.dtype === mx.complex64 ? x.real : x
  let v = filling === "of both signs" ? real.astype(mx.float64).subtract(0.5).multiply(7) : real
  if (whole && isInexact(x.dtype)) v = v.astype(mx.float64).multiply(filling === "as given" ? 10 : 1)
  if (dtype.kind === "bool") return v.astype(mx.int32).remainder(2).notEqual(0)
  if (dtype.kind === "unsigned" && filling === "of both signs") v = v.abs()
  if (x.dtype === dtype && filling === "as given") return x
  const z = complexOf(v, dtype)
  // A primitive of symmetric matrices takes Hermitian ones.
  return dtype === mx.complex64 && isHermitian(real) ? z.add(z.T.conjugate()).multiply(0.5) : z
}
/** Real numbers as `dtype`; of a complex one they give both parts. */
function complexOf(v: mx.Array, dtype: mx.Dtype): mx.Array {
  if (dtype !== mx.complex64) return v.astype(dtype)
  return v
    .astype(dtype)
    .add(v.astype(mx.float32).multiply(0.5).subtract(0.25).astype(dtype).multiply(mx.complex(0, 1)))
}
