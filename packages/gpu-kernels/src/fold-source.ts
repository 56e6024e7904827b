/**
 * Sources of the two kernels that fold elements into cells: `fold_rows`, where the elements of a cell are shared by a thread, a simdgroup
 * or a threadgroup, and `fold_columns`, where neighbouring cells are neighbours in memory. Both read several elements before they fold.
 */
import { type Fold, foldText } from "./fold"
import { METAL_HEADER } from "./metal-types"
import { functionsFor } from "./scalar-source"

/** The threads that fold a row. */
export type Worker = "thread" | "simdgroup" | "threadgroup"

/** An operand of what is folded. */
export interface FoldOperand {
  /** Its type in memory. */
  readonly type: string
  /** `x` elements; `u` the same one for all that are read at once; `i` bytes of the dispatch. */
  readonly letter: "x" | "u" | "i"
}

/** Elementwise work that makes the elements. */
export interface Prologue {
  readonly key: string
  readonly operands: readonly FoldOperand[]
  /** Statements that read `a0`, `a1`, … and end with `return` of an element. */
  readonly text: string
}

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
  /** Without one elements are read as they are. */
  readonly prologue?: Prologue
}

const UNROLL = 4

/** Sizes of the layout before the axes: cells, elements of each, parts, elements of a part. */
export const FOLD_HEADER = 4

const typeOf = (fold: Fold, { partial }: FoldForm): string => (partial ? fold.acc : fold.from)
const operandsOf = (fold: Fold, form: FoldForm): readonly FoldOperand[] =>
  form.prologue?.operands ?? [{ type: typeOf(fold, form), letter: "x" }]

/** Where an operand's offset begins in the layout, before its strides along the cells' axes and those of a cell's elements. */
function operandAt(fold: Fold, form: FoldForm, k: number): number {
  const axes = form.cellAxes + form.rowAxes
  const before = operandsOf(fold, form)
    .slice(0, k)
    .filter(({ letter }) => letter !== "i").length
  return FOLD_HEADER + axes + before * (1 + axes)
}

/** Statements that set `name` to where number `index` lies; sizes of axes and strides begin at these locations of the layout. */
function locate(
  name: string,
  index: string,
  axes: number,
  sizes: number,
  strides: number,
  from: string,
): string {
  if (axes === 1) return `int ${name} = ${from} + int(${index}) * layout[${strides}];`
  const lines = [`int ${name} = ${from}; { uint rest = ${index};`]
  for (let axis = axes - 1; axis >= 0; axis--)
    lines.push(
      axis === 0
        ? `${name} += int(rest) * layout[${strides}];`
        : `${name} += int(rest % uint(layout[${sizes + axis}])) * layout[${strides + axis}]; rest /= uint(layout[${sizes + axis}]);`,
    )
  return `${lines.join(" ")} }`
}

function head(fold: Fold, form: FoldForm): string {
  const { partial, whole, width, prologue } = form
  const pack =
    width > 1
      ? `template <typename T> struct alignas(sizeof(T) * ${width}) lz_pack { T v[${width}]; };\n`
      : ""
  const text = foldText(fold, partial, whole)
  const source = prologue
    ? `inline ${fold.from} lz_source(${prologue.operands.map(({ type }, k) => `${type} a${k}`).join(", ")}) {\n${prologue.text}\n}\n`
    : ""
  return `${METAL_HEADER}${functionsFor(text + source)}${text}${source}${pack}`
}

function signature(fold: Fold, form: FoldForm): string {
  const operands = operandsOf(fold, form)
  return [
    ...operands.map(({ type, letter }, k) =>
      letter === "i" ? `constant ${type}& x${k}` : `device const ${type}* x${k}`,
    ),
    `device ${form.whole ? fold.to : fold.acc}* y`,
    "constant int* layout",
    "constant float& scale",
  ]
    .map((text, i) => `${text} [[buffer(${i})]]`)
    .join(", ")
}

/** Statements that find where each operand's cell begins. */
const basesOf = (fold: Fold, form: FoldForm): string =>
  operandsOf(fold, form)
    .map(({ letter }, k) => {
      const at = operandAt(fold, form, k)
      return letter === "i"
        ? ""
        : locate(`base${k}`, "cell", form.cellAxes, FOLD_HEADER, at + 1, `layout[${at}]`)
    })
    .join(" ")

/** Statements that set `into`, an element or a vector of them, to what lies at number `k` of a cell. */
function loadOf(
  fold: Fold,
  form: FoldForm,
  sideBySide: "row" | "cells",
): (k: string, into: string) => string {
  const { width, prologue, cellAxes, rowAxes } = form
  const operands = operandsOf(fold, form)
  const location = (i: number, k: string): string =>
    width > 1 && sideBySide === "row"
      ? `int p${i} = base${i}${operands[i].letter === "x" ? ` + int(${k})` : ""};`
      : locate(
          `p${i}`,
          k,
          rowAxes,
          FOLD_HEADER + cellAxes,
          operandAt(fold, form, i) + 1 + cellAxes,
          `base${i}`,
        )
  return (k, into) => {
    const locations = operands.map(({ letter }, i) => (letter === "i" ? "" : location(i, k)))
    const read = (i: number): string => {
      const { letter } = operands[i]
      if (letter === "i") return `x${i}`
      return width > 1 && letter === "x" ? `q${i}.v[e]` : `x${i}[p${i}]`
    }
    const pack = (i: number): string => `*(device const lz_pack<${operands[i].type}>*)(x${i} + p${i})`
    if (!prologue) return `{ ${locations[0]} ${into} = ${width > 1 ? pack(0) : "x0[p0]"}; }`
    const call = `lz_source(${operands.map((_, i) => read(i)).join(", ")})`
    if (width === 1) return `{ ${locations.join(" ")} ${into} = ${call}; }`
    const packs = operands.map(({ letter, type }, i) =>
      letter === "x" ? `lz_pack<${type}> q${i} = ${pack(i)};` : "",
    )
    return `{ ${locations.join(" ")} ${packs.join(" ")} for (uint e = 0; e < ${width}; e++) ${into}.v[e] = ${call}; }`
  }
}

/** Cells whose elements are neighbours, or lie anyhow. */
export function rowsSource(fold: Fold, form: FoldForm, worker: Worker): string {
  const { width } = form
  const { acc } = fold
  const type = typeOf(fold, form)
  const load = loadOf(fold, form, "row")
  const oneByOne = loadOf(fold, { ...form, width: 1 }, "row")
  const who = {
    thread: "uint cell = group * threads + lane, t = 0, step = 1, part = 0;",
    simdgroup: "uint cell = group * (threads / 32) + simdgroup, t = simd_lane, step = 32, part = 0;",
    threadgroup:
      "uint parts = uint(layout[2]), cell = group / parts, part = group % parts, t = lane, step = threads;",
  }[worker]
  const one =
    width > 1
      ? `for (uint e = 0; e < ${width}; e++) acc = lz_fold(acc, lz_first(v.v[e], k + e));`
      : "acc = lz_fold(acc, lz_first(v, k));"
  const value = width > 1 ? `lz_pack<${type}>` : type
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
  ${basesOf(fold, form)}
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
  for (uint i = whole + t; i < end; i += step) { ${type} v; ${oneByOne("i", "v")} acc = lz_fold(acc, lz_first(v, i)); }
`
    : ""
}${ending}  if (${writes}) y[${worker === "threadgroup" ? "cell * parts + part" : "cell"}] = lz_last(acc, scale);
}
`
}

/** Columns of neighbouring cells: `lanes` threads share a column. */
export function columnsSource(fold: Fold, form: FoldForm, lanes: number): string {
  const { cellAxes, width } = form
  const { acc } = fold
  const type = typeOf(fold, form)
  const load = loadOf(fold, form, "cells")
  const value = width > 1 ? `lz_pack<${type}>` : type
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
  ${basesOf(fold, form)}
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
