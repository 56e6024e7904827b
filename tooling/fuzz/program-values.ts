/** Comparing what programs give: to the bit, or as near as a dtype allows. */
import * as mx from "@lazuli/core"

/** An array as it was read. */
export interface Seen {
  readonly kind: string
  readonly elements: ArrayLike<number | bigint>
}

const kindOf = (a: mx.Array): string => `${a.dtype.name}[${a.shape}]`

export function bitsOf(arrays: readonly mx.Array[]): Seen[] {
  return arrays.map((a) => ({ kind: kindOf(a), elements: a.toTypedArray() as ArrayLike<number | bigint> }))
}

/** The difference; null where there is none. One NaN is another. */
export function differenceOf(got: readonly Seen[], want: readonly Seen[]): string | null {
  for (const [i, { kind, elements }] of want.entries()) {
    if (got[i].kind !== kind) return `output ${i} is ${got[i].kind}, expected ${kind}`
    const given = got[i].elements
    for (let at = 0; at < elements.length; at++)
      if (!Object.is(elements[at], given[at]))
        return `output ${i}, ${kind}, element ${at} is ${given[at]}, expected ${elements[at]}`
  }
  return null
}

/** The nearness that results in a dtype must have, in parts of the largest value that took part. */
const PRECISION: Readonly<Record<string, number>> = {
  float64: 1e-9,
  float32: 1e-4,
  complex64: 1e-4,
  float16: 2e-2,
  bfloat16: 1e-1,
}

const numbersOf = (a: mx.Array): Float64Array => {
  const parts = a.dtype === mx.complex64 ? mx.stack([a.real, a.imag], -1) : a
  return parts.astype(mx.float64).toTypedArray() as Float64Array
}

function largestOf(numbers: Float64Array): number {
  let most = 1
  for (const x of numbers) {
    const size = Math.abs(x)
    if (size > most && size < Infinity) most = size
  }
  return most
}

/** The value that is too far from what is expected, given what it was made from; null where there is none. */
export function farOf(got: mx.Array, want: mx.Array, from: readonly mx.Array[]): string | null {
  if (kindOf(got) !== kindOf(want)) return `${kindOf(got)}, expected ${kindOf(want)}`
  const coarsest = Math.max(...[got, ...from].map(({ dtype }) => PRECISION[dtype.name] ?? 0))
  const [g, w] = [numbersOf(got), numbersOf(want)]
  const scale = Math.max(largestOf(w), ...from.map((x) => largestOf(numbersOf(x))))
  const tolerance = got.dtype.name in PRECISION ? coarsest * scale : 0
  const at = w.findIndex((x, i) => !Object.is(x + 0, g[i] + 0) && !(Math.abs(x - g[i]) <= tolerance))
  return at < 0 ? null : `${kindOf(got)}, element ${at} is ${g[at]}, expected ${w[at]}`
}
