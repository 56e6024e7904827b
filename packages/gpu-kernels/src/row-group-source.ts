/**
 * Sources of kernels along rows for joined work: a row's elements are read once, kept in registers where they fit, and folded in as many
 * stages as the work has.
 */
import { type Fold, foldText } from "./fold"
import { METAL_HEADER } from "./metal-types"
import type { RowForm } from "./row-source"
import type { Block, Value } from "./row-values"
import { functionsFor } from "./scalar-source"

/** An operand of the kernel. */
export interface RowOperand {
  /** Its type in memory. */
  readonly type: string
  /**
   * `i` bytes of the dispatch, `b` one element a row, `v` neighbours that are read as vectors, `g` elements at any distance.
   */
  readonly letter: "i" | "b" | "v" | "g"
}

/** A result that is written. */
export interface RowOutput {
  readonly value: Value
  readonly type: string
}

export interface RowKernel {
  readonly operands: readonly RowOperand[]
  readonly values: readonly Value[]
  readonly outputs: readonly RowOutput[]
  /** Axes of the rows. */
  readonly axes: number
}

/** Sizes of the layout before the axes: rows, elements of a row. */
export const ROW_HEADER = 2

/** Where the strides of an operand begin in the layout: an offset, those of the axes, and that along the row. */
const operandAt = (k: number, axes: number): number => ROW_HEADER + axes + k * (axes + 2)

const argumentsOf = ({ origin }: Value): readonly Value[] =>
  origin.kind === "fold" ? [origin.of] : origin.kind === "result" ? origin.block.args : []

/** The stage in which each value is computed: as late as the first that wants it. */
function stagesOf(values: readonly Value[], outputs: readonly RowOutput[]): number[] {
  const stages = values.map(() => Number.POSITIVE_INFINITY)
  const want = (value: Value, stage: number): void => {
    stages[value.id] = Math.min(stages[value.id], stage)
  }
  for (let i = values.length - 1; i >= 0; i--) {
    const value = values[i]
    const { origin, level } = value
    if (outputs.some((output) => output.value === value)) want(value, Math.max(level, value.wide ? 0 : level))
    if (!value.wide || stages[i] === Number.POSITIVE_INFINITY) stages[i] = level
    stages[i] = Math.max(stages[i], level)
    // A fold of stage n looks at what stage n − 1 has.
    for (const arg of argumentsOf(value)) want(arg, origin.kind === "fold" ? origin.of.level : stages[i])
  }
  return stages
}

/** Kernel `rows`: operands, outputs, then the layout. */
export const rowGroupSource = (kernel: RowKernel, form: RowForm): string =>
  new RowGroupSource(kernel, form).text()

const nameOf = ({ id }: Value): string => `n${id}`

class RowGroupSource {
  private readonly stages: readonly number[]
  private readonly folds: readonly Value[]
  /** Values of elements that a later stage wants, in registers; none where rows are too long. */
  private readonly kept = new Set<Value>()
  private readonly body: string[] = []

  constructor(
    private readonly kernel: RowKernel,
    private readonly form: RowForm,
  ) {
    const { values, outputs } = kernel
    this.stages = stagesOf(values, outputs)
    this.folds = values.filter(({ origin }) => origin.kind === "fold")
    if (form.count === 0) return
    for (const value of values)
      if (value.wide)
        for (const arg of argumentsOf(value))
          if (arg.wide && value.origin.kind !== "fold" && this.stages[arg.id] < this.stages[value.id])
            this.kept.add(arg)
  }

  text(): string {
    const { operands, values, outputs, axes } = this.kernel
    const { width, count, alone } = this.form
    const { body } = this
    for (const value of values)
      if (this.kept.has(value)) body.push(`${value.type} ${nameOf(value)}_r[${count}];`)
    const last = Math.max(...this.stages)
    for (let stage = 0; stage <= last; stage++) this.compute(stage)
    outputs.forEach(({ value, type }, k) => {
      if (!value.wide) body.push(`if (t == 0 && row < rows) y${k}[row] = ${type}(${nameOf(value)});`)
    })
    const functions = this.folds
      .map((value) => named(foldText(foldOf(value), false, true), value.id))
      .join("")
    const pack =
      width > 1
        ? `template <typename T> struct alignas(sizeof(T) * ${width}) lz_pack { T v[${width}]; };\n`
        : ""
    const who = alone
      ? "uint row = group * (threads / 32) + simdgroup, t = simd_lane, step = 32;"
      : "uint row = group, t = lane, step = threads, simdgroups = threads / 32;"
    return `${METAL_HEADER}${functionsFor(functions + body.join("\n"))}${functions}${pack}kernel void rows(${this.parameters()},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]], uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  ${who}
  uint rows = uint(layout[0]), n = uint(layout[1]), at_row = row < rows ? row : 0;
${locations(operands, axes)}${body.map((line) => `  ${line}\n`).join("")}}
`
  }

  private parameters(): string {
    const { operands, outputs } = this.kernel
    return [
      ...operands.map(({ type, letter }, k) =>
        letter === "i" ? `constant ${type}& x${k}` : `device const ${type}* x${k}`,
      ),
      ...outputs.map(({ type }, k) => `device ${type}* y${k}`),
      "constant int* layout",
    ]
      .map((text, i) => `${text} [[buffer(${i})]]`)
      .join(", ")
  }

  /** The statements of a stage: numbers of the row, a loop over the elements, and what the row's threads make together. */
  private compute(stage: number): void {
    const { values, outputs } = this.kernel
    const { body, stages } = this
    const done = new Set<Value | Block>()
    for (const value of values) {
      if (value.wide || value.level !== stage) continue
      if (value.origin.kind === "input")
        body.push(`${value.type} ${nameOf(value)} = ${this.load(value.origin.index, value.type)};`)
      else if (value.origin.kind === "result") this.emit(value, body, done)
    }
    const folded = this.folds.filter((value) => value.level === stage + 1)
    const stores = outputs.flatMap(({ value }, k) => (value.wide && stages[value.id] === stage ? [k] : []))
    const targets = [
      ...values.filter((value) => stages[value.id] === stage && this.kept.has(value)),
      ...folded.map(({ origin }) => (origin as { of: Value }).of),
      ...stores.map((k) => outputs[k].value),
    ].sort((a, b) => a.id - b.id)
    for (const value of folded)
      body.push(`${named(foldOf(value).acc, value.id)} a${value.id} = lz_start${value.id}();`)
    if (targets.length > 0) body.push(this.loop([...new Set(targets)], stage, folded, stores))
    for (const value of folded) body.push(...meet(value, this.form.alone))
  }

  /** A loop over the thread's elements: keeps what later stages want, folds, and stores results. */
  private loop(
    targets: readonly Value[],
    stage: number,
    folded: readonly Value[],
    stores: readonly number[],
  ): string {
    const { width, count } = this.form
    const { lines, packs } = this.elementLines(targets, stage)
    const keep = targets.filter((value) => this.kept.has(value) && this.stages[value.id] === stage)
    const inner = [
      ...lines,
      ...keep.map((value) => `${nameOf(value)}_r[u * ${width} + e] = ${nameOf(value)};`),
      ...folded.map((value) => this.foldLine(value)),
    ]
    const turn = this.element(inner, packs, stores)
    return count > 0
      ? `for (uint u = 0; u < ${count / Math.max(1, width)}; u++) { uint i = (u * step + t) * ${width}; if (i < n) { ${turn} } }`
      : `for (uint i = t * ${width}; i < n; i += step * ${width}) { ${turn} }`
  }

  /** The statements of one turn of the loop: neighbours are read and written as vectors. */
  private element(inner: readonly string[], packs: ReadonlySet<number>, stores: readonly number[]): string {
    const { operands, outputs } = this.kernel
    const { width, alone } = this.form
    const isPacked = width > 1
    const loads = [...packs].flatMap((k) =>
      operands[k].letter === "v" && isPacked
        ? [
            `lz_pack<${operands[k].type}> q${k} = *(device const lz_pack<${operands[k].type}>*)(x${k} + (p${k} + int(i)));`,
          ]
        : [],
    )
    const packed = isPacked ? stores.map((k) => `lz_pack<${outputs[k].type}> w${k};`) : []
    const writes = stores.map((k) => {
      const { value, type } = outputs[k]
      return `${isPacked ? `w${k}.v[e]` : `y${k}[row * n + i]`} = ${type}(${nameOf(value)});`
    })
    const out = isPacked
      ? stores.map((k) => `*(device lz_pack<${outputs[k].type}>*)(y${k} + (row * n + i)) = w${k};`)
      : []
    const guard = (text: readonly string[]): string =>
      text.length === 0 ? "" : alone ? `if (row < rows) { ${text.join(" ")} }` : text.join(" ")
    return `${loads.join(" ")} ${packed.join(" ")} for (uint e = 0; e < ${width}; e++) { ${inner.join(" ")} ${isPacked ? writes.join(" ") : guard(writes)} } ${guard(out)}`
  }

  /** Statements that compute wide values of a stage for one element, each once; where nothing is kept, with all that they need. */
  private elementLines(targets: readonly Value[], stage: number): { lines: string[]; packs: Set<number> } {
    const { width, count } = this.form
    const lines: string[] = []
    const packs = new Set<number>()
    const done = new Set<Value | Block>()
    const visit = (value: Value): void => {
      if (!value.wide || done.has(value)) return
      done.add(value)
      if (count > 0 && this.stages[value.id] < stage) {
        lines.push(`${value.type} ${nameOf(value)} = ${nameOf(value)}_r[u * ${width} + e];`)
        return
      }
      const { origin } = value
      if (origin.kind === "input") {
        packs.add(origin.index)
        lines.push(`${value.type} ${nameOf(value)} = ${this.load(origin.index, value.type)};`)
      } else if (origin.kind === "result") {
        origin.block.args.forEach(visit)
        this.emit(value, lines, done)
      }
    }
    targets.forEach(visit)
    return { lines, packs }
  }

  /** Statements of a block, and the name of one of its results. */
  private emit(value: Value, lines: string[], done: Set<Value | Block>): void {
    if (value.origin.kind !== "result") return
    const { block, index } = value.origin
    const first = this.kernel.values.findIndex(
      ({ origin }) => origin.kind === "result" && origin.block === block,
    )
    const { lines: text, results } = block.text(block.args.map(nameOf), `b${first}_`)
    if (!done.has(block)) lines.push(...text)
    done.add(block)
    lines.push(`${value.type} ${nameOf(value)} = ${results[index]};`)
  }

  /** Takes an element into a fold's accumulator. */
  private foldLine({ id, origin }: Value): string {
    const { fold, of } = origin as { fold: { from: string }; of: Value }
    const at = this.form.width > 1 ? "i + e" : "i"
    return `a${id} = lz_fold${id}(a${id}, lz_first${id}(${fold.from}(${nameOf(of)}), ${at}));`
  }

  private load(k: number, type: string): string {
    const { operands, axes } = this.kernel
    const { letter } = operands[k]
    if (letter === "i") return `${type}(x${k})`
    if (letter === "b") return `${type}(x${k}[p${k}])`
    if (letter === "v") return this.form.width > 1 ? `${type}(q${k}.v[e])` : `${type}(x${k}[p${k} + int(i)])`
    return `${type}(x${k}[p${k} + int(i + e) * layout[${operandAt(k, axes) + 1 + axes}]])`
  }
}

const foldOf = (value: Value): Fold => (value.origin as Extract<Value["origin"], { kind: "fold" }>).fold

/** A fold's functions under names of their own. */
const named = (text: string, id: number): string =>
  text.replace(/\blz_(start|first|fold|last|exchange|acc|at|beats|better|both)\b/g, `lz_$1${id}`)

/** Statements by which the threads of a row fold their accumulators; all of them have the result. */
function meet(value: Value, alone: boolean): string[] {
  const { id } = value
  const acc = named(foldOf(value).acc, id)
  const tree = `for (ushort d = 16; d > 0; d /= 2) a${id} = lz_fold${id}(a${id}, lz_exchange${id}(a${id}, d));`
  const { scale } = value.origin as { scale: string }
  const result = `${value.type} n${id} = ${value.type}(lz_last${id}(a${id}, ${scale}));`
  if (alone) return [tree, result]
  return [
    tree,
    `threadgroup ${acc} shared${id}[32];`,
    `if (simd_lane == 0) shared${id}[simdgroup] = a${id};`,
    "threadgroup_barrier(mem_flags::mem_threadgroup);",
    `a${id} = lz_start${id}();`,
    `if (simd_lane < simdgroups) a${id} = shared${id}[simd_lane];`,
    tree,
    result,
  ]
}

/** Statements that find where each operand's row begins. */
function locations(operands: readonly RowOperand[], axes: number): string {
  const walking = operands.flatMap(({ letter }, k) => (letter === "i" ? [] : [k]))
  const lines = walking.map((k) => `int p${k} = layout[${operandAt(k, axes)}];`)
  if (axes === 1)
    for (const k of walking) lines.push(`p${k} += int(at_row) * layout[${operandAt(k, axes) + 1}];`)
  else {
    lines.push("uint rest = at_row;")
    for (let axis = axes - 1; axis >= 0; axis--) {
      lines.push(
        axis === 0
          ? "{ int c = int(rest);"
          : `{ int c = int(rest % uint(layout[${ROW_HEADER + axis}])); rest /= uint(layout[${ROW_HEADER + axis}]);`,
      )
      for (const k of walking) lines.push(`  p${k} += c * layout[${operandAt(k, axes) + 1 + axis}];`)
      lines.push("}")
    }
  }
  return lines.map((line) => `  ${line}\n`).join("")
}
