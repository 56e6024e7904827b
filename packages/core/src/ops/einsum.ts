/**
 * einsum and einsumPath, in terms of transposes, products and sums. Parsing and the order of contraction are in einsum-path.ts.
 */
import { asArrayArgument, isPlainObject, operation, type StreamOptions } from "../graph/args"
import type { Array } from "../graph/graph"
import { multiply } from "./binary"
import { diagonal } from "./diagonal"
import { type Contraction, contractionPath, parseSubscripts, type Term } from "./einsum-path"
import { matmul } from "./matmul"
import { sum } from "./reduce"

/** An array with a distinct subscript for each axis. */
interface Factor {
  readonly x: Array
  readonly term: Term
}

/** Transposes to another order of axes. */
function arrange({ x, term }: Factor, order: Term): Array {
  if (order.every((c, i) => c === term[i])) return x
  return x.transpose(order.map((c) => term.indexOf(c)))
}

/** Takes diagonals for repeated subscripts, and squeezes axes of size 1 that broadcast. */
function normalize(x: Array, term: Term, { sizes }: Contraction): Factor {
  let [array, left] = [x, term]
  for (let i = 0; i < left.length; i++) {
    const j = left.indexOf(left[i], i + 1)
    if (j < 0) continue
    // The diagonal becomes the last axis.
    array = diagonal(array, 0, i, j)
    left = [...left.filter((_, axis) => axis !== i && axis !== j), left[i]]
    i = -1
  }
  const single = left.map((_, i) => i).filter((i) => array.shape[i] === 1 && sizes.get(left[i]) !== 1)
  if (single.length === 0) return { x: array, term: left }
  return { x: array.squeeze(single), term: left.filter((_, i) => !single.includes(i)) }
}

/** Sums over the subscripts that are not needed. */
function sumOut({ x, term }: Factor, needed: ReadonlySet<string>): Factor {
  const axes = term.map((_, i) => i).filter((i) => !needed.has(term[i]))
  if (axes.length === 0) return { x, term }
  return { x: sum(x, axes), term: term.filter((c) => needed.has(c)) }
}

/** Flattens rows and columns to one axis each, after the batch axes. */
function asMatrices({ x, term }: Factor, batch: Term, rows: Term, columns: Term): Array {
  const arranged = arrange({ x, term }, [...batch, ...rows, ...columns])
  if (rows.length === 1 && columns.length === 1) return arranged
  const size = (from: number, to: number): number => arranged.shape.slice(from, to).reduce((a, b) => a * b, 1)
  const split = batch.length + rows.length
  return arranged.reshape([
    ...arranged.shape.slice(0, batch.length),
    size(batch.length, split),
    size(split, arranged.ndim),
  ])
}

/** Contracts two factors over the subscripts that are not needed, preferably with the axes in `order`. */
function contract(first: Factor, second: Factor, needed: ReadonlySet<string>, order: Term | null): Factor {
  let a = sumOut(first, union(needed, second.term))
  let b = sumOut(second, union(needed, a.term))
  const shared = (a.x.size >= b.x.size ? a : b).term.filter((c) => a.term.includes(c) && b.term.includes(c))
  const inner = shared.filter((c) => !needed.has(c))
  if (inner.length === 0) {
    const all = [...a.term, ...b.term.filter((c) => !a.term.includes(c))]
    const term = order ?? all
    return { x: multiply(spread(a, term), spread(b, term)), term }
  }
  const batch = shared.filter((c) => needed.has(c))
  // The columns of the result come from the second factor.
  if (order && a.term.includes(order[order.length - 1]) && !batch.includes(order[order.length - 1]))
    [a, b] = [b, a]
  const [rows, columns] = [a, b].map(({ term }) => term.filter((c) => !shared.includes(c)))
  const product = matmul(asMatrices(a, batch, rows, inner), asMatrices(b, batch, inner, columns))
  const shape = [
    ...batch.map((c) => sizeIn(a, c)),
    ...rows.map((c) => sizeIn(a, c)),
    ...columns.map((c) => sizeIn(b, c)),
  ]
  return { x: product.reshape(shape), term: [...batch, ...rows, ...columns] }
}
const union = (a: Iterable<string>, b: Iterable<string>): Set<string> => new Set([...a, ...b])
const sizeIn = ({ x, term }: Factor, c: string): number => x.shape[term.indexOf(c)]

/** A factor with an axis for every subscript of `term`, of size 1 for those it lacks. */
function spread(factor: Factor, term: Term): Array {
  const own = arrange(
    factor,
    term.filter((c) => factor.term.includes(c)),
  )
  const missing = term.map((_, i) => i).filter((i) => !factor.term.includes(term[i]))
  return missing.length === 0 ? own : own.expandDims(missing)
}

function evaluate(contraction: Contraction, arrays: readonly Array[]): Array {
  const { inputs, output } = contraction
  let factors = arrays.map((x, i) => normalize(x, inputs[i], contraction))
  for (const step of contractionPath(contraction).steps) {
    const rest = factors.filter((_, i) => !step.includes(i))
    const outside = union(
      output,
      rest.flatMap(({ term }) => [...term]),
    )
    const [head, ...tail] = step.map((i) => factors[i])
    let result = tail.length === 0 ? sumOut(head, outside) : head
    tail.forEach((factor, i) => {
      const later = tail.slice(i + 1).flatMap(({ term }) => [...term])
      const isLast = rest.length === 0 && later.length === 0 && i === tail.length - 1
      result = contract(result, factor, union(outside, later), isLast ? output : null)
    })
    factors = [...rest, result]
  }
  return arrange(factors[0], output)
}

/** Operands are variadic, so options are separated here. */
function read(op: string, args: readonly unknown[]): { arrays: Array[]; options: unknown[] } {
  const hasOptions = args.length > 1 && isPlainObject(args[args.length - 1])
  const operands = hasOptions ? args.slice(1, -1) : args.slice(1)
  const arrays = operands.map((x, i) => asArrayArgument(op, `operand ${i}`, x))
  return { arrays, options: hasOptions ? [args[args.length - 1]] : [] }
}

const contractionOf = (op: string, subscripts: unknown, arrays: readonly Array[]): Contraction =>
  parseSubscripts(
    op,
    subscripts,
    arrays.map((x) => x.shape),
  )

const einsumOf = operation(
  "einsum",
  ["subscripts", "operands"],
  (subscripts: unknown, operands: readonly Array[]) =>
    evaluate(contractionOf("einsum", subscripts, operands), operands),
)

/**
 * Einstein summation: `subscripts` has a letter for each axis of each operand, with terms separated by commas, and after an arrow the
 * letters of the result. Letters missing from the result are summed over; a letter repeated in a term takes the diagonal; `...` stands for
 * any number of axes, which broadcast, as do axes of size 1. Without an arrow, the result has the axes of the ellipsis and, in alphabetical
 * order, the letters that occur once. Operands are contracted in the order of {@link einsumPath}. As in {@link matmul}, products of
 * integers are computed in float32.
 * @throws ArgumentError for malformed subscripts, a wrong number of operands or more than 128, and an output with repeated or unknown
 * letters; ShapeError if the subscripts do not match the shapes
 * @example
 * mx.einsum('ij,jk->ik', mx.array([[1, 2], [3, 4]]), mx.array([[1], [1]])).tolist() // => [[3], [7]]
 * mx.einsum('ii', mx.array([[1, 2], [3, 4]])).item() // => 5
 */
export function einsum(subscripts: string, ...operands: Array[]): Array
export function einsum(subscripts: string, ...operandsAndOptions: [...Array[], StreamOptions]): Array
export function einsum(...args: unknown[]): Array {
  const { arrays, options } = read("einsum", args)
  return einsumOf([args[0], arrays, ...options])
}

/**
 * The order in which {@link einsum} contracts its operands: for each step the indices of those to contract, after which the result is
 * appended to the list; and a report of its cost compared to contracting everything at once.
 * @throws the same errors as einsum
 * @example
 * const [a, b, c] = [mx.zeros([5, 8]), mx.zeros([8, 10]), mx.zeros([10, 7])]
 * mx.einsumPath('ij,jk,kl', a, b, c)[0] // => [[1, 2], [0, 1]]
 */
export function einsumPath(
  subscripts: string,
  ...operands: Array[]
): [path: number[][], description: string] {
  const { arrays } = read("einsumPath", [subscripts, ...operands])
  const contraction = contractionOf("einsumPath", subscripts, arrays)
  const { steps, cost, scaling, naiveCost, naiveScaling } = contractionPath(contraction)
  const lines: [string, string | number][] = [
    ["Complete contraction", subscripts],
    ["Naive scaling", naiveScaling],
    ["Optimized scaling", scaling],
    ["Naive FLOP count", naiveCost],
    ["Optimized FLOP count", cost],
  ]
  const description = lines.map(([name, value]) => `${name.padStart(22)}:  ${value}\n`).join("")
  return [steps.map((step) => [...step]), description]
}
