/**
 * Sources of the two kernels that fold elements into cells: `fold_rows`, where the elements of a cell are shared by a thread, a simdgroup
 * or a threadgroup, and `fold_columns`, where neighbouring cells are neighbours in memory. Both read several elements before they fold.
 */
import { type Fold, foldSource } from "./fold"
import { METAL_HEADER } from "./metal-types"

/** The threads that fold a row. */
export type Worker = "thread" | "simdgroup" | "threadgroup"

/** The layout of elements: axes of the cells and axes of a cell's elements, in numbers. */
export interface FoldForm {
  readonly cellAxes: number
  readonly rowAxes: number
  /** Elements that are read at once; they lie side by side. */
  readonly width: number
  /** Inputs are accumulators of an earlier pass. */
  readonly partial: boolean
  /** Outputs are results, and not accumulators for a later pass. */
  readonly whole: boolean
}

const UNROLL = 4

/** Sizes of the layout before the axes: cells, elements of each, parts, elements of a part, offset. */
export const FOLD_HEADER = 5

/** Statements that set `name` to where number `index` lies; axes and strides begin at `at` of the layout. */
function locate(name: string, index: string, axes: number, at: number, from: string): string {
  if (axes === 1) return `int ${name} = ${from} + int(${index}) * layout[${at + 1}];`
  const lines = [`int ${name} = ${from}; { uint rest = ${index};`]
  for (let axis = axes - 1; axis >= 0; axis--)
    lines.push(
      axis === 0
        ? `${name} += int(rest) * layout[${at + axes}];`
        : `${name} += int(rest % uint(layout[${at + axis}])) * layout[${at + axes + axis}]; rest /= uint(layout[${at + axis}]);`,
    )
  return `${lines.join(" ")} }`
}

function head(fold: Fold, { partial, whole, width }: FoldForm): string {
  const type = partial ? fold.acc : fold.from
  const pack =
    width > 1 ? `struct alignas(sizeof(${type}) * ${width}) lz_pack { ${type} v[${width}]; };\n` : ""
  return `${METAL_HEADER}${foldSource(fold, partial, whole)}${pack}`
}

const signature = (fold: Fold, { partial, whole }: FoldForm): string =>
  `device const ${partial ? fold.acc : fold.from}* x [[buffer(0)]], device ${whole ? fold.to : fold.acc}* y [[buffer(1)]],
    constant int* layout [[buffer(2)]], constant float& scale [[buffer(3)]]`

/** Cells whose elements are neighbours, or lie anyhow. */
export function rowsSource(fold: Fold, form: FoldForm, worker: Worker): string {
  const { cellAxes, rowAxes, width, partial } = form
  const { acc } = fold
  const type = partial ? acc : fold.from
  const rowAt = FOLD_HEADER + 2 * cellAxes
  const who = {
    thread: "uint cell = group * threads + lane, t = 0, step = 1, part = 0;",
    simdgroup: "uint cell = group * (threads / 32) + simdgroup, t = simd_lane, step = 32, part = 0;",
    threadgroup:
      "uint parts = uint(layout[2]), cell = group / parts, part = group % parts, t = lane, step = threads;",
  }[worker]
  const at = (k: string): string => `{ ${locate("p", k, rowAxes, rowAt, "base")}`
  const one =
    width > 1
      ? `for (uint e = 0; e < ${width}; e++) acc = lz_fold(acc, lz_first(v.v[e], k + e));`
      : "acc = lz_fold(acc, lz_first(v, k));"
  const load = (k: string, into: string): string =>
    width > 1 ? `${into} = *(device const lz_pack*)(x + (base + int(${k})));` : `${at(k)} ${into} = x[p]; }`
  const value = width > 1 ? "lz_pack" : type
  const ending = {
    thread: "",
    simdgroup: "  for (ushort d = 16; d > 0; d /= 2) acc = lz_fold(acc, lz_exchange(acc, d));\n",
    threadgroup: `  for (ushort d = 16; d > 0; d /= 2) acc = lz_fold(acc, lz_exchange(acc, d));
  threadgroup ${acc} shared[32];
  if (simd_lane == 0) shared[simdgroup] = acc;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) {
    acc = lz_start();
    if (simd_lane < threads / 32) acc = shared[simd_lane];
    for (ushort d = 16; d > 0; d /= 2) acc = lz_fold(acc, lz_exchange(acc, d));
  }
`,
  }[worker]
  const writes = {
    thread: "cell < cells",
    simdgroup: "cell < cells && simd_lane == 0",
    threadgroup: "lane == 0",
  }[worker]
  return `${head(fold, form)}kernel void fold_rows(${signature(fold, form)},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]], uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  ${who}
  uint cells = uint(layout[0]), n = uint(layout[1]), begin = part * uint(layout[3]);
  uint end = cell < cells ? min(n, begin + uint(layout[3])) : begin;
  ${acc} acc = lz_start();
  ${locate("base", "cell", cellAxes, FOLD_HEADER, "layout[4]")}
  uint k = begin + t * ${width}, stride = step * ${width};
  for (; k + ${UNROLL - 1} * stride + ${width - 1} < end; k += ${UNROLL} * stride) {
    ${value} several[${UNROLL}];
    for (uint u = 0; u < ${UNROLL}; u++) { uint i = k + u * stride; ${load("i", "several[u]")} }
    for (uint u = 0; u < ${UNROLL}; u++) {
      ${value} v = several[u];
      ${one.replaceAll("k + e", "k + u * stride + e").replace("(v, k)", "(v, k + u * stride)")}
    }
  }
  for (; k + ${width - 1} < end; k += stride) {
    ${value} v;
    ${load("k", "v")}
    ${one}
  }
${
  width > 1
    ? `  uint whole = begin + (end - begin) / ${width} * ${width};
  for (uint i = whole + t; i < end; i += step) { ${type} v = x[base + int(i)]; acc = lz_fold(acc, lz_first(v, i)); }
`
    : ""
}${ending}  if (${writes}) y[${worker === "threadgroup" ? "cell * parts + part" : "cell"}] = lz_last(acc, scale);
}
`
}

/** Columns of neighbouring cells: `lanes` threads share a column. */
export function columnsSource(fold: Fold, form: FoldForm, lanes: number): string {
  const { cellAxes, rowAxes, width, partial } = form
  const { acc } = fold
  const type = partial ? acc : fold.from
  const rowAt = FOLD_HEADER + 2 * cellAxes
  const value = width > 1 ? "lz_pack" : type
  const load = (k: string, into: string): string =>
    `{ ${locate("p", k, rowAxes, rowAt, "base")} ${into} = ${width > 1 ? "*(device const lz_pack*)(x + p)" : "x[p]"}; }`
  const each = (body: string): string => `for (uint e = 0; e < ${width}; e++) ${body}`
  const element = (v: string): string => (width > 1 ? `${v}.v[e]` : v)
  const write = `for (uint e = 0; e < ${width}; e++) y[(part * cells) + cell + e] = lz_last(acc[e], scale);`
  const ending =
    lanes === 1
      ? `  if (inside) ${write}\n`
      : `  threadgroup ${acc} shared[${lanes} * 32 * ${width}];
  ${each(`shared[(t * 32 + column) * ${width} + e] = acc[e];`)}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0 && inside) {
    for (uint o = 1; o < ${lanes}; o++) ${each(`acc[e] = lz_fold(acc[e], shared[(o * 32 + column) * ${width} + e]);`)}
    ${write}
  }
`
  return `${head(fold, form)}kernel void fold_columns(${signature(fold, form)},
    uint2 lane [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]],
    uint2 threads [[threads_per_threadgroup]]) {
  uint cells = uint(layout[0]), n = uint(layout[1]), part = group.y, begin = part * uint(layout[3]);
  uint columns = uint(layout[${FOLD_HEADER + cellAxes - 1}]), column = lane.x, t = lane.y;
  uint across = (columns + threads.x * ${width} - 1) / (threads.x * ${width});
  uint first = (group.x % across * threads.x + column) * ${width};
  bool inside = first < columns;
  uint cell = group.x / across * columns + (inside ? first : 0);
  uint end = inside ? min(n, begin + uint(layout[3])) : begin;
  ${acc} acc[${width}];
  ${each("acc[e] = lz_start();")}
  ${locate("base", "cell", cellAxes, FOLD_HEADER, "layout[4]")}
  uint k = begin + t;
  for (; k + ${(UNROLL - 1) * lanes} < end; k += ${UNROLL * lanes}) {
    ${value} several[${UNROLL}];
    for (uint u = 0; u < ${UNROLL}; u++) { uint i = k + u * ${lanes}; ${load("i", "several[u]")} }
    for (uint u = 0; u < ${UNROLL}; u++) ${each(`acc[e] = lz_fold(acc[e], lz_first(${element("several[u]")}, k + u * ${lanes}));`)}
  }
  for (; k < end; k += ${lanes}) {
    ${value} v;
    ${load("k", "v")}
    ${each(`acc[e] = lz_fold(acc[e], lz_first(${element("v")}, k));`)}
  }
${ending}}
`
}
