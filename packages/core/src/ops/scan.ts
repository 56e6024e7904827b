/**
 * Running sums, products and extremes along an axis.
 */
import { asArrayArgument, operation, type StreamOptions } from '../args'
import { complex64, int32 } from '../dtype'
import type { Array, HostArray } from '../graph'
import { type Apply, definePrimitive } from '../primitive'
import { normalizeAxis, sizeOf } from '../shape'
import { moveToFront } from './view'

type Params = { axis: number; reverse: boolean; inclusive: boolean }

/** Walks each line along the axis in scan order with the positions of its elements. */
function eachLine(
  { shape }: HostArray,
  { axis, reverse }: Params,
  visit: (positions: number[]) => void,
): void {
  const outer = sizeOf(shape.slice(0, axis))
  const inner = sizeOf(shape.slice(axis + 1))
  const n = shape[axis]
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      const positions = globalThis.Array.from(
        { length: n },
        (_, k) => (o * n + (reverse ? n - 1 - k : k)) * inner + i,
      )
      visit(positions)
    }
  }
}

const schema = { axis: 'i64', reverse: 'bool', inclusive: 'bool' } as const

const sumAlong: Apply<Params> = definePrimitive({
  name: 'cumsum',
  params: schema,
  infer: ([x]) => (x.dtype.kind === 'bool' ? { shape: x.shape, dtype: int32 } : x),
  reference: ([x], [out], params) => {
    const width = x.dtype === complex64 ? 2 : 1
    const big = out.data instanceof BigInt64Array || out.data instanceof BigUint64Array
    for (let part = 0; part < width; part++) {
      eachLine(x, params, (positions) => {
        let total = (big ? 0n : 0) as number
        for (const p of positions) {
          const at = width * p + part
          if (!params.inclusive) out.data[at] = total
          total += x.data[at]
          if (params.inclusive) out.data[at] = total
        }
      })
    }
  },
  vjp: ({ cotangents: [g], params }) => [sumAlong([g], { ...params, reverse: !params.reverse })],
  jvp: ({ tangents: [t], params }) => [t && sumAlong([t], params)],
  vmap: ({ inputs: [x], axes: [axis], params }) => ({
    outputs: [sumAlong([moveToFront(x, axis as number)], { ...params, axis: params.axis + 1 })],
    axes: [0],
  }),
})

const cumsumArgs = operation(
  'cumsum',
  ['a', 'axis', 'reverse', 'inclusive'],
  (a: unknown, axis?: number | null, reverse = false, inclusive = true) => {
    const x = asArrayArgument('cumsum', 'a', a)
    const flat = axis === undefined || axis === null
    return sumAlong([flat ? x.flatten() : x], {
      axis: flat ? 0 : normalizeAxis('cumsum', axis as number, x.ndim),
      reverse: reverse as boolean,
      inclusive: inclusive as boolean,
    })
  },
)
/**
 * Running sum along an axis, or over the flattened array.
 * @example
 * mx.cumsum(mx.array([1, 2, 3])).tolist() // => [1, 3, 6]
 */
export function cumsum(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: StreamOptions,
): Array
export function cumsum(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cumsum(
  a: Array,
  options: { axis?: number | null; reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cumsum(...args: unknown[]): Array {
  return cumsumArgs(args)
}

const productAlong: Apply<Params> = definePrimitive({
  name: 'cumprod',
  params: schema,
  infer: ([x]) => (x.dtype.kind === 'bool' ? { shape: x.shape, dtype: int32 } : x),
  reference: ([x], [out], params) => {
    const big = out.data instanceof BigInt64Array || out.data instanceof BigUint64Array
    eachLine(x, params, (positions) => {
      let total = (big ? 1n : 1) as number
      for (const p of positions) {
        if (!params.inclusive) out.data[p] = total
        total *= x.data[p]
        if (params.inclusive) out.data[p] = total
      }
    })
  },
  vmap: ({ inputs: [x], axes: [axis], params }) => ({
    outputs: [productAlong([moveToFront(x, axis as number)], { ...params, axis: params.axis + 1 })],
    axes: [0],
  }),
})
const cumprodArgs = operation(
  'cumprod',
  ['a', 'axis', 'reverse', 'inclusive'],
  (a: unknown, axis?: number | null, reverse = false, inclusive = true) => {
    const x = asArrayArgument('cumprod', 'a', a)
    const flat = axis === undefined || axis === null
    return productAlong([flat ? x.flatten() : x], {
      axis: flat ? 0 : normalizeAxis('cumprod', axis as number, x.ndim),
      reverse: reverse as boolean,
      inclusive: inclusive as boolean,
    })
  },
)
/**
 * Running product along an axis, or over the flattened array.
 * @example
 * mx.cumprod(mx.array([1, 2, 3])).tolist() // => [1, 2, 6]
 */
export function cumprod(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: StreamOptions,
): Array
export function cumprod(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cumprod(
  a: Array,
  options: { axis?: number | null; reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cumprod(...args: unknown[]): Array {
  return cumprodArgs(args)
}
