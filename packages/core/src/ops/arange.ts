/**
 * `arange` and its primitive. Other sequences are in sequences.ts.
 */
import { isPlainObject, operation, type StreamOptions } from "../graph/args"
import { asDtype, bool_, complex64, type Dtype, float32, int32, int64 } from "../graph/dtype"
import { ArgumentError, DTypeError, describe } from "../graph/errors"
import type { Array, ArrayOf } from "../graph/graph"
import type { ValueIn } from "../graph/option-types"
import { definePrimitive } from "../graph/primitive"

const count = definePrimitive({
  name: "arange",
  params: { start: "f64", step: "f64", size: "i64", dtype: "dtype" },
  infer: (_inputs, { size, dtype }) => ({ shape: [size], dtype }),
  reference: (_inputs, [out], { start, step }) => {
    const big = out.data instanceof BigInt64Array || out.data instanceof BigUint64Array
    for (let i = 0; i < out.shape[0]; i++)
      out.data[i] = (big ? BigInt(start + i * step) : start + i * step) as number
  },
})

/** An argument of {@link arange}. */
type Bound = number | bigint

function checkBound(name: string, value: unknown, finite: boolean): void {
  if (typeof value === "bigint") return
  if (typeof value === "number" && (finite ? Number.isFinite(value) : !Number.isNaN(value))) return
  throw new ArgumentError(
    "arange",
    `${name} must be a ${finite ? "finite " : ""}number, received ${describe(value)}`,
  )
}

/** float32 for fractions, int64 for bigints and integers beyond int32, otherwise int32. */
function dtypeOf(bounds: readonly Bound[]): Dtype {
  if (bounds.some((v) => typeof v === "number" && !Number.isInteger(v))) return float32
  return bounds.every((v) => typeof v === "number" && (v | 0) === v) ? int32 : int64
}

/** Integers beyond 2⁵³, computed exactly by two integer operations. */
function countExactly(start: bigint, stop: bigint, step: bigint, dtype: Dtype): Array {
  const [span, by] = step > 0n ? [stop - start, step] : [start - stop, -step]
  const size = span > 0n ? Number((span + by - 1n) / by) : 0
  return count([], { start: 0, step: 1, size, dtype }).multiply(step).add(start)
}

const arangeArgs = operation(
  "arange",
  ["start", "stop", "step", "dtype"],
  (a?: Bound | null, b?: Bound | null, c?: Bound | null, dtype?: Dtype | null) => {
    const from = b === undefined || b === null ? 0 : (a ?? 0)
    const to = b ?? a
    const by = c ?? 1
    checkBound("start", from, true)
    checkBound("stop", to, true)
    checkBound("step", by, false)
    const bounds = [from, to as Bound, by]
    const type = dtype ? asDtype("arange", dtype) : dtypeOf(bounds)
    if (type === bool_ || type === complex64)
      throw new DTypeError("arange", `is not defined for ${type.name}`)
    const [start, stop, step] = bounds.map(Number)
    if (step === 0) throw new ArgumentError("arange", "the step must not be 0")
    const integral = type.kind !== "floating"
    if (integral && bounds.every((v) => typeof v === "bigint" || Number.isInteger(v)))
      if (!Number.isSafeInteger(start) || !Number.isSafeInteger(stop) || !Number.isSafeInteger(step))
        return countExactly(BigInt(from), BigInt(to as Bound), BigInt(by), type)
    const first = integral ? Math.trunc(start) : start
    if (!Number.isFinite(step)) {
      const size = step > 0 === start < stop && start !== stop ? 1 : 0
      return count([], { start: first, step: 0, size, dtype: type })
    }
    const size = Math.max(0, Math.ceil((stop - start) / step))
    if (!Number.isSafeInteger(size)) throw new ArgumentError("arange", `${size} elements are too many`)
    // As in MLX and NumPy, integer dtypes use the first difference throughout.
    return count([], {
      start: first,
      step: integral ? Math.trunc(start + step) - first : step,
      size,
      dtype: type,
    })
  },
)
/**
 * start, start + step, … up to but excluding stop. The default dtype is int32 for integers, int64 if one of them is a bigint or does not
 * fit, otherwise float32. Integer dtypes use the step trunc(start + step) − trunc(start).
 * @throws ArgumentError if start or stop is not finite. An infinite step gives only the start
 * @example
 * mx.arange(1, 7, 2).tolist() // => [1, 3, 5]
 */
export function arange<D extends Dtype = Dtype>(
  stop: Bound,
  options?: { step?: Bound | null; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
export function arange<D extends Dtype = Dtype>(
  start: Bound,
  stop: Bound | null,
  step?: Bound | null,
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function arange<D extends Dtype = Dtype>(
  start: Bound,
  stop: Bound | null,
  options: { step?: Bound | null; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
export function arange<D extends Dtype = Dtype>(
  options: { start?: Bound; stop: Bound; step?: Bound | null; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function arange(...args: unknown[]): Array {
  // A single positional argument is the stop; by name, the stop is required.
  if (isPlainObject(args[0])) checkBound("stop", args[0].stop, true)
  return arangeArgs(args)
}
