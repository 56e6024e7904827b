/**
 * Parses the subscripts of `einsum` and chooses the order of contraction. Operates only on shapes.
 */
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import { format, type Shape } from "../graph/shape"

/** The subscripts of one array, one for each axis: letters, and `.0`, `.1`, … for the axes of an ellipsis, counted from its end. */
export type Term = readonly string[]

/** Parsed subscripts that match the operands. */
export interface Contraction {
  readonly inputs: readonly Term[]
  readonly output: Term
  /** The size of each subscript; an operand's size may be 1 instead. */
  readonly sizes: ReadonlyMap<string, number>
}

const ELLIPSIS = "..."

/** The most operands: the greedy order compares every pair. */
const MOST_OPERANDS = 128

/** The letters of one term, with an ellipsis as one of them. */
function lettersOf(op: string, text: string): string[] {
  const letters: string[] = []
  for (let i = 0; i < text.length; i++) {
    if (text.startsWith(ELLIPSIS, i)) {
      if (letters.includes(ELLIPSIS))
        throw new ArgumentError(op, `a term takes one ellipsis at most, received "${text}"`)
      letters.push(ELLIPSIS)
      i += 2
    } else if (/[a-zA-Z]/.test(text[i])) letters.push(text[i])
    else
      throw new ArgumentError(
        op,
        `subscripts must be letters, received ${JSON.stringify(text[i])} in "${text}"`,
      )
  }
  return letters
}

const expand = (letters: readonly string[], length: number): string[] =>
  letters.flatMap((c) => (c === ELLIPSIS ? Array.from({ length }, (_, i) => `.${length - 1 - i}`) : [c]))

/** The number of times each subscript occurs. */
function countsOf(terms: readonly Iterable<string>[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const term of terms) for (const c of term) counts.set(c, (counts.get(c) ?? 0) + 1)
  return counts
}

/** The output without an arrow: the ellipsis, then the letters that occur once, in alphabetical order. */
function impliedOutput(inputs: readonly (readonly string[])[]): string[] {
  const counts = countsOf(inputs)
  const once = [...counts.keys()].filter((c) => c !== ELLIPSIS && counts.get(c) === 1)
  return [...(counts.has(ELLIPSIS) ? [ELLIPSIS] : []), ...once.sort()]
}

/** Parses subscripts and validates them against the shapes of the operands. */
export function parseSubscripts(op: string, subscripts: unknown, shapes: readonly Shape[]): Contraction {
  if (typeof subscripts !== "string")
    throw new ArgumentError(op, `subscripts must be a string, received ${describe(subscripts)}`)
  if (shapes.length === 0) throw new ArgumentError(op, "needs at least one operand")
  if (shapes.length > MOST_OPERANDS)
    throw new ArgumentError(op, `takes at most ${MOST_OPERANDS} operands, received ${shapes.length}`, {
      hint: "Contract them in groups",
    })
  const text = subscripts.replace(/\s/g, "")
  const arrow = text.indexOf("->")
  const terms = (arrow < 0 ? text : text.slice(0, arrow)).split(",").map((term) => lettersOf(op, term))
  if (terms.length !== shapes.length)
    throw new ArgumentError(
      op,
      `"${subscripts}" describes ${terms.length} operands, received ${shapes.length}`,
    )
  const result = arrow < 0 ? impliedOutput(terms) : lettersOf(op, text.slice(arrow + 2))
  let longest = 0
  const inputs = terms.map((letters, i) => {
    const rest = shapes[i].length - letters.length + (letters.includes(ELLIPSIS) ? 1 : 0)
    if (letters.includes(ELLIPSIS) ? rest < 0 : rest !== 0)
      throw new ShapeError(
        op,
        `operand ${i} of shape ${format(shapes[i])} does not have the axes of "${letters.join("")}"`,
      )
    if (letters.includes(ELLIPSIS)) longest = Math.max(longest, rest)
    return expand(letters, rest)
  })
  const sizes = sizesOf(op, inputs, shapes)
  const output = expand(result, longest)
  for (const c of output) {
    if (output.indexOf(c) !== output.lastIndexOf(c))
      throw new ArgumentError(op, `the output repeats "${c}" in "${subscripts}"`)
    if (!sizes.has(c)) throw new ArgumentError(op, `the output's "${c}" is in no input of "${subscripts}"`)
  }
  return { inputs, output, sizes }
}

function sizesOf(op: string, inputs: readonly Term[], shapes: readonly Shape[]): Map<string, number> {
  const sizes = new Map<string, number>()
  inputs.forEach((term, i) => {
    term.forEach((c, axis) => {
      const size = shapes[i][axis]
      const own = shapes[i][term.indexOf(c)]
      if (own !== size)
        throw new ShapeError(
          op,
          `"${c}" stands for the sizes ${own} and ${size} of one operand of shape ${format(shapes[i])}`,
        )
      const known = sizes.get(c) ?? 1
      if (size !== known && size !== 1 && known !== 1)
        throw new ShapeError(
          op,
          `"${c}" has size ${known} before, and ${size} in operand ${i} of shape ${format(shapes[i])}`,
        )
      sizes.set(c, known === 1 ? size : known)
    })
  })
  return sizes
}

/** An order of contraction and its cost, as printed by `einsumPath`. */
export interface Path {
  /** For each step, the indices of the operands to contract; the result is appended to the list. */
  readonly steps: readonly (readonly number[])[]
  readonly cost: number
  readonly scaling: number
  readonly naiveCost: number
  readonly naiveScaling: number
}

type Subscripts = ReadonlySet<string>
const union = (sets: readonly Subscripts[]): Set<string> => new Set(sets.flatMap((s) => [...s]))
const volume = (subscripts: Iterable<string>, sizes: ReadonlyMap<string, number>): number => {
  let product = 1
  for (const c of subscripts) product *= sizes.get(c) as number
  return product
}

/** Multiplications and additions of contracting some operands at once. */
function costOf(
  all: Subscripts,
  sums: boolean,
  operands: number,
  sizes: ReadonlyMap<string, number>,
): number {
  return volume(all, sizes) * (Math.max(1, operands - 1) + (sums ? 1 : 0))
}

interface Candidate {
  /** The number of elements that the step removes. */
  removed: number
  cost: number
  result: Subscripts
  scaling: number
  pair: [number, number]
}

/**
 * The greedy order of opt_einsum (Smith and Gray, 2018), by MLX's choices: always the pair that removes the most elements, the cheapest of
 * equals. The total must not cost more than contracting everything at once, and no intermediate may be larger than all operands and the
 * output; if no pair qualifies, the rest is contracted at once.
 */
export function contractionPath({ inputs, output, sizes }: Contraction): Path {
  let terms: Subscripts[] = inputs.map((term) => new Set(term))
  const wanted = new Set(output)
  const everything = union(terms)
  const sums = (all: Subscripts): boolean => [...all].some((c) => !wanted.has(c))
  const naiveCost = costOf(everything, sums(everything), terms.length, sizes)
  const naiveScaling = everything.size
  if (terms.length <= 2)
    return {
      steps: [terms.map((_, i) => i)],
      cost: naiveCost,
      scaling: naiveScaling,
      naiveCost,
      naiveScaling,
    }
  const limit = Math.max(volume(output, sizes), ...inputs.map((term) => volume(term, sizes)))
  const steps: number[][] = []
  let [cost, scaling] = [0, 0]
  let candidates: Candidate[] = []
  let pairs: [number, number][] = []
  for (let i = 0; i < terms.length; i++) for (let j = i + 1; j < terms.length; j++) pairs.push([i, j])
  // The number of terms (including the output) in which each subscript occurs.
  const counts = countsOf([wanted, ...terms])
  const consider = (pair: [number, number]): void => {
    const [x, y] = pair.map((i) => terms[i])
    const all = union([x, y])
    const result = new Set(
      [...all].filter((c) => (counts.get(c) as number) > (x.has(c) ? 1 : 0) + (y.has(c) ? 1 : 0)),
    )
    const size = volume(result, sizes)
    const price = costOf(all, all.size > result.size, 2, sizes)
    if (size > limit || cost + price > naiveCost) return
    const removed = pair.reduce((sum, i) => sum + volume(terms[i], sizes), 0) - size
    candidates.push({ removed, cost: price, result, scaling: all.size, pair })
  }
  while (terms.length > 1) {
    const shares = ([i, j]: [number, number]): boolean => [...terms[i]].some((c) => terms[j].has(c))
    for (const pair of pairs) if (shares(pair)) consider(pair)
    if (candidates.length === 0) pairs.forEach(consider)
    if (candidates.length === 0) {
      const all = union(terms)
      steps.push(terms.map((_, i) => i))
      cost += costOf(all, sums(all), terms.length, sizes)
      scaling = Math.max(scaling, all.size)
      break
    }
    let best = candidates[0]
    for (const c of candidates)
      if (c.removed > best.removed || (c.removed === best.removed && c.cost < best.cost)) best = c
    const [x, y] = best.pair
    steps.push([x, y])
    for (const term of [terms[x], terms[y]])
      for (const c of term) counts.set(c, (counts.get(c) as number) - 1)
    for (const c of best.result) counts.set(c, (counts.get(c) as number) + 1)
    cost += best.cost
    scaling = Math.max(scaling, best.scaling)
    terms = [...terms.filter((_, i) => i !== x && i !== y), best.result]
    const moved = (i: number): number => i - (i > x ? 1 : 0) - (i > y ? 1 : 0)
    candidates = candidates
      .filter(({ pair: [i, j] }) => i !== x && i !== y && j !== x && j !== y)
      .map((c) => ({ ...c, pair: [moved(c.pair[0]), moved(c.pair[1])] }))
    pairs = terms.slice(1).map((_, i) => [i, terms.length - 1])
  }
  return { steps, cost, scaling, naiveCost, naiveScaling }
}
