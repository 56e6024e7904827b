/**
 * Distances between the rows of two matrices. A threadgroup has 32 × 32 pairs of rows and runs over tiles of their features, so that a row
 * is read once for 32 others. Of rows of few features, such as points, each thread keeps some of b in registers and runs over rows of a.
 */
import { type Node, sizeOf } from "@lazuli/core/engine"
import { type Families, isCountable } from "../family"
import { METAL_HEADER, metalType } from "../metal-types"
import { withExtras } from "./matmul"
import { targetOf } from "./reduce"

const PAIRS = 32
const DEPTH = 16
const THREADS = 256
/** Features of a row that fits into registers; shorter ones are filled up with zeros. */
const NARROW = 4
/** Rows of b that a thread keeps, and rows of a that a threadgroup runs over. */
const KEPT = 4
const RUN = 16

/** The term of a difference, and the end of the sum. */
function formOf(p: number): { name: string; step: string; end: string } {
  if (p === 0) return { name: "count", step: "sum += d != 0.0f ? 1.0f : 0.0f;", end: "sum" }
  if (p === 1) return { name: "sum", step: "sum += fabs(d);", end: "sum" }
  if (p === 2) return { name: "square", step: "sum += d * d;", end: "precise::sqrt(sum)" }
  if (p === Number.POSITIVE_INFINITY)
    return { name: "most", step: "d = fabs(d); sum = d > sum || isnan(d) ? d : sum;", end: "sum" }
  return {
    name: "power",
    step: "if (d != 0.0f) sum += precise::pow(fabs(d), p);",
    end: "(sum == 0.0f ? 0.0f : precise::pow(sum, 1.0f / p))",
  }
}

/** Kernel `cdist`. Sizes: rows of a and of b, features, blocks of pairs along both. */
const source = (type: string, p: number): string => {
  const { step, end } = formOf(p)
  return `${METAL_HEADER}kernel void cdist(device const ${type}* a [[buffer(0)]], device const ${type}* b [[buffer(1)]],
    device ${type}* y [[buffer(2)]], constant uint* sizes [[buffer(3)]], constant float& p [[buffer(4)]],
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
  uint rows = sizes[0], others = sizes[1], width = sizes[2], across = sizes[4];
  uint block = group % (sizes[3] * across), batch = group / (sizes[3] * across);
  uint row = block / across * ${PAIRS}, other = block % across * ${PAIRS};
  a += ulong(batch) * rows * width;
  b += ulong(batch) * others * width;
  y += ulong(batch) * rows * others;
  threadgroup float left[${DEPTH}][${PAIRS + 1}];
  threadgroup float right[${DEPTH}][${PAIRS + 1}];
  uint column = lane % ${PAIRS}, first = lane / ${PAIRS};
  float sums[${(PAIRS * PAIRS) / THREADS}];
  for (uint e = 0; e < ${(PAIRS * PAIRS) / THREADS}; e++) sums[e] = 0.0f;
  for (uint begin = 0; begin < width; begin += ${DEPTH}) {
    for (uint u = lane; u < ${PAIRS * DEPTH}; u += ${THREADS}) {
      uint f = u % ${DEPTH}, r = u / ${DEPTH};
      float l = 0.0f, m = 0.0f;
      if (begin + f < width) {
        if (row + r < rows) l = float(a[(row + r) * width + begin + f]);
        if (other + r < others) m = float(b[(other + r) * width + begin + f]);
      }
      left[f][r] = l;
      right[f][r] = m;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint depth = min(${DEPTH}u, width - begin);
    for (uint f = 0; f < depth; f++) {
      float m = right[f][column];
      for (uint e = 0; e < ${(PAIRS * PAIRS) / THREADS}; e++) {
        float d = left[f][first + e * ${THREADS / PAIRS}] - m, sum = sums[e];
        ${step}
        sums[e] = sum;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint e = 0; e < ${(PAIRS * PAIRS) / THREADS}; e++) {
    uint r = row + first + e * ${THREADS / PAIRS};
    float sum = sums[e];
    if (r < rows && other + column < others) y[ulong(r) * others + other + column] = ${type}(${end});
  }
}
`
}

/** Kernel `cdist_narrow`. Sizes as above, in blocks of RUN rows of a and KEPT · THREADS rows of b. */
const narrowSource = (type: string, p: number): string => {
  const { step, end } = formOf(p)
  return `${METAL_HEADER}kernel void cdist_narrow(device const ${type}* a [[buffer(0)]], device const ${type}* b [[buffer(1)]],
    device ${type}* y [[buffer(2)]], constant uint* sizes [[buffer(3)]], constant float& p [[buffer(4)]],
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
  uint rows = sizes[0], others = sizes[1], width = sizes[2], across = sizes[4];
  uint block = group % (sizes[3] * across), batch = group / (sizes[3] * across);
  uint row = block / across * ${RUN}, other = block % across * ${KEPT * THREADS} + lane;
  a += ulong(batch) * rows * width;
  b += ulong(batch) * others * width;
  y += ulong(batch) * rows * others;
  float kept[${KEPT}][${NARROW}];
  for (uint e = 0; e < ${KEPT}; e++) {
    ulong from = min(other + e * ${THREADS}, others - 1) * ulong(width);
    for (uint f = 0; f < ${NARROW}; f++) kept[e][f] = f < width ? float(b[from + f]) : 0.0f;
  }
  uint last = min(row + ${RUN}, rows);
  for (; row < last; row++) {
    float left[${NARROW}];
    for (uint f = 0; f < ${NARROW}; f++) left[f] = f < width ? float(a[row * ulong(width) + f]) : 0.0f;
    for (uint e = 0; e < ${KEPT}; e++) {
      float sum = 0.0f;
      for (uint f = 0; f < ${NARROW}; f++) {
        float d = left[f] - kept[e][f];
        ${step}
      }
      uint column = other + e * ${THREADS};
      if (column < others) y[ulong(row) * others + column] = ${type}(${end});
    }
  }
}
`
}

/** cdist. */
export const distances: Families = {
  cdist: {
    supports: (node) => {
      const type = metalType(node.dtype)
      return type !== undefined && node.inputs.every(({ shape }) => sizeOf(shape) > 0) && isCountable(node)
    },
    encode: (node, queue) => {
      const [a, b] = node.inputs as readonly Node[]
      const [rows, width] = a.shape.slice(-2)
      const [others] = b.shape.slice(-2)
      const p = node.params.p as number
      const type = metalType(node.dtype) as string
      const target = targetOf(node)
      const narrow = width <= NARROW && others >= THREADS / 2
      const name = narrow ? "cdist_narrow" : "cdist"
      const [high, wide] = narrow ? [RUN, KEPT * THREADS] : [PAIRS, PAIRS]
      const [down, across] = [Math.ceil(rows / high), Math.ceil(others / wide)]
      withExtras(queue, [a, b], (inputs) =>
        queue.dispatch({
          op: "cdist",
          kernel: {
            key: `${name} ${type} ${formOf(p).name}`,
            name,
            source: () => (narrow ? narrowSource : source)(type, p),
          },
          arguments: [
            ...inputs,
            target,
            Uint32Array.of(rows, others, width, down, across),
            Float32Array.of(p),
          ],
          writes: [target.storage],
          grid: [sizeOf(a.shape.slice(0, -2)) * down * across * THREADS, 1, 1],
          threadgroup: [THREADS, 1, 1],
        }),
      )
    },
  },
}
