/**
 * Joined work along rows: elementwise work, reductions, softmax and norms over the last axis as one kernel.
 */
import {
  type Application,
  broadcastStrides,
  contiguousStrides,
  type Dtype,
  float32,
  type Node,
  programOf,
  type ScalarValue,
  type Storage,
  sameShape,
  sizeOf,
} from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { isCountable } from "../family"
import { extremeFold, type Fold, isFoldable, prodFold, sumFold, truthFold, varianceFold } from "../fold"
import { collapse } from "../layout"
import { computeType, metalType } from "../metal-types"
import { MAX_BUFFER_INDEX } from "../msl/lint"
import { type RowOperand, type RowOutput, rowGroupSource } from "../row-group-source"
import { floatMax, floatSum, type Value, Values } from "../row-values"
import { bytesOf, constantSource, rounded } from "../scalar-source"
import { isWritable, programText } from "./elementwise"
import { rowForm } from "./rows"

/** Rows that are longer want other kernels where they are fewer than this. */
const LONG_ROW = 8192
const MANY_ROWS = 64
/** Numbers that a thread keeps at most. */
const MOST_KEPT = 96

const last = (node: Node): number => node.shape[node.shape.length - 1]

/** The reductions along rows. */
const reductions: Record<string, (node: Node) => Fold> = {
  sum: ({ inputs: [x], dtype }) => sumFold(x.dtype, dtype),
  prod: ({ inputs: [x], dtype }) => prodFold(x.dtype, dtype),
  max: ({ dtype }) => extremeFold("max", dtype),
  min: ({ dtype }) => extremeFold("min", dtype),
  all: ({ inputs: [x], dtype }) => truthFold("all", x.dtype, dtype),
  any: ({ inputs: [x], dtype }) => truthFold("any", x.dtype, dtype),
  variance: ({ dtype }) => varianceFold(dtype),
}

const isLastAxis = ({ inputs: [x], params }: Node): boolean => {
  const end = x.shape.length - 1
  const { axis, axes } = params as { axis?: number; axes?: readonly number[] }
  return axes === undefined ? axis === end : axes.length === 1 && axes[0] === end
}

/** True if an application works on each row by itself. */
export function isAlongRows(node: Node): boolean {
  const { name } = node.primitive as NonNullable<Node["primitive"]>
  const [x] = node.inputs
  const isFloat = x?.dtype.kind === "floating" && metalType(x.dtype) !== undefined
  switch (name) {
    case "softmax":
    case "logsumexp":
      return isFloat && isLastAxis(node)
    case "layerNorm":
    case "rmsNorm":
      return isFloat
    case "variance":
      return isFloat && isLastAxis(node) && isFoldable(x.dtype)
    default:
      return (
        Object.hasOwn(reductions, name) && isFoldable(x.dtype) && isFoldable(node.dtype) && isLastAxis(node)
      )
  }
}

interface Operand extends RowOperand {
  readonly node: Node
  readonly wide: boolean
}

/** A group as values, with its operands and results. */
class RowGroup {
  readonly values = new Values()
  readonly operands: { node: Node; wide: boolean; value: Value }[] = []
  readonly results: { node: Node; value: Value }[] = []
  private readonly known = new Map<Node, Value>()

  constructor(
    members: readonly Application[],
    private readonly inner: ReadonlySet<Node>,
    readonly shape: readonly number[],
  ) {
    for (const each of members) this.lower(each)
  }

  private isWide(node: Node): boolean {
    return sameShape(node.shape, this.shape)
  }

  /** The value of an operand of an application whose results are, or are not, whole rows. */
  private valueOf(input: Node, wide: boolean): Value {
    const made = this.known.get(input)
    if (made) return made
    const { shape } = this
    const across = input.shape[input.shape.length - 1] ?? 1
    const isWide = wide && across > 1 && shape[shape.length - 1] > 1
    const same = this.operands.find((each) => each.node === input && each.wide === isWide)
    if (same) return same.value
    const value = this.values.input(this.operands.length, isWide, computeType(input.dtype))
    this.operands.push({ node: input, wide: isWide, value })
    return value
  }

  private lower(each: Application): void {
    const outputs = each.outputs ?? [each]
    const { elementwise, name } = each.primitive
    const made = elementwise ? this.program(each) : [this.along(name, each)]
    outputs.forEach((node, i) => {
      this.known.set(node, made[i])
      if (!this.inner.has(node)) this.results.push({ node, value: made[i] })
    })
  }

  private program(each: Application): Value[] {
    const program = programOf(each)
    const wide = this.isWide(each)
    const args = each.inputs.map((input) => this.valueOf(input, wide))
    const types = (each.outputs ?? [each]).map(({ dtype }) => computeType(dtype))
    return this.values.block(args, types, (names, prefix) => {
      const { lines, registers } = programText(program)
      const rename = (line: string): string =>
        line.replace(/\ba(\d+)\b/g, (_, k: string) => names[Number(k)]).replace(/\br(\d+)\b/g, `${prefix}$1`)
      return { lines: lines.map(rename), results: registers.map(rename) }
    })
  }

  private along(name: string, node: Application): Value {
    const { values } = this
    const [input, ...others] = node.inputs
    const x = this.valueOf(input, true)
    const type = (of: Dtype): string => computeType(of)
    const n = last(input)
    if (name === "softmax" || name === "logsumexp") {
      const top = values.fold(floatMax, x, "float")
      const e = values.map([x, top], "float", (v, t) => `precise::exp(${v} - ${t})`)
      const total = values.fold(floatSum, e, "float")
      if (name === "softmax")
        return values.map([e, total], "float", (v, t) => rounded(`${v} / ${t}`, node.dtype))
      return values.map([top, total], "float", (t, s) =>
        rounded(`isinf(${t}) ? ${t} : ${t} + precise::log(${s})`, node.dtype),
      )
    }
    if (name === "layerNorm" || name === "rmsNorm") {
      const { hasWeight, hasBias = false, eps } = node.params as Record<string, boolean> & { eps: number }
      const size = constantSource(n, float32)
      const least = constantSource(eps, float32)
      let d = x
      if (name === "layerNorm") {
        const total = values.fold(floatSum, x, "float")
        const mean = values.map([total], "float", (t) => `${t} / ${size}`)
        d = values.map([x, mean], "float", (v, m) => `${v} - ${m}`)
      }
      const square = values.map([d], "float", (v) => `${v} * ${v}`)
      const squares = values.fold(floatSum, square, "float")
      const rate = values.map([squares], "float", (s) => `1.0f / precise::sqrt(${s} / ${size} + ${least})`)
      const extra = others.map((each) => this.valueOf(each, true))
      return values.map([d, rate, ...extra], "float", (v, r, ...rest) =>
        rounded(
          `${v} * ${r}${hasWeight ? ` * ${rest[0]}` : ""}${hasBias ? ` + ${rest[hasWeight ? 1 : 0]}` : ""}`,
          node.dtype,
        ),
      )
    }
    const fold = reductions[name](node)
    const scale =
      name === "variance"
        ? constantSource(1 / Math.max(n - (node.params.ddof as number), 0), float32)
        : undefined
    return values.fold(fold, x, type(node.dtype), scale)
  }
}

/** The shape of whole rows that all of a group has, or null where they do not fit each other. */
function shapeOf(members: readonly Application[]): readonly number[] | null {
  const anchor = members.find(({ primitive }) => !primitive.elementwise)
  if (!anchor || !isAlongRows(anchor)) return null
  const { shape } = anchor.inputs[0]
  const n = shape[shape.length - 1]
  const rows = sizeOf(shape.slice(0, -1))
  if (shape.length === 0 || n < 2 || rows === 0 || (n > LONG_ROW && rows < MANY_ROWS)) return null
  const narrow = [...shape.slice(0, -1), 1]
  const fits = members.every((each) => {
    if (!isCountable(each)) return false
    if (each.primitive.elementwise)
      return isWritable(programOf(each)) && (sameShape(each.shape, shape) || sameShape(each.shape, narrow))
    return (
      isAlongRows(each) &&
      sameShape(each.inputs[0].shape, shape) &&
      (sameShape(each.shape, shape) || sameShape(each.shape, narrow))
    )
  })
  return fits ? shape : null
}

/** The work of a group along rows, or null where it is none. */
export function rowGroup(
  members: readonly Application[],
  inner: ReadonlySet<Node>,
): ((queue: DispatchQueue) => void) | null {
  const shape = shapeOf(members)
  if (shape === null) return null
  const group = new RowGroup(members, inner, shape)
  const { operands, results, values } = group
  if (operands.length + results.length > MAX_BUFFER_INDEX || results.length === 0) return null
  // A value of whole rows that is one number by mistake would be read as such.
  if (results.some(({ node, value }) => value.wide !== sameShape(node.shape, shape))) return null
  return (queue) => encode(queue, group, members, values.all)
}

function encode(
  queue: DispatchQueue,
  { operands, results, shape }: RowGroup,
  members: readonly Application[],
  values: readonly Value[],
): void {
  const n = shape[shape.length - 1]
  const rows = sizeOf(shape.slice(0, -1))
  const stored = operands.filter(({ node }) => node.storage !== null)
  const strides = new Map(
    stored.map(({ node }) => [
      node,
      broadcastStrides(node.shape, node.strides ?? contiguousStrides(node.shape), shape),
    ]),
  )
  const lead = (node: Node): readonly number[] => (strides.get(node) as readonly number[]).slice(0, -1)
  const along = (node: Node): number => (strides.get(node) as readonly number[])[shape.length - 1]
  const axes = collapse(
    shape.slice(0, -1),
    stored.map(({ node }) => lead(node)),
  )
  const wideSizes = [
    ...operands.filter((each) => each.wide).map(({ node }) => node.dtype.size),
    ...results.filter(({ value }) => value.wide).map(({ node }) => node.dtype.size),
  ]
  const ofResults = results.map(({ node }) => ({
    storage: node.storage as Storage,
    offset: node.offset * node.dtype.size,
  }))
  const width = 16 / Math.max(...wideSizes)
  const fits = (w: number): boolean =>
    n % w === 0 &&
    results.every(({ node, value }) => !value.wide || node.offset % w === 0) &&
    stored.every(
      ({ node, wide }, k) =>
        !wide || along(node) !== 1 || (node.offset % w === 0 && axes.strides[k].every((s) => s % w === 0)),
    )
  const form = rowForm(n, rows, fits(width) ? width : 1)
  const wides = values.filter(({ wide }) => wide).length
  const kernelForm = {
    ...form,
    type: "",
    count: form.count * Math.min(wides, 3) > MOST_KEPT ? 0 : form.count,
  }
  const kinds: Operand[] = operands.map(({ node, wide }) => ({
    node,
    wide,
    type: metalType(node.dtype) as string,
    letter: node.storage === null ? "i" : !wide ? "b" : along(node) === 1 ? "v" : "g",
  }))
  const outputs: RowOutput[] = results.map(({ node, value }) => ({
    value,
    type: metalType(node.dtype) as string,
  }))
  const layout = [
    ...[rows, n, ...axes.shape],
    ...operands.flatMap(({ node }) => {
      const k = stored.findIndex((each) => each.node === node)
      return k < 0
        ? new Array<number>(axes.shape.length + 2).fill(0)
        : [node.offset, ...axes.strides[k], along(node)]
    }),
  ]
  const args: Argument[] = [
    ...operands.map(({ node }) =>
      node.storage === null
        ? bytesOf(node.params.value as ScalarValue, node.dtype)
        : { storage: node.storage, offset: 0 },
    ),
    ...ofResults,
    Int32Array.from(layout),
  ]
  const source = (): string =>
    rowGroupSource({ operands: kinds, values, outputs, axes: axes.shape.length }, kernelForm)
  queue.dispatch({
    op: members.find(({ primitive }) => !primitive.elementwise)?.primitive.name as string,
    kernel: { key: source(), name: "rows", source },
    arguments: args,
    writes: ofResults.map(({ storage }) => storage),
    grid: [Math.ceil(rows / form.together) * form.together * form.threads, 1, 1],
    threadgroup: [form.together * form.threads, 1, 1],
  })
}
