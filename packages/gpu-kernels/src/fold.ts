/**
 * Reductions: an accumulator, how an element becomes one, how two meet, and what is written of the last.
 */
import { type Dtype, isInteger } from "@lazuli/core/engine"
import { computeType, elementType, metalType } from "./metal-types"
import { functionsFor } from "./scalar-source"

/** A fold of elements, in Metal. Expressions are over the names in parentheses. */
export interface Fold {
  /** Tells folds apart, their types included. */
  readonly key: string
  /** The accumulator: a type of 4 or 8 bytes, or `lz_acc`, which `types` defines. */
  readonly acc: string
  /** Bytes of the accumulator. */
  readonly accSize: number
  readonly types?: string
  readonly from: string
  readonly to: string
  readonly start: string
  /** Of the element `x` and its position `k`. */
  readonly first: string
  /** Of `a` and `b`; `b` comes later. */
  readonly combine: string
  /** Of the accumulator `a` and the number `scale`. */
  readonly last: string
  /** The accumulator `a` of the lane that differs in the bits of `d`. */
  readonly exchange: string
}

/** The expression by which lanes exchange a value. */
export function exchanged(value: string, type: string): string {
  return ["ulong", "long", "lz_double"].includes(type)
    ? `as_type<${type}>(simd_shuffle_xor(as_type<uint2>(${value}), d))`
    : `simd_shuffle_xor(${value}, d)`
}

const sizeOfType = (type: string): number => (["ulong", "long", "float2", "lz_double"].includes(type) ? 8 : 4)

/** The functions `lz_first`, `lz_fold`, `lz_last`, `lz_exchange` and `lz_start` of a fold; `partial`: elements are accumulators already. */
export function foldText(fold: Fold, partial: boolean, whole: boolean): string {
  const { acc } = fold
  return `${fold.types ?? ""}
inline ${acc} lz_start() { return ${fold.start}; }
inline ${acc} lz_first(${partial ? acc : fold.from} x, uint k) { return ${partial ? "x" : fold.first}; }
inline ${acc} lz_fold(${acc} a, ${acc} b) { return ${fold.combine}; }
inline ${whole ? fold.to : acc} lz_last(${acc} a, float scale) { return ${whole ? fold.last : "a"}; }
inline ${acc} lz_exchange(${acc} a, ushort d) { return ${fold.exchange}; }
`
}

/** Those, and what they call. */
export function foldSource(fold: Fold, partial: boolean, whole: boolean): string {
  const text = foldText(fold, partial, whole)
  return functionsFor(text) + text
}

function simple(
  name: string,
  acc: string,
  from: Dtype,
  to: Dtype,
  parts: Pick<Fold, "start" | "first" | "combine" | "last">,
): Fold {
  return {
    key: `${name} ${from.name} ${to.name}`,
    acc,
    accSize: sizeOfType(acc),
    from: elementType(from) as string,
    to: elementType(to) as string,
    exchange: exchanged("a", acc),
    ...parts,
  }
}

/** Sums and products of integers wrap, so they are computed without sign. */
const arithmetic = (dtype: Dtype): string =>
  dtype.kind === "floating" || dtype.kind === "complex"
    ? computeType(dtype)
    : dtype.size === 8
      ? "ulong"
      : "uint"
const lifted = (from: Dtype, acc: string): string =>
  from.kind === "bool" ? `${acc}(x ? 1 : 0)` : `${acc}(x)`

/** Sum. */
export function sumFold(from: Dtype, to: Dtype): Fold {
  const acc = arithmetic(to)
  return simple("sum", acc, from, to, {
    start: acc === "float2" ? "float2(0.0f, 0.0f)" : `${acc}(0)`,
    first: lifted(from, acc),
    combine: "a + b",
    last: `${elementType(to)}(a)`,
  })
}

/** Product. */
export function prodFold(from: Dtype, to: Dtype): Fold {
  const acc = arithmetic(to)
  return simple("prod", acc, from, to, {
    start: acc === "float2" ? "float2(1.0f, 0.0f)" : `${acc}(1)`,
    first: lifted(from, acc),
    combine: acc === "float2" ? "lz_cmul(a, b)" : "a * b",
    last: `${elementType(to)}(a)`,
  })
}

/** The value that loses against every other. */
export function weakest(name: "max" | "min", dtype: Dtype): string {
  const far = name === "max" ? "-INFINITY" : "INFINITY"
  if (dtype.kind === "complex") return `float2(${far}, ${far})`
  if (dtype.kind === "floating") return far
  if (dtype.kind === "bool") return name === "max" ? "false" : "true"
  const type = computeType(dtype)
  return `${type}(numeric_limits<${elementType(dtype)}>::${name === "max" ? "min" : "max"}())`
}

/** Largest or smallest element; NaN wins. */
export function extremeFold(name: "max" | "min", dtype: Dtype): Fold {
  const acc = dtype.kind === "bool" ? "uint" : computeType(dtype)
  return simple(name, acc, dtype, dtype, {
    start: dtype.kind === "bool" ? (name === "max" ? "0u" : "1u") : weakest(name, dtype),
    first: lifted(dtype, acc),
    combine: `lz_${dtype.kind === "complex" ? "c" : ""}${name}imum(a, b)`,
    last: dtype.kind === "bool" ? "a != 0u" : `${elementType(dtype)}(a)`,
  })
}

/** Folds to true if all, or any, elements differ from zero; NaN does. */
export function truthFold(name: "all" | "any", from: Dtype, to: Dtype): Fold {
  const differs =
    from.kind === "complex"
      ? "x.x != 0.0f || x.y != 0.0f"
      : from.kind === "bool"
        ? "x"
        : from.kind === "floating"
          ? from.size === 8
            ? "x != 0.0f"
            : "float(x) != 0.0f"
          : `x != ${elementType(from)}(0)`
  return simple(name, "uint", from, to, {
    start: name === "all" ? "1u" : "0u",
    first: `(${differs}) ? 1u : 0u`,
    combine: name === "all" ? "a & b" : "a | b",
    last: "a != 0u",
  })
}

/** The first position of the largest or smallest element. The first NaN wins. */
export function positionFold(name: "argmax" | "argmin", from: Dtype, to: Dtype): Fold {
  const value = from.kind === "bool" ? "uint" : computeType(from)
  const sign = name === "argmax" ? ">" : "<"
  const beats =
    from.kind === "complex"
      ? // One whose real part is NaN is not beaten where it comes first, and beats nothing elsewhere.
        `(a.v.x != a.v.x ? a.k != 0u : b.v.x ${sign} a.v.x || (b.v.x == a.v.x && b.v.y ${sign} a.v.y))`
      : from.kind === "floating"
        ? `b.v ${sign} a.v || (b.v != b.v && a.v == a.v)`
        : `b.v ${sign} a.v`
  return {
    key: `${name} ${from.name}`,
    acc: "lz_acc",
    accSize: sizeOfType(value) === 8 ? 16 : 8,
    types: `struct lz_acc { ${value} v; uint k; };
inline lz_acc lz_at(${value} v, uint k) { lz_acc a; a.v = v; a.k = k; return a; }
inline bool lz_beats(lz_acc b, lz_acc a) { return ${beats}; }
inline lz_acc lz_better(lz_acc a, lz_acc b) {
  if (a.k == 0xffffffffu) return b;
  if (b.k == 0xffffffffu) return a;
  return lz_beats(b, a) || (!lz_beats(a, b) && b.k < a.k) ? b : a;
}
`,
    from: elementType(from) as string,
    to: elementType(to) as string,
    start: `lz_at(${value === "float2" ? "float2(0.0f, 0.0f)" : `${value}(0)`}, 0xffffffffu)`,
    first: `lz_at(${lifted(from, value)}, k)`,
    combine: "lz_better(a, b)",
    last: `${elementType(to)}(a.k)`,
    exchange: `lz_at(${exchanged("a.v", value)}, simd_shuffle_xor(a.k, d))`,
  }
}

/** Variance, from means and squares of distances; Chan, Golub and LeVeque, "Updating formulae", 1979. */
export function varianceFold(dtype: Dtype): Fold {
  return {
    key: `variance ${dtype.name}`,
    acc: "lz_acc",
    accSize: 12,
    types: `struct lz_acc { float n, mean, squares; };
inline lz_acc lz_at(float n, float mean, float squares) { lz_acc a; a.n = n; a.mean = mean; a.squares = squares; return a; }
inline lz_acc lz_both(lz_acc a, lz_acc b) {
  if (a.n == 0.0f) return b;
  if (b.n == 0.0f) return a;
  float n = a.n + b.n, d = b.mean - a.mean, share = b.n / n;
  return lz_at(n, a.mean + d * share, a.squares + b.squares + d * d * a.n * share);
}
`,
    from: elementType(dtype) as string,
    to: elementType(dtype) as string,
    start: "lz_at(0.0f, 0.0f, 0.0f)",
    // Distances from a mean that is not finite are NaN.
    first: "lz_at(1.0f, float(x), float(x) - float(x))",
    combine: "lz_both(a, b)",
    last: `${elementType(dtype)}(a.squares * scale)`,
    exchange: "lz_at(simd_shuffle_xor(a.n, d), simd_shuffle_xor(a.mean, d), simd_shuffle_xor(a.squares, d))",
  }
}

/** True if Metal has what folds of this dtype need. */
export const isFoldable = (dtype: Dtype): boolean =>
  metalType(dtype) !== undefined &&
  (dtype.kind === "bool" || dtype.kind === "floating" || dtype.kind === "complex" || isInteger(dtype))
