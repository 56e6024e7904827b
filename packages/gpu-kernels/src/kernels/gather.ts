/**
 * Reading and writing at positions that are values. Positions count from the end where they are negative; one out of bounds reads the
 * nearest element and writes nothing, since a kernel cannot refuse it.
 *
 * Of several updates of one element the last stays, as the definition says: where they may meet, a first kernel leaves the number of the
 * last one, and the second writes only that.
 */
import {
  contiguousStrides,
  type Dtype,
  determinism,
  float32,
  isInteger,
  type Node,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import { atomicText } from "../atomic-source"
import type { Argument, DispatchQueue, Kernel, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { collapse, viewOf } from "../layout"
import { METAL_HEADER, metalType, wordType } from "../metal-types"
import { MAX_BUFFER_INDEX } from "../msl/lint"
import { functionsFor } from "../scalar-source"
import { encodeCast, encodeCopy, withAllRowMajor, withRowMajor } from "./copy"
import { canCombine, combined, dispatchEach, type Mode } from "./moves"
import { targetOf } from "./reduce"

/** Where number `i` of the index arrays points, and whether it may: `pos` becomes a sum of positions times strides. */
export const POSITION = `inline long lz_position(long index, long size, long span, thread bool& inside) {
  long p = index < 0 ? index + size : index;
  inside = inside && p >= 0 && p <= size - span;
  return p < 0 ? 0 : p > size - span ? size - span : p;
}
`

/** A position as a signed number. Of unsigned ones none counts from the end: those of 2⁶³ and more are too large all the same. */
const signed = (type: string, index: string): string =>
  type === "ulong" ? `long(min(${index}, 0x7fffffffffffffffUL))` : `long(${index})`

export const indexParameters = (types: readonly string[], from: number): string =>
  types.map((type, k) => `device const ${type}* index${k} [[buffer(${from + k})]]`).join(", ")

/** Statements that find `start`, the sum of positions times strides; the layout has size, span and stride of each from `at`. */
const startOf = (types: readonly string[], at: number, number: string): string =>
  types
    .map(
      (type, k) =>
        `  start += lz_position(${signed(type, `index${k}[${number}]`)}, long(layout[${at + 3 * k}]), long(layout[${at + 3 * k + 1}]), inside) * layout[${at + 3 * k + 2}];\n`,
    )
    .join("")

const inSlice = (
  ndim: number,
  at: number,
  number: string,
  into: string,
): string => `  { uint rest = ${number};
    for (int axis = ${ndim - 1}; axis >= 0; axis--) {
      ${into} += long(rest % uint(layout[${at} + axis])) * layout[${at + ndim} + axis];
      rest /= uint(layout[${at} + axis]);
    } }
`

export const indexTypes = (nodes: readonly Node[]): string[] => nodes.map((n) => metalType(n.dtype) as string)
const areIndices = (nodes: readonly Node[]): boolean =>
  nodes.every((n) => isInteger(n.dtype)) && nodes.length + 4 <= MAX_BUFFER_INDEX

/** Words that a thread of a gather moves, a group apart: their positions are read together, and then they. */
const WORDS = 4
const GROUP = 256

/** A kernel whose threads move `WORDS` words, from where the statements on `i` leave in `start`. */
const moverSource = (name: string, type: string, parameters: string, statements: string): string =>
  `${METAL_HEADER}${POSITION}kernel void ${name}(device const ${type}* x [[buffer(0)]], ${parameters},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]]) {
  uint first = group * threads * ${WORDS} + lane, count = uint(layout[0]);
  ${type} several[${WORDS}];
  for (uint e = 0; e < ${WORDS}; e++) {
    uint i = first + e * threads;
    if (i < count) {
      bool inside = true;
${statements}      several[e] = x[start];
    }
  }
  for (uint e = 0; e < ${WORDS}; e++) {
    uint i = first + e * threads;
    if (i < count) y[i] = several[e];
  }
}
`

/** Adds a kernel of {@link moverSource} over `words` words. */
function dispatchMover(
  queue: DispatchQueue,
  op: string,
  kernel: Kernel,
  args: readonly Argument[],
  target: Location,
  words: number,
): void {
  const group = Math.min(GROUP, Math.ceil(words / WORDS / 32) * 32)
  queue.dispatch({
    op,
    kernel,
    arguments: args,
    writes: [target.storage],
    grid: [Math.ceil(words / (WORDS * group)) * group, 1, 1],
    threadgroup: [group, 1, 1],
  })
}

// Layout: words, those of a slice, offset; axes of the slice; then the indices' sizes, spans and strides.
const gatherSource = (type: string, types: readonly string[], ndim: number): string => {
  const count = types.length
  return moverSource(
    "gather",
    type,
    `${count > 0 ? `${indexParameters(types, 1)}, ` : ""}device ${type}* y [[buffer(${1 + count})]], constant int* layout [[buffer(${2 + count})]]`,
    `  uint slice = uint(layout[1]), b = i / slice;
  long start = long(layout[2]);
${startOf(types, 3 + 2 * ndim, "b")}${inSlice(ndim, 3, "i % slice", "start")}`,
  )
}

const gather: Family = {
  supports: (node) => isCountable(node) && areIndices(node.inputs.slice(1)),
  encode: (node, queue) => {
    const [x, ...indices] = node.inputs
    const { axes, sliceSizes } = node.params as { axes: readonly number[]; sliceSizes: readonly number[] }
    if (sizeOf(node.shape) === 0) return
    const view = viewOf(x)
    const merged = collapse(sliceSizes, [view.strides])
    const last = merged.shape.length - 1
    const { size } = node.dtype
    // Slices of neighbours are read in words as large as they go.
    let word = 16
    const steps = [view.offset, ...merged.strides[0].slice(0, -1), ...axes.map((axis) => view.strides[axis])]
    const target = targetOf(node)
    for (; word > size; word /= 2) {
      const ratio = word / size
      if (merged.strides[0][last] === 1 && merged.shape[last] % ratio === 0)
        if (steps.every((s) => s % ratio === 0) && target.offset % word === 0) break
    }
    word = Math.max(word, size)
    const ratio = word / size
    const shape = merged.shape.map((n, i) => (i === last ? n / ratio : n))
    const strides = merged.strides[0].map((s, i) => (i === last ? s : s / ratio))
    const words = sizeOf(node.shape) / ratio
    const type = wordType(word)
    const types = indexTypes(indices)
    withAllRowMajor(queue, indices, (locations) =>
      dispatchMover(
        queue,
        "gather",
        {
          key: `gather ${type} ${types} ${shape.length}`,
          name: "gather",
          source: () => gatherSource(type, types, shape.length),
        },
        [
          { storage: view.storage, offset: 0 },
          ...locations,
          target,
          Int32Array.from([
            ...[words, sizeOf(shape), view.offset / ratio, ...shape, ...strides],
            ...axes.flatMap((axis) => [x.shape[axis], sliceSizes[axis], view.strides[axis] / ratio]),
          ]),
        ],
        target,
        words,
      ),
    )
  },
}

/** Finds an update's element: `at` in the target, `key` among the locations that meet, `order` among the updates. */
export interface Finder {
  readonly key: string
  readonly types: readonly string[]
  /** Statements on `i`; they set `at`, `spot` and `order`, and `inside`. */
  readonly text: string
  /** Locations that updates may share. */
  readonly spots: number
  readonly layout: readonly number[]
  /** Updates that could meet. */
  readonly meet: boolean
  /** Elements of one update, which never meet. */
  readonly slice: number
}

/** True if updates are summed in float32 and rounded once: of sixteen bits each sum would lose what is small beside it. */
const isWide = (mode: Mode, dtype: Dtype): boolean =>
  mode === "add" && dtype.kind === "floating" && dtype.size === 2

/** True if an update of one element cannot be one atomic operation. */
const isSerial = (mode: Mode, dtype: Dtype): boolean => dtype.size === 8 && mode !== "add" && mode !== "set"

/** True if updates that meet are rounded in the order in which they come. */
const isRounded = (mode: Mode, dtype: Dtype): boolean =>
  (mode === "add" || mode === "multiply") && (dtype.kind === "floating" || dtype.kind === "complex")

type Step = "mark" | "write" | "atomic" | "serial" | "alone"
/** True where updates that meet are combined. */
const isSum = (step: Step): boolean => step === "atomic" || step === "serial"

function scatterSource(finder: Finder, dtype: Dtype, mode: Mode, step: Step): string {
  const type = mode === "set" ? wordType(dtype.size) : (metalType(dtype) as string)
  const wide = isSum(step) && isWide(mode, dtype)
  const stored = wide ? float32 : dtype
  const { types, text } = finder
  const count = types.length
  const update = {
    mark: "atomic_fetch_max_explicit(marks + spot, order + 1, memory_order_relaxed);",
    write: "if (marks[spot] == order + 1) y[at] = u;",
    atomic: `lz_update(y, at, ${wide ? "float(u)" : "u"});`,
    serial: `y[at] = ${combined(mode, stored, "y[at]", wide ? "float(u)" : "u")};`,
    alone: `y[at] = ${combined(mode, dtype, "y[at]", "u")};`,
  }[step]
  const functions = step === "atomic" ? atomicText(mode, stored) : ""
  const marks = step === "mark" ? "device atomic<uint>* marks" : "device const uint* marks"
  const find = `long at = 0, start = 0;
      uint spot = 0, order = 0;
      bool inside = true;
${text}`
  const head = `${METAL_HEADER}${functionsFor(functions + update)}${POSITION}${functions}kernel void scatter(device const ${type}* updates [[buffer(0)]], ${count > 0 ? `${indexParameters(types, 1)}, ` : ""}device ${wide ? "float" : type}* y [[buffer(${1 + count})]],
    ${marks} [[buffer(${2 + count})]], constant int* layout [[buffer(${3 + count})]], uint lane [[thread_position_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]]) {
`
  if (step === "serial")
    return `${head}  uint first = group * threads + lane;
  if (first >= uint(layout[1])) return;
  for (uint i = first; i < uint(layout[0]); i += uint(layout[1])) {
      ${find}    if (inside) { ${type} u = updates[i]; ${update} }
  }
}
`
  // Positions and updates are read together, before anything is written.
  return `${head}  uint first = group * threads * ${WORDS} + lane, count = uint(layout[0]);
  ${type} several[${WORDS}];
  long ats[${WORDS}];
  uint spots[${WORDS}], orders[${WORDS}];
  bool within[${WORDS}];
  for (uint e = 0; e < ${WORDS}; e++) {
    uint i = first + e * threads;
    within[e] = false;
    if (i < count) {
      ${find}      within[e] = inside;
      ats[e] = at;
      spots[e] = spot;
      orders[e] = order;
${step === "mark" ? "" : "      several[e] = updates[i];\n"}    }
  }
  for (uint e = 0; e < ${WORDS}; e++) {
    if (within[e]) {
      long at = ats[e];
      uint spot = spots[e], order = orders[e];
      ${step === "mark" ? "" : `${type} u = several[e];\n      `}${update}
    }
  }
}
`
}

/** Words of 0. */
function encodeZeros(queue: DispatchQueue, op: string, at: Location, words: number): void {
  dispatchEach(
    queue,
    op,
    {
      key: "zero",
      name: "zero",
      source:
        () => `${METAL_HEADER}kernel void zero(device uint* y [[buffer(0)]], constant uint& n [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  if (i < n) y[i] = 0;
}
`,
    },
    [at, Uint32Array.of(words)],
    [at.storage],
    words,
  )
}

function encodeScatter(
  queue: DispatchQueue,
  op: string,
  node: Node,
  updates: Node,
  indices: readonly Node[],
  mode: Mode,
  finder: Finder,
): void {
  const { dtype } = node
  const [x] = node.inputs
  const n = sizeOf(updates.shape)
  const last = mode === "set" && finder.meet
  const inOrder = isSerial(mode, dtype) || (determinism.isAsked && isRounded(mode, dtype))
  const step: Step = !finder.meet ? "alone" : last ? "write" : inOrder ? "serial" : "atomic"
  const out = targetOf(node)
  const nbytes = sizeOf(node.shape) * dtype.size
  // Atomic operations take words of four bytes, and those of small elements may begin before or end behind the output.
  const wide = isSum(step) && n > 0 && isWide(mode, dtype)
  const beside = wide || (step === "atomic" && n > 0 && (nbytes % 4 !== 0 || out.offset % 4 !== 0))
  const target = beside
    ? { storage: queue.allocate(wide ? 2 * nbytes : Math.ceil(nbytes / 4) * 4), offset: 0 }
    : out
  // The rest of the last word, which is read and written with it.
  if (beside && !wide && nbytes % 4 !== 0)
    encodeZeros(queue, op, { storage: target.storage, offset: nbytes - (nbytes % 4) }, 1)
  if (wide) encodeCast(queue, viewOf(x), target, metalType(dtype) as string, "float", op)
  else queue.copyOver(x.storage as Storage, target.storage, () => encodeCopy(queue, viewOf(x), target, op))
  if (n === 0) return
  withAllRowMajor(queue, [updates, ...indices], ([values, ...locations]) => {
    const marks = last ? queue.allocate(finder.spots * 4) : null
    const run = (what: Step): void => {
      const args: Argument[] = [
        values,
        ...locations,
        target,
        marks ? { storage: marks, offset: 0 } : target,
        Int32Array.from([n, finder.slice, ...finder.layout]),
      ]
      const threads = what === "serial" ? finder.slice : n
      dispatchEach(
        queue,
        op,
        {
          key: `scatter ${what} ${mode} ${mode === "set" ? dtype.size : dtype.name} ${finder.key}`,
          name: "scatter",
          source: () => scatterSource(finder, dtype, mode, what),
        },
        args,
        what === "mark" && marks ? [marks] : [target.storage],
        threads,
        what === "serial" ? 1 : WORDS,
      )
    }
    if (marks) {
      encodeZeros(queue, op, { storage: marks, offset: 0 }, finder.spots)
      run("mark")
    }
    run(step)
    marks?.drop()
  })
  if (!beside) return
  const strides = contiguousStrides(node.shape)
  const view = {
    ...{ storage: target.storage, itemsize: wide ? 4 : dtype.size },
    ...{ shape: node.shape, strides, offset: 0 },
  }
  if (wide) encodeCast(queue, view, out, "float", metalType(dtype) as string, op)
  else encodeCopy(queue, view, out, op)
  target.storage.drop()
}

/** True of slices that cannot meet, since one of their positions counts upwards. */
const areApart = (indices: readonly Node[], slices: number): boolean =>
  indices.some(({ primitive, params, shape, dtype }) => {
    if (primitive?.name !== "arange" || sizeOf(shape) !== slices || dtype.size < 4) return false
    const { start, step } = params as { start: number; step: number }
    return start >= 0 && step >= 1 && Number.isInteger(start) && Number.isInteger(step)
  })

/** Finds the updates of a scatter. */
export function finderOf(node: Node): Finder {
  const [x, updates, ...indices] = node.inputs
  const { axes } = node.params as { axes: readonly number[] }
  const sizes = updates.shape.slice(updates.shape.length - x.shape.length)
  const slice = Math.max(1, sizeOf(sizes))
  const strides = contiguousStrides(x.shape)
  const merged = collapse(sizes, [strides])
  const ndim = merged.shape.length
  const types = indexTypes(indices)
  // Where slices are one element thick along the axes that positions choose, two meet wholly or not at all.
  const thin = axes.every((axis) => sizes[axis] === 1)
  const among = contiguousStrides(axes.map((axis) => x.shape[axis]))
  const at = 2 + 2 * ndim
  const spots = thin ? Math.max(1, sizeOf(axes.map((axis) => x.shape[axis]))) : sizeOf(x.shape)
  const spot = thin
    ? types
        .map(
          (type, k) =>
            `  { bool ok = true; spot += uint(lz_position(${signed(type, `index${k}[order]`)}, long(layout[${at + 3 * k}]), long(layout[${at + 3 * k + 1}]), ok)) * uint(layout[${at + 3 * types.length + k}]); }\n`,
        )
        .join("")
    : "  spot = uint(at);\n"
  return {
    key: `${types} ${ndim} ${thin}`,
    types,
    text: `  order = i / uint(layout[1]);\n${startOf(types, at, "order")}${inSlice(ndim, 2, "i % uint(layout[1])", "start")}  at = start;\n${spot}`,
    spots,
    layout: [
      ...[...merged.shape, ...merged.strides[0]],
      ...axes.flatMap((axis) => [x.shape[axis], sizes[axis], strides[axis]]),
      ...among,
    ],
    meet: sizeOf(updates.shape) > slice && !areApart(indices, sizeOf(updates.shape) / slice),
    slice,
  }
}

const scatter: Family = {
  supports: (node) =>
    isCountable(node) && areIndices(node.inputs.slice(2)) && canCombine(node.dtype, node.params.mode as Mode),
  overwrites: () => [0],
  encode: (node, queue) => {
    const [, updates, ...indices] = node.inputs
    encodeScatter(queue, "scatter", node, updates, indices, node.params.mode as Mode, finderOf(node))
  },
}

// Layout: words, offset, size and stride of the axis; the output's sizes; strides of x without the axis.
const alongSource = (type: string, index: string, ndim: number): string =>
  moverSource(
    "along",
    type,
    `device const ${index}* index0 [[buffer(1)]], device ${type}* y [[buffer(2)]], constant int* layout [[buffer(3)]]`,
    `  long start = long(layout[1]) + lz_position(${signed(index, "index0[i]")}, long(layout[2]), 1, inside) * layout[3];
${inSlice(ndim, 4, "i", "start")}`,
  )

const takeAlongAxis: Family = {
  supports: (node) => isCountable(node) && areIndices(node.inputs.slice(1)) && node.shape.length > 0,
  encode: (node, queue) => {
    const [x, indices] = node.inputs
    const axis = node.params.axis as number
    const n = sizeOf(node.shape)
    if (n === 0) return
    const view = viewOf(x)
    const type = wordType(node.dtype.size)
    const index = metalType(indices.dtype) as string
    const target = targetOf(node)
    const merged = collapse(node.shape, [view.strides.map((s, i) => (i === axis ? 0 : s))])
    const ndim = merged.shape.length
    withRowMajor(queue, viewOf(indices), (location) =>
      dispatchMover(
        queue,
        "takeAlongAxis",
        {
          key: `along ${type} ${index} ${ndim}`,
          name: "along",
          source: () => alongSource(type, index, ndim),
        },
        [
          { storage: view.storage, offset: 0 },
          location,
          target,
          Int32Array.from([
            ...[n, view.offset, x.shape[axis], view.strides[axis], ...merged.shape],
            ...merged.strides[0],
          ]),
        ],
        target,
        n,
      ),
    )
  },
}

const putAlongAxis: Family = {
  supports: (node) =>
    isCountable(node) &&
    areIndices([node.inputs[1]]) &&
    node.shape.length > 0 &&
    node.inputs[2].shape.join() === node.inputs[1].shape.join() &&
    canCombine(node.dtype, node.params.mode as Mode),
  overwrites: () => [0],
  encode: (node, queue) => {
    const [x, indices, values] = node.inputs
    const { axis, mode } = node.params as { axis: number; mode: Mode }
    const strides = contiguousStrides(x.shape)
    const merged = collapse(indices.shape, [strides.map((s, i) => (i === axis ? 0 : s))])
    const ndim = merged.shape.length
    encodeScatter(queue, "putAlongAxis", node, values, [indices], mode, {
      key: `along ${metalType(indices.dtype)} ${ndim}`,
      types: indexTypes([indices]),
      text: `  order = i;\n${startOf(indexTypes([indices]), 2 + 2 * ndim, "i")}${inSlice(ndim, 2, "i", "start")}  at = start;\n  spot = uint(at);\n`,
      spots: Math.max(1, sizeOf(x.shape)),
      layout: [...merged.shape, ...merged.strides[0], x.shape[axis], 1, strides[axis]],
      meet: indices.shape[axis] > 1,
      slice: 1,
    })
  },
}

/** Reading and writing at positions, by primitive. */
export const gathers: Families = { gather, scatter, takeAlongAxis, putAlongAxis }
