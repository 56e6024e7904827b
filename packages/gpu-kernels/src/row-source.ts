/**
 * Sources of kernels that compute along rows: softmax, norms and their derivatives. A row's elements are read once and kept in
 * registers where they fit, and read again for each stage where they do not.
 */
import { METAL_HEADER } from "./metal-types"
import { functionsFor } from "./scalar-source"

/**
 * One step along a row: what all elements of a row give together, or `once` what a number of each thread gives; a number of the row; new
 * values of an element.
 */
export type Stage =
  | { readonly fold: "sum" | "max"; readonly name: string; readonly of: string; readonly once?: boolean }
  | { readonly name: string; readonly is: string }
  | { readonly set: "x" | "g"; readonly to: string }
  /** Numbers that each thread finds of its elements: where they start, and a statement on the next element. */
  | { readonly scan: Readonly<Record<string, string>>; readonly next: string }

/**
 * The computation of a kernel. Expressions know the row's elements `x` (and `g`), the column's `weight` and `bias`, `eps`, `size` (the
 * row's length), and the names of earlier stages.
 */
export interface RowProgram {
  readonly key: string
  /** The inputs besides `x`, in this order of buffers. */
  readonly g?: boolean
  readonly weight?: boolean
  readonly bias?: boolean
  readonly stages: readonly Stage[]
  /** The same with fewer looks at the elements, for rows that are too long to be kept. */
  readonly longStages?: readonly Stage[]
  /** The output's element. */
  readonly element?: string
  /** The output's number for each row, where there is one. */
  readonly row?: string
  /** Numbers of each row that a later kernel wants, in a buffer of their own. */
  readonly kept?: readonly string[]
}

/** The walk of a kernel over rows. */
export interface RowForm {
  readonly type: string
  /** Elements that are read at once. */
  readonly width: number
  /** Elements that a thread keeps; 0 where rows are too long. */
  readonly count: number
  /** A simdgroup takes a row by itself. */
  readonly alone: boolean
}

const COMBINE = {
  sum: (a: string, b: string): string => `${a} + ${b}`,
  max: (a: string, b: string): string => `lz_maximum(${a}, ${b})`,
}
const START = { sum: "0.0f", max: "-INFINITY" }

/** Combines a number over a row's threads. */
function rowFold(kind: "sum" | "max", alone: boolean): string {
  const tree = (from: string): string =>
    `for (ushort d = ${from}; d > 0; d /= 2) a = ${COMBINE[kind]("a", "simd_shuffle_xor(a, d)")};`
  if (alone) return `inline float lz_row_${kind}(float a) { ${tree("16")} return a; }\n`
  return `inline float lz_row_${kind}(float a, threadgroup float* shared, uint simd_lane, uint simdgroup, uint simdgroups) {
  ${tree("16")}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd_lane == 0) shared[simdgroup] = a;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  a = ${START[kind]};
  if (simd_lane < simdgroups) a = shared[simd_lane];
  ${tree("16")}
  return a;
}
`
}

/** Kernel `rows`: x, g?, weight?, bias?, the output, kept?, then the sizes [rows, row length] and eps. */
export function rowSource(program: RowProgram, form: RowForm): string {
  const { type, width, count, alone } = form
  const { element, row, kept } = program
  const stages = (form.count === 0 && program.longStages) || program.stages
  const inputs = [
    "x",
    ...(program.g ? ["g"] : []),
    ...(program.weight ? ["weight"] : []),
    ...(program.bias ? ["bias"] : []),
  ]
  const resident = inputs.filter((name) => name === "x" || name === "g")
  const shared = inputs.filter((name) => name === "weight" || name === "bias")
  const outType = type
  const parameters = [
    ...inputs.map((name) => `device const ${type}* ${name}_in`),
    `device ${outType}* y`,
    ...(kept ? ["device float* kept"] : []),
    "constant uint* sizes",
    "constant float& eps",
  ].map((text, i) => `${text} [[buffer(${i})]]`)

  const sets: Extract<Stage, { set: string }>[] = []
  /** A loop over the thread's elements. `names` are those that the body mentions. */
  const loop = (body: string, out = false): string => {
    const uses = (name: string): boolean => new RegExp(`\\b${name}\\b`).test(body)
    if (count === 0) {
      const wanted = new Set(inputs.filter(uses))
      for (const { set, to } of sets)
        if (wanted.has(set))
          for (const name of inputs) if (new RegExp(`\\b${name}\\b`).test(to)) wanted.add(name)
      const loads = [...wanted].map(
        (name) =>
          `float ${name} = float(${name}_in[${(shared as readonly string[]).includes(name) ? "i" : "base + i"}]);`,
      )
      const changes = sets.filter(({ set }) => wanted.has(set)).map(({ set, to }) => `${set} = ${to};`)
      return `for (uint i = t; i < n; i += step) { ${[...loads, ...changes].join(" ")} ${out ? `y[base + i] = ${outType}(${body});` : body} }`
    }
    const columns = shared.filter(uses)
    const loads = columns
      .map((name) =>
        width > 1
          ? `lz_pack ${name}_v = *(device const lz_pack*)(${name}_in + i);`
          : `${type} ${name}_v = ${name}_in[i];`,
      )
      .join(" ")
    const values = [
      ...resident.filter(uses).map((name) => `float ${name} = ${name}_r[u * ${width} + e];`),
      ...columns.map((name) => `float ${name} = float(${width > 1 ? `${name}_v.v[e]` : `${name}_v`});`),
    ].join(" ")
    const store = width > 1 ? "o.v[e]" : "y[base + i]"
    const inner = `for (uint e = 0; e < ${width}; e++) { ${values} ${out ? `${store} = ${outType}(${body});` : body} }`
    const after = out && width > 1 ? " *(device lz_pack*)(y + base + i) = o;" : ""
    return `for (uint u = 0; u < ${count / width}; u++) { uint i = (u * step + t) * ${width}; if (i < n) { ${loads}${out && width > 1 ? " lz_pack o; " : " "}${inner}${after} } }`
  }

  const lines: string[] = []
  if (count > 0) {
    for (const name of resident) {
      lines.push(`float ${name}_r[${count}];`)
      lines.push(
        width > 1
          ? `for (uint u = 0; u < ${count / width}; u++) { uint i = (u * step + t) * ${width}; if (i < n) { lz_pack v = *(device const lz_pack*)(${name}_in + base + i); for (uint e = 0; e < ${width}; e++) ${name}_r[u * ${width} + e] = float(v.v[e]); } }`
          : `for (uint u = 0; u < ${count}; u++) { uint i = u * step + t; if (i < n) ${name}_r[u] = float(${name}_in[base + i]); }`,
      )
    }
  }
  for (const stage of stages) {
    if ("fold" in stage) {
      const { fold, name, of, once } = stage
      lines.push(`float ${name}_a = ${once ? of : START[fold]};`)
      if (!once) lines.push(loop(`${name}_a = ${COMBINE[fold](`${name}_a`, `(${of})`)};`))
      lines.push(
        `float ${name} = lz_row_${fold}(${name}_a${alone ? "" : ", shared, simd_lane, simdgroup, simdgroups"});`,
      )
    } else if ("scan" in stage) {
      for (const [name, start] of Object.entries(stage.scan)) lines.push(`float ${name} = ${start};`)
      lines.push(loop(stage.next))
    } else if ("set" in stage) {
      sets.push(stage)
      if (count > 0) lines.push(loop(`${stage.set}_r[u * ${width} + e] = ${stage.to};`))
    } else lines.push(`float ${stage.name} = ${stage.is};`)
  }
  if (element) lines.push(alone ? `if (row < rows) { ${loop(element, true)} }` : loop(element, true))
  if (row) lines.push(`if (t == 0 && row < rows) y[row] = ${outType}(${row});`)
  kept?.forEach((name, k) => {
    lines.push(`if (t == 0 && row < rows) kept[row * ${kept.length} + ${k}] = ${name};`)
  })
  const kinds = [...new Set(stages.flatMap((stage) => ("fold" in stage ? [stage.fold] : [])))]
  const folds = kinds.map((kind) => rowFold(kind, alone)).join("")
  const who = alone
    ? "uint row = group * (threads / 32) + simdgroup, t = simd_lane, step = 32;"
    : "uint row = group, t = lane, step = threads, simdgroups = threads / 32;\n  threadgroup float shared[32];"
  const pack =
    width > 1 ? `struct alignas(sizeof(${type}) * ${width}) lz_pack { ${type} v[${width}]; };\n` : ""
  const text = `${folds}${lines.join("\n")}`
  return `${METAL_HEADER}${functionsFor(text)}${pack}${folds}kernel void rows(${parameters.join(", ")},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]], uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  ${who}
  uint rows = sizes[0], n = sizes[1];
  float size = float(n);
  uint base = (row < rows ? row : 0) * n;
${lines.map((line) => `  ${line}\n`).join("")}}
`
}
