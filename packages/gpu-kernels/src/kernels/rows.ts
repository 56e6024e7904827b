/**
 * Kernels along the last axis, row by row: softmax, log-sum-exp, norms and their derivatives. Softmax along other axes runs down
 * columns.
 */
import { float32, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { sumFold } from "../fold"
import { viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { type RowForm, type RowProgram, rowSource, type Stage } from "../row-source"
import { functionsFor } from "../scalar-source"
import { withAllRowMajor, withRowMajor } from "./copy"
import { encodeFold, targetOf } from "./reduce"

const VECTOR = 16
/**
 * Rows up to this long take a simdgroup, and twice as long ones where there are many; longer ones a threadgroup, whose threads keep about
 * so many elements.
 */
const SIMDGROUP_ROW = 512
const MANY_ROWS = 2048
const KEPT = 16
const MOST_KEPT = 32
const MOST_THREADS = 1024
const GROUP = 256

/** The walk of threads over rows of `n` elements, with vectors of `width`, and how many rows a threadgroup takes. */
export function rowForm(
  n: number,
  rows: number,
  width: number,
): Omit<RowForm, "type"> & { readonly threads: number; readonly together: number } {
  const alone = n <= (rows >= MANY_ROWS ? 2 * SIMDGROUP_ROW : SIMDGROUP_ROW)
  const least = Math.max(KEPT, width)
  const threads = alone ? 32 : Math.min(MOST_THREADS, Math.max(64, Math.ceil(n / least / 32) * 32))
  const count = Math.ceil(n / (threads * width)) * width
  const together = alone ? Math.min(GROUP / 32, rows) : 1
  return { width, count: count > MOST_KEPT ? 0 : count, alone, threads, together }
}

/** Adds kernel `rows` for locations of row-major inputs. */
function dispatchRows(
  queue: DispatchQueue,
  op: string,
  program: RowProgram,
  type: string,
  itemsize: number,
  locations: readonly Location[],
  outputs: readonly Location[],
  rows: number,
  n: number,
  eps = 0,
): void {
  const fits = (w: number): boolean =>
    n % w === 0 && [...locations, ...outputs.slice(0, 1)].every((p) => p.offset % (w * itemsize) === 0)
  const width = fits(VECTOR / itemsize) ? VECTOR / itemsize : 1
  const { threads, together, ...form } = { type, ...rowForm(n, rows, width) }
  const { alone } = form
  queue.dispatch({
    op,
    kernel: {
      key: `rows ${program.key} ${type} ${form.width} ${form.count} ${alone}`,
      name: "rows",
      source: () => rowSource(program, form),
    },
    arguments: [...locations, ...outputs, Uint32Array.of(rows, n), Float32Array.of(eps)] as Argument[],
    writes: outputs.map((p) => p.storage),
    grid: [Math.ceil(rows / together) * together * threads, 1, 1],
    threadgroup: [together * threads, 1, 1],
  })
}

/** Maximum and sum of exponentials in one look; where all elements of a thread are −∞, its sum is 0. */
const online: readonly Stage[] = [
  {
    scan: { most: "-INFINITY", part: "0.0f" },
    next: `float high = lz_maximum(most, x), shift = high == -INFINITY ? 0.0f : high;
    part = (most == high ? part : part * precise::exp(most - shift)) + precise::exp(x - shift);
    most = high;`,
  },
  { fold: "max", name: "top", of: "most", once: true },
  { name: "share", is: "most == top ? part : part * precise::exp(most - (top == -INFINITY ? 0.0f : top))" },
  { fold: "sum", name: "total", of: "share", once: true },
]

const softmaxRows: RowProgram = {
  key: "softmax",
  longStages: [...online, { set: "x", to: "precise::exp(x - top)" }],
  stages: [
    { fold: "max", name: "top", of: "x" },
    { set: "x", to: "precise::exp(x - top)" },
    { fold: "sum", name: "total", of: "x" },
  ],
  element: "x / total",
}
const logsumexpRows: RowProgram = {
  key: "logsumexp",
  longStages: online,
  stages: [
    { fold: "max", name: "top", of: "x" },
    { fold: "sum", name: "total", of: "precise::exp(x - top)" },
  ],
  row: "isinf(top) ? top : top + precise::log(total)",
}

/** Threads along the columns of a group, those that share a column, and from how many elements on. */
const COLUMNS = 32
const LANES = 8
const LONG_COLUMN = 64

/**
 * Down columns: `lanes` threads for each of columns that lie side by side. Maximum and sum in one pass, with several elements read
 * at once; where all so far are −∞, the sum is 0.
 */
function columnSource(type: string, whole: boolean, lanes: number): string {
  const at = (k: string): string => `x[base + (${k}) * inner]`
  const add = (values: readonly string[]): string => {
    const high = values.reduce((a, b) => `lz_maximum(${a}, ${b})`, "top")
    const terms = values.map((v) => `precise::exp(${v} - shift)`).join(" + ")
    return `float high = ${high}, shift = high == -INFINITY ? 0.0f : high;
    total = (top == high ? total : total * precise::exp(top - shift)) + (${terms});
    top = high;`
  }
  const meet =
    lanes === 1
      ? ""
      : `  threadgroup float tops[${lanes}][${COLUMNS}];
  threadgroup float totals[${lanes}][${COLUMNS}];
  tops[lane.y][lane.x] = top;
  totals[lane.y][lane.x] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint l = 0; l < ${lanes}; l++) top = lz_maximum(top, tops[l][lane.x]);
  float common = top == -INFINITY ? 0.0f : top;
  total = 0.0f;
  for (uint l = 0; l < ${lanes}; l++)
    total += tops[l][lane.x] == top ? totals[l][lane.x] : totals[l][lane.x] * precise::exp(tops[l][lane.x] - common);
`
  const write = (k: string, v: string): string =>
    `y[base + (${k}) * inner] = ${type}(precise::exp(float(${v}) - top) / total);`
  return `${METAL_HEADER}${functionsFor("lz_maximum")}
kernel void columns(device const ${type}* x [[buffer(0)]], device ${type}* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    uint2 lane [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]],
    uint2 threads [[threads_per_threadgroup]]) {
  uint n = sizes[0], inner = sizes[1], i = group.x * threads.x + lane.x;
  bool inside = i < sizes[2];
  uint line = inside ? i : 0, base = line / inner * n * inner + line % inner, end = inside ? n : 0;
  float top = -INFINITY, total = 0.0f;
  uint k = lane.y;
  for (; k + ${3 * lanes} < end; k += ${4 * lanes}) {
    float v0 = float(${at("k")}), v1 = float(${at(`k + ${lanes}`)}), v2 = float(${at(`k + ${2 * lanes}`)}), v3 = float(${at(`k + ${3 * lanes}`)});
    ${add(["v0", "v1", "v2", "v3"])}
  }
  for (; k < end; k += ${lanes}) {
    float v = float(${at("k")});
    ${add(["v"])}
  }
${meet}${
  whole
    ? `  k = lane.y;
  for (; k + ${3 * lanes} < end; k += ${4 * lanes}) {
    ${type} several[4];
    for (uint u = 0; u < 4; u++) several[u] = ${at(`k + u * ${lanes}`)};
    for (uint u = 0; u < 4; u++) ${write(`k + u * ${lanes}`, "several[u]")}
  }
  for (; k < end; k += ${lanes}) ${write("k", at("k"))}`
    : `  if (inside && lane.y == 0) y[i] = ${type}(isinf(top) ? top : top + precise::log(total));`
}
}
`
}

const supports = (node: Node): boolean =>
  node.inputs[0].dtype.kind === "floating" &&
  metalType(node.inputs[0].dtype) !== undefined &&
  isCountable(node)

function along(program: RowProgram): Family {
  return {
    supports,
    encode: (node, queue) => {
      const [x] = node.inputs
      const axis = node.params.axis as number
      const n = x.shape[axis]
      const inner = sizeOf(x.shape.slice(axis + 1))
      const lines = sizeOf(x.shape) / n
      if (sizeOf(x.shape) === 0) return
      const type = metalType(x.dtype) as string
      const target = targetOf(node)
      withRowMajor(queue, viewOf(x), (location) => {
        if (inner === 1) {
          dispatchRows(queue, program.key, program, type, x.dtype.size, [location], [target], lines, n)
          return
        }
        const whole = program.element !== undefined
        const lanes = n >= LONG_COLUMN ? LANES : 1
        const across = lanes > 1 ? COLUMNS : Math.min(GROUP, Math.ceil(lines / 32) * 32)
        queue.dispatch({
          op: program.key,
          kernel: {
            key: `columns ${program.key} ${type} ${lanes}`,
            name: "columns",
            source: () => columnSource(type, whole, lanes),
          },
          arguments: [location, target, Uint32Array.of(n, inner, lines)],
          writes: [target.storage],
          grid: [Math.ceil(lines / across) * across, lanes, 1],
          threadgroup: [across, lanes, 1],
        })
      })
    },
  }
}

const rate = { name: "rate", is: "1.0f / precise::sqrt(squares / size + eps)" } as const
const centered = [
  { fold: "sum", name: "total", of: "x" },
  { name: "mean", is: "total / size" },
  { set: "x", to: "x - mean" },
] as const
/** Mean and sum of squared distances in one look; Welford, "Note on a method for calculating corrected sums", 1962. */
const moments: readonly Stage[] = [
  {
    scan: { seen: "0.0f", near: "0.0f", spread: "0.0f" },
    next: `seen += 1.0f; float from = x - near; near += from / seen; spread += from * (x - near);`,
  },
  { fold: "sum", name: "total", of: "seen * near", once: true },
  { name: "mean", is: "total / size" },
  { fold: "sum", name: "squares", of: "spread + seen * (near - mean) * (near - mean)", once: true },
]
const squares = { fold: "sum", name: "squares", of: "x * x" } as const

function norm(name: "layerNorm" | "rmsNorm"): Family {
  return {
    supports,
    encode: (node, queue) => {
      const { hasWeight, hasBias = false, eps } = node.params as Record<string, boolean> & { eps: number }
      const [x] = node.inputs
      const n = x.shape[x.shape.length - 1]
      if (sizeOf(x.shape) === 0) return
      const program: RowProgram = {
        key: `${name} ${hasWeight} ${hasBias}`,
        weight: hasWeight,
        bias: hasBias,
        stages: [...(name === "layerNorm" ? centered : []), squares, rate],
        ...(name === "layerNorm" && { longStages: [...moments, rate, { set: "x", to: "x - mean" }] }),
        element: `x * rate${hasWeight ? " * weight" : ""}${hasBias ? " + bias" : ""}`,
      }
      const type = metalType(x.dtype) as string
      withAllRowMajor(queue, node.inputs, (locations) => {
        const rows = sizeOf(x.shape) / n
        dispatchRows(queue, name, program, type, x.dtype.size, locations, [targetOf(node)], rows, n, eps)
      })
    },
  }
}

/** Sums over rows of g·x̂ and of g: threads (32, 8) take 32 columns of a part of the rows. */
const gradientSource = (type: string): string => `${METAL_HEADER}
kernel void gradients(device const ${type}* x [[buffer(0)]], device const ${type}* g [[buffer(1)]], device const float* kept [[buffer(2)]],
    device float* weights [[buffer(3)]], device float* biases [[buffer(4)]], constant uint* sizes [[buffer(5)]],
    uint2 lane [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]]) {
  uint rows = sizes[0], n = sizes[1], part = sizes[2], column = group.x * 32 + lane.x;
  uint begin = group.y * part, end = column < n ? min(rows, begin + part) : begin;
  float w = 0.0f, b = 0.0f;
  for (uint row = begin + lane.y; row < end; row += 8) {
    float d = float(g[row * n + column]);
    w += d * (float(x[row * n + column]) - kept[2 * row]) * kept[2 * row + 1];
    b += d;
  }
  threadgroup float shared[2][8][32];
  shared[0][lane.y][lane.x] = w;
  shared[1][lane.y][lane.x] = b;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane.y == 0 && column < n) {
    for (uint k = 1; k < 8; k++) {
      w += shared[0][k][lane.x];
      b += shared[1][k][lane.x];
    }
    weights[group.y * n + column] = w;
    biases[group.y * n + column] = b;
  }
}
`

function normGradient(name: "layerNormVjp" | "rmsNormVjp"): Family {
  const layer = name === "layerNormVjp"
  return {
    supports,
    encode: (node, queue) => {
      const { hasWeight, eps } = node.params as { hasWeight: boolean; eps: number }
      const [x] = node.inputs
      const g = node.inputs[node.inputs.length - 1]
      const outputs = node.outputs ?? [node]
      const { dtype } = x
      const n = x.shape[x.shape.length - 1]
      if (n === 0) return
      const rows = sizeOf(x.shape) / n
      const type = metalType(dtype) as string
      const program: RowProgram = {
        key: `${name} ${hasWeight}`,
        g: true,
        weight: hasWeight,
        stages: [
          ...(layer ? centered : [{ name: "mean", is: "0.0f" }]),
          squares,
          rate,
          { set: "x", to: "x * rate" },
          ...(hasWeight ? [{ set: "g", to: "g * weight" } as const] : []),
          ...(layer ? [{ fold: "sum", name: "whole", of: "g" } as const] : []),
          { fold: "sum", name: "share", of: "g * x" },
        ],
        element: layer ? "(g - whole / size - x * (share / size)) * rate" : "(g - x * (share / size)) * rate",
        kept: ["mean", "rate"],
      }
      const inputs = [x, g, ...(hasWeight ? [node.inputs[1]] : [])]
      const sums = outputs.slice(1)
      if (rows === 0) {
        // Sums over no rows.
        for (const sum of sums)
          encodeFold(
            queue,
            name,
            sumFold(float32, dtype),
            viewOf(g),
            [...g.shape.keys()].slice(0, -1),
            targetOf(sum),
          )
        return
      }
      withAllRowMajor(queue, inputs, (locations) => {
        const kept = queue.allocate(rows * 8)
        const stats = { storage: kept, offset: 0 }
        dispatchRows(
          queue,
          name,
          program,
          type,
          dtype.size,
          locations,
          [targetOf(outputs[0]), stats],
          rows,
          n,
          eps,
        )
        if (sums.length > 0) {
          const parts = Math.max(1, Math.min(64, Math.floor(rows / 64)))
          const part = Math.ceil(rows / parts)
          const partial: Storage[] = [queue.allocate(parts * n * 4), queue.allocate(parts * n * 4)]
          queue.dispatch({
            op: name,
            kernel: { key: `gradients ${type}`, name: "gradients", source: () => gradientSource(type) },
            arguments: [
              locations[0],
              locations[1],
              stats,
              ...partial.map((storage) => ({ storage, offset: 0 })),
              Uint32Array.of(rows, n, part),
            ],
            writes: partial,
            grid: [Math.ceil(n / 32) * 32, parts * 8, 1],
            threadgroup: [32, 8, 1],
          })
          const wanted = hasWeight ? partial.slice(0, sums.length) : [partial[1]]
          sums.forEach((sum, k) => {
            const view = { storage: wanted[k], itemsize: 4, shape: [parts, n], strides: [n, 1], offset: 0 }
            encodeFold(queue, name, sumFold(float32, dtype), view, [0], targetOf(sum))
          })
          for (const storage of partial) storage.drop()
        }
        kept.drop()
      })
    },
  }
}

/** Kernels along rows, by primitive. */
export const rowKernels: Families = {
  softmax: along(softmaxRows),
  logsumexp: along(logsumexpRows),
  layerNorm: norm("layerNorm"),
  rmsNorm: norm("rmsNorm"),
  layerNormVjp: normGradient("layerNormVjp"),
  rmsNormVjp: normGradient("rmsNormVjp"),
}
