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
export const rowSource = (program: RowProgram, form: RowForm): string => new RowSource(program, form).text()

const mentions = (text: string, name: string): boolean => new RegExp(`\\b${name}\\b`).test(text)

class RowSource {
  private readonly stages: readonly Stage[]
  /** Inputs with an element for each of x, and with one for each column. */
  private readonly resident: readonly string[]
  private readonly shared: readonly string[]
  /** New values of elements so far: what is not kept finds them again. */
  private readonly sets: Extract<Stage, { set: string }>[] = []
  private readonly lines: string[] = []

  constructor(
    private readonly program: RowProgram,
    private readonly form: RowForm,
  ) {
    this.stages = (form.count === 0 && program.longStages) || program.stages
    this.resident = program.g ? ["x", "g"] : ["x"]
    this.shared = [...(program.weight ? ["weight"] : []), ...(program.bias ? ["bias"] : [])]
  }

  text(): string {
    const { type, width, count, alone } = this.form
    const { element, row, kept = [] } = this.program
    const { lines } = this
    if (count > 0) for (const name of this.resident) this.keep(name)
    for (const stage of this.stages) this.compute(stage)
    if (element) {
      const loop = this.loop(element, true)
      lines.push(alone ? `if (row < rows) { ${loop} }` : loop)
    }
    if (row) lines.push(`if (t == 0 && row < rows) y[row] = ${type}(${row});`)
    kept.forEach((name, k) => {
      lines.push(`if (t == 0 && row < rows) kept[row * ${kept.length} + ${k}] = ${name};`)
    })
    const kinds = [...new Set(this.stages.flatMap((stage) => ("fold" in stage ? [stage.fold] : [])))]
    const folds = kinds.map((kind) => rowFold(kind, alone)).join("")
    const who = alone
      ? "uint row = group * (threads / 32) + simdgroup, t = simd_lane, step = 32;"
      : "uint row = group, t = lane, step = threads, simdgroups = threads / 32;\n  threadgroup float shared[32];"
    const pack =
      width > 1 ? `struct alignas(sizeof(${type}) * ${width}) lz_pack { ${type} v[${width}]; };\n` : ""
    const functions = functionsFor(`${folds}${lines.join("\n")}`)
    return `${METAL_HEADER}${functions}${pack}${folds}kernel void rows(${this.parameters()},
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

  private parameters(): string {
    const { type } = this.form
    return [
      ...[...this.resident, ...this.shared].map((name) => `device const ${type}* ${name}_in`),
      `device ${type}* y`,
      ...(this.program.kept ? ["device float* kept"] : []),
      "constant uint* sizes",
      "constant float& eps",
    ]
      .map((text, i) => `${text} [[buffer(${i})]]`)
      .join(", ")
  }

  /** Reads an input's elements into registers. */
  private keep(name: string): void {
    const { width, count } = this.form
    this.lines.push(
      `float ${name}_r[${count}];`,
      width > 1
        ? `for (uint u = 0; u < ${count / width}; u++) { uint i = (u * step + t) * ${width}; if (i < n) { lz_pack v = *(device const lz_pack*)(${name}_in + base + i); for (uint e = 0; e < ${width}; e++) ${name}_r[u * ${width} + e] = float(v.v[e]); } }`
        : `for (uint u = 0; u < ${count}; u++) { uint i = u * step + t; if (i < n) ${name}_r[u] = float(${name}_in[base + i]); }`,
    )
  }

  private compute(stage: Stage): void {
    const { lines } = this
    const { width, count, alone } = this.form
    if ("fold" in stage) {
      const { fold, name, of, once } = stage
      lines.push(`float ${name}_a = ${once ? of : START[fold]};`)
      if (!once) lines.push(this.loop(`${name}_a = ${COMBINE[fold](`${name}_a`, `(${of})`)};`))
      lines.push(
        `float ${name} = lz_row_${fold}(${name}_a${alone ? "" : ", shared, simd_lane, simdgroup, simdgroups"});`,
      )
    } else if ("scan" in stage) {
      for (const [name, start] of Object.entries(stage.scan)) lines.push(`float ${name} = ${start};`)
      lines.push(this.loop(stage.next))
    } else if ("set" in stage) {
      this.sets.push(stage)
      if (count > 0) lines.push(this.loop(`${stage.set}_r[u * ${width} + e] = ${stage.to};`))
    } else lines.push(`float ${stage.name} = ${stage.is};`)
  }

  /** A loop over the thread's elements, with those that the body mentions: a statement, or with `out` the output's element. */
  private loop(body: string, out = false): string {
    return this.form.count === 0 ? this.readingLoop(body, out) : this.keptLoop(body, out)
  }

  /** Elements are read, and what earlier stages made of them is found again. */
  private readingLoop(body: string, out: boolean): string {
    const inputs = [...this.resident, ...this.shared]
    const wanted = new Set(inputs.filter((name) => mentions(body, name)))
    for (const { set, to } of this.sets)
      if (wanted.has(set)) for (const name of inputs) if (mentions(to, name)) wanted.add(name)
    const loads = [...wanted].map(
      (name) => `float ${name} = float(${name}_in[${this.shared.includes(name) ? "i" : "base + i"}]);`,
    )
    const changes = this.sets.filter(({ set }) => wanted.has(set)).map(({ set, to }) => `${set} = ${to};`)
    const last = out ? `y[base + i] = ${this.form.type}(${body});` : body
    return `for (uint i = t; i < n; i += step) { ${[...loads, ...changes].join(" ")} ${last} }`
  }

  private keptLoop(body: string, out: boolean): string {
    const { type, width, count } = this.form
    const columns = this.shared.filter((name) => mentions(body, name))
    const loads = columns
      .map((name) =>
        width > 1
          ? `lz_pack ${name}_v = *(device const lz_pack*)(${name}_in + i);`
          : `${type} ${name}_v = ${name}_in[i];`,
      )
      .join(" ")
    const values = [
      ...this.resident
        .filter((name) => mentions(body, name))
        .map((name) => `float ${name} = ${name}_r[u * ${width} + e];`),
      ...columns.map((name) => `float ${name} = float(${width > 1 ? `${name}_v.v[e]` : `${name}_v`});`),
    ].join(" ")
    const store = width > 1 ? "o.v[e]" : "y[base + i]"
    const inner = `for (uint e = 0; e < ${width}; e++) { ${values} ${out ? `${store} = ${type}(${body});` : body} }`
    const packs = out && width > 1
    const after = packs ? " *(device lz_pack*)(y + base + i) = o;" : ""
    return `for (uint u = 0; u < ${count / width}; u++) { uint i = (u * step + t) * ${width}; if (i < n) { ${loads}${packs ? " lz_pack o; " : " "}${inner}${after} } }`
  }
}
