/**
 * Running folds along an axis. Rows are taken by threadgroups, tile by tile; long ones by several, after a pass that finds each part's
 * total. Along other axes threads run down lines, so that neighbours read neighbours.
 */
import { type Dtype, type Node, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { extremeFold, type Fold, foldSource, isFoldable, prodFold, sumFold } from "../fold"
import { viewOf } from "../layout"
import { METAL_HEADER } from "../metal-types"
import { withRowMajor } from "./copy"
import { dispatchEach } from "./moves"
import { targetOf } from "./reduce"

/** Elements that a thread takes of a tile. */
const EACH = 4
const GROUP = 256
/** Rows beyond this are shared by groups where there are few. */
const LONG_ROW = 16384
const GROUPS = 256
const MOST_PARTS = 64
/** Threads that keep a large GPU busy down lines, the least elements of a line that are worth one, and those that it reads at once. */
const THREADS = 65536
const LEAST_PART = 64
const AHEAD = 8

/** log Σ exp. Of complex numbers the angle of the smaller is relative to the larger. */
function logSumFold(dtype: Dtype): Fold {
  if (dtype.kind !== "complex")
    return {
      ...sumFold(dtype, dtype),
      key: `logsum ${dtype.name}`,
      start: "-INFINITY",
      combine: "lz_logaddexp(a, b)",
    }
  return {
    ...sumFold(dtype, dtype),
    key: "logsum complex64",
    types: `inline float2 lz_log_both(float2 a, float2 b) {
  bool swap = a.x > b.x;
  float2 high = swap ? a : b, low = swap ? b : a;
  if (low.x == -INFINITY) return high;
  float size = precise::exp(low.x - high.x), re = 1.0f + size * precise::cos(low.y - high.y), im = size * precise::sin(low.y - high.y);
  return float2(high.x + precise::log(precise::sqrt(re * re + im * im)), high.y + precise::atan2(im, re));
}
`,
    start: "float2(-INFINITY, 0.0f)",
    combine: "lz_log_both(a, b)",
  }
}

/** A kernel's work on a row: its results, or the totals of its parts. */
type Step = "whole" | "totals"

interface Direction {
  readonly reverse: boolean
  readonly inclusive: boolean
}

function source(fold: Fold, { reverse, inclusive }: Direction, step: Step, vectors: boolean): string {
  const { acc, from, to } = fold
  const functions = foldSource(fold, false, true).replaceAll("simd_shuffle_xor(", "simd_shuffle_up(")
  const location = (k: string): string => (reverse ? `base + (n - 1 - (${k}))` : `base + ${k}`)
  const value = (e: string): string =>
    inclusive ? `lz_fold(lead, v[${e}])` : `${e} == 0 ? lead : lz_fold(lead, v[${e} == 0 ? 0 : ${e} - 1])`
  const pack = vectors
    ? `struct alignas(sizeof(${from}) * ${EACH}) lz_pack { ${from} v[${EACH}]; };\nstruct alignas(sizeof(${to}) * ${EACH}) lz_results { ${to} v[${EACH}]; };\n`
    : ""
  const loads = `for (uint e = 0; e < ${EACH}; e++) { v[e] = lz_start(); if (first + e < end) v[e] = lz_first(x[${location("first + e")}], 0); }`
  const stores = `for (uint e = 0; e < ${EACH}; e++) if (first + e < end) y[${location("first + e")}] = lz_last(${value("e")}, 1.0f);`
  return `${METAL_HEADER}${functions}${pack}kernel void scan(device const ${from}* x [[buffer(0)]], device ${to}* y [[buffer(1)]],
    device ${step === "totals" ? "" : "const "}${acc}* totals [[buffer(2)]], constant uint* sizes [[buffer(3)]],
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]], uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  uint n = sizes[0], parts = sizes[1], length = sizes[2];
  uint row = group / parts, part = group % parts, base = row * n;
  uint begin = part * length, end = min(n, begin + length), simdgroups = threads / 32;
  threadgroup ${acc} shared[32];
  ${acc} carry = lz_start();
${step === "totals" ? "" : "  for (uint p = 0; p < part; p++) carry = lz_fold(carry, totals[row * parts + p]);\n"}  for (uint tile = begin; tile < end; tile += threads * ${EACH}) {
    ${acc} v[${EACH}];
    uint first = tile + lane * ${EACH};
${
  vectors
    ? `    if (first + ${EACH} <= end) {
      lz_pack several = *(device const lz_pack*)(x + base + first);
      for (uint e = 0; e < ${EACH}; e++) v[e] = lz_first(several.v[e], 0);
    } else {
      ${loads}
    }
`
    : `    ${loads}\n`
}    for (uint e = 1; e < ${EACH}; e++) v[e] = lz_fold(v[e - 1], v[e]);
    ${acc} sum = v[${EACH - 1}];
    for (ushort d = 1; d < 32; d *= 2) {
      ${acc} other = lz_exchange(sum, d);
      if (simd_lane >= d) sum = lz_fold(other, sum);
    }
    ${acc} before = lz_exchange(sum, 1);
    if (simd_lane == 0) before = lz_start();
    if (simd_lane == 31) shared[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ${acc} lead = carry;
    for (uint s = 0; s < simdgroups; s++) {
      if (s == simdgroup) lead = carry;
      carry = lz_fold(carry, shared[s]);
    }
    lead = lz_fold(lead, before);
    threadgroup_barrier(mem_flags::mem_threadgroup);
${
  step === "totals"
    ? ""
    : vectors
      ? `    if (first + ${EACH} <= end) {
      lz_results results;
      for (uint e = 0; e < ${EACH}; e++) results.v[e] = lz_last(${value("e")}, 1.0f);
      *(device lz_results*)(y + base + first) = results;
    } else {
      ${stores}
    }
`
      : `    ${stores}\n`
}  }
${step === "totals" ? "  if (lane == 0) totals[row * parts + part] = carry;\n" : ""}}
`
}

/** Rows of at most `32 · each` elements: a simdgroup for each, which needs no memory of the group. */
function shortSource(fold: Fold, { reverse, inclusive }: Direction, each: number): string {
  const { acc, from, to } = fold
  const functions = foldSource(fold, false, true).replaceAll("simd_shuffle_xor(", "simd_shuffle_up(")
  const at = reverse ? "row * n + (n - 1 - (first + e))" : "row * n + first + e"
  const value = inclusive
    ? "lz_fold(before, v[e])"
    : "e == 0 ? before : lz_fold(before, v[e == 0 ? 0 : e - 1])"
  return `${METAL_HEADER}${functions}kernel void scan_short(device const ${from}* x [[buffer(0)]], device ${to}* y [[buffer(1)]],
    constant uint* sizes [[buffer(2)]], uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]],
    uint simd_lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  uint n = sizes[0], row = group * (threads / 32) + simdgroup, first = simd_lane * ${each};
  uint end = row < sizes[1] ? n : 0;
  ${acc} v[${each}];
  for (uint e = 0; e < ${each}; e++) { v[e] = lz_start(); if (first + e < end) v[e] = lz_first(x[${at}], 0); }
  for (uint e = 1; e < ${each}; e++) v[e] = lz_fold(v[e - 1], v[e]);
  ${acc} sum = v[${each - 1}];
  for (ushort d = 1; d < 32; d *= 2) {
    ${acc} other = lz_exchange(sum, d);
    if (simd_lane >= d) sum = lz_fold(other, sum);
  }
  ${acc} before = lz_exchange(sum, 1);
  if (simd_lane == 0) before = lz_start();
  for (uint e = 0; e < ${each}; e++) if (first + e < end) y[${at}] = lz_last(${value}, 1.0f);
}
`
}

/** Down lines: a thread for each part of each, which reads several elements before it folds them. */
function lineSource(fold: Fold, { reverse, inclusive }: Direction, step: Step): string {
  const { acc, from, to } = fold
  const at = (k: string): string => `base + ${reverse ? `(n - 1 - (${k}))` : `(${k})`} * inner`
  const one = (value: string, k: string): string => {
    const add = `total = lz_fold(total, lz_first(${value}, 0));`
    if (step === "totals") return add
    const write = `y[${at(k)}] = lz_last(total, 1.0f);`
    return inclusive ? `${add} ${write}` : `${write} ${add}`
  }
  return `${METAL_HEADER}${foldSource(fold, false, true)}
kernel void lines(device const ${from}* x [[buffer(0)]], device ${to}* y [[buffer(1)]],
    device ${step === "totals" ? "" : "const "}${acc}* totals [[buffer(2)]], constant uint* sizes [[buffer(3)]],
    uint i [[thread_position_in_grid]]) {
  uint n = sizes[0], inner = sizes[1], lines = sizes[2], length = sizes[3];
  if (i >= sizes[4]) return;
  uint line = i % lines, part = i / lines, base = line / inner * n * inner + line % inner;
  uint k = part * length, end = min(n, k + length);
  ${acc} total = lz_start();
${step === "totals" ? "" : "  for (uint p = 0; p < part; p++) total = lz_fold(total, totals[p * lines + line]);\n"}  for (; k + ${AHEAD} <= end; k += ${AHEAD}) {
    ${from} several[${AHEAD}];
    for (uint u = 0; u < ${AHEAD}; u++) several[u] = x[${at("k + u")}];
    for (uint u = 0; u < ${AHEAD}; u++) { ${one("several[u]", "k + u")} }
  }
  for (; k < end; k++) { ${one(`x[${at("k")}]`, "k")} }
${step === "totals" ? "  totals[i] = total;\n" : ""}}
`
}

function encodeLines(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  direction: Direction,
  from: Location,
  target: Location,
  [n, inner, lines]: readonly [number, number, number],
): void {
  const parts = Math.max(1, Math.min(MOST_PARTS, Math.ceil(THREADS / lines), Math.floor(n / LEAST_PART)))
  const length = Math.ceil(n / parts)
  const totals = parts > 1 ? queue.allocate(lines * (parts - 1) * fold.accSize) : null
  const run = (step: Step): void => {
    const threads = lines * (step === "totals" ? parts - 1 : parts)
    const sums: Argument = totals ? { storage: totals, offset: 0 } : target
    dispatchEach(
      queue,
      op,
      {
        key: `lines ${step} ${direction.reverse} ${direction.inclusive} ${fold.key}`,
        name: "lines",
        source: () => lineSource(fold, direction, step),
      },
      [from, target, sums, Uint32Array.of(n, inner, lines, length, threads)],
      step === "totals" && totals ? [totals] : [target.storage],
      threads,
    )
  }
  if (totals) run("totals")
  run("whole")
  totals?.drop()
}

/** Scans rows of n elements; `sizes` are the bytes of an element and of a result. */
export function encodeRows(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  direction: Direction,
  from: Location,
  target: Location,
  [lines, n]: readonly [number, number],
  sizes: readonly [number, number],
): void {
  const each = n <= 32 ? 1 : EACH
  if (n <= 32 * each) {
    const group = Math.min(GROUP, lines * 32)
    queue.dispatch({
      op,
      kernel: {
        key: `scan short ${each} ${direction.reverse} ${direction.inclusive} ${fold.key}`,
        name: "scan_short",
        source: () => shortSource(fold, direction, each),
      },
      arguments: [from, target, Uint32Array.of(n, lines)],
      writes: [target.storage],
      grid: [Math.ceil((lines * 32) / group) * group, 1, 1],
      threadgroup: [group, 1, 1],
    })
    return
  }
  const parts =
    n > LONG_ROW && lines < GROUPS
      ? Math.min(MOST_PARTS, Math.ceil(GROUPS / lines), Math.ceil(n / (EACH * GROUP)))
      : 1
  const length = Math.ceil(Math.ceil(n / parts) / EACH) * EACH
  const group = Math.min(GROUP, Math.ceil(n / EACH / 32) * 32)
  const vectors =
    !direction.reverse &&
    n % EACH === 0 &&
    [from, target].every((p, i) => sizes[i] <= 4 && p.offset % (EACH * sizes[i]) === 0)
  const totals = parts > 1 ? queue.allocate(lines * parts * fold.accSize) : null
  const run = (step: Step): void => {
    const sums: Argument = totals ? { storage: totals, offset: 0 } : target
    queue.dispatch({
      op,
      kernel: {
        key: `scan ${step} ${vectors} ${direction.reverse} ${direction.inclusive} ${fold.key}`,
        name: "scan",
        source: () => source(fold, direction, step, vectors),
      },
      arguments: [from, target, sums, Uint32Array.of(n, parts, length)],
      writes: step === "totals" && totals ? [totals] : [target.storage],
      grid: [lines * parts * group, 1, 1],
      threadgroup: [group, 1, 1],
    })
  }
  if (totals) run("totals")
  run("whole")
  totals?.drop()
}

function encode(fold: Fold, node: Node, queue: DispatchQueue): void {
  const op = node.primitive?.name as string
  const [input] = node.inputs
  const { axis, ...direction } = node.params as unknown as Direction & { axis: number }
  if (sizeOf(node.shape) === 0) return
  const n = node.shape[axis]
  const inner = sizeOf(node.shape.slice(axis + 1))
  const lines = sizeOf(node.shape) / n
  const target = targetOf(node)
  withRowMajor(queue, viewOf(input), (location) => {
    if (inner > 1) encodeLines(queue, op, fold, direction, location, target, [n, inner, lines])
    else {
      const sizes = [input.dtype.size, node.dtype.size] as const
      encodeRows(queue, op, fold, direction, location, target, [lines, n], sizes)
    }
  })
}

const family = (foldOf: (node: Node) => Fold): Family => ({
  supports: (node) => isFoldable(node.inputs[0].dtype) && isFoldable(node.dtype) && isCountable(node),
  encode: (node, queue) => encode(foldOf(node), node, queue),
})

/** Scans, by primitive. */
export const scans: Families = {
  cumsum: family(({ inputs: [x], dtype }) => sumFold(x.dtype, dtype)),
  cumprod: family(({ inputs: [x], dtype }) => prodFold(x.dtype, dtype)),
  cummax: family(({ dtype }) => extremeFold("max", dtype)),
  cummin: family(({ dtype }) => extremeFold("min", dtype)),
  logcumsumexp: family(({ dtype }) => logSumFold(dtype)),
}
