/**
 * Sums and extremes over axes: the reduced axes are brought to the end, and each row of elements is one cell of the result. Short rows
 * take a thread, long ones a threadgroup: strided partial results, a simdgroup's result by shuffles, the simdgroups' through
 * threadgroup memory.
 */
import { bool_, type Dtype, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Kernel } from "../dispatch"
import { type Families, type Family, MAX_ELEMENTS } from "../family"
import { permuted, viewOf } from "../layout"
import { computeType, METAL_HEADER, metalType } from "../metal-types"
import { functionsFor } from "../scalar-source"
import { withRowMajor } from "./copy"

/** Rows up to this long take one thread. */
const SHORT_ROW = 64
const GROUP = 256

interface Fold {
  readonly name: string
  /** What folding begins with, in the accumulator's type. */
  start(type: string): string
  combine(a: string, b: string): string
}

const sum: Fold = { name: "sum", start: () => "0", combine: (a, b) => `${a} + ${b}` }
const max: Fold = {
  name: "max",
  start: (type) => (type === "float" ? "-INFINITY" : `numeric_limits<${type}>::min()`),
  combine: (a, b) => `lz_maximum(${a}, ${b})`,
}
const min: Fold = {
  name: "min",
  start: (type) => (type === "float" ? "INFINITY" : `numeric_limits<${type}>::max()`),
  combine: (a, b) => `lz_minimum(${a}, ${b})`,
}

/** Accumulators: float for the floats, int for bool. */
const accumulator = (dtype: Dtype): string => (dtype === bool_ ? "int" : computeType(dtype))

function source(fold: Fold, from: Dtype, to: Dtype, long: boolean): string {
  const type = accumulator(to.size === 8 ? to : from.kind === "floating" ? from : to)
  const step = (value: string): string => `acc = ${fold.combine("acc", value)};`
  const body = long
    ? `  ${type} acc = ${fold.start(type)};
  for (uint k = t; k < n; k += threads) { ${step(`${type}(x[k])`)} }
  for (uint d = 16; d > 0; d /= 2) { ${step("simd_shuffle_xor(acc, ushort(d))")} }
  threadgroup ${type} parts[32];
  if (lane == 0) parts[simdgroup] = acc;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) {
    for (uint k = 1; k < threads / 32; k++) { ${step("parts[k]")} }
    y[row] = ${metalType(to)}(acc);
  }
`
    : `  ${type} acc = ${fold.start(type)};
  for (uint k = 0; k < n; k++) { ${step(`${type}(x[k])`)} }
  y[row] = ${metalType(to)}(acc);
`
  const attributes = long
    ? `uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]`
    : "uint row [[thread_position_in_grid]]"
  return `${METAL_HEADER}${functionsFor(body)}kernel void ${fold.name}_rows(device const ${metalType(from)}* x [[buffer(0)]], device ${metalType(to)}* y [[buffer(1)]],
    constant uint& n [[buffer(2)]], ${attributes}) {
  x += ulong(row) * n;
${body}}
`
}

function encode(fold: Fold, node: Node, queue: DispatchQueue): void {
  const [input] = node.inputs
  const axes = node.params.axes as readonly number[]
  const kept = input.shape.map((_, i) => i).filter((i) => !axes.includes(i))
  const view = permuted(viewOf(input), [...kept, ...axes])
  const rows = sizeOf(node.shape)
  if (rows === 0) return
  const n = sizeOf(axes.map((axis) => input.shape[axis]))
  // Shuffles take 32 bits.
  const long = n > SHORT_ROW && input.dtype.size < 8 && node.dtype.size < 8
  const kernel: Kernel = {
    key: `${fold.name} ${input.dtype.name} ${long}`,
    source: () => source(fold, input.dtype, node.dtype, long),
    name: `${fold.name}_rows`,
  }
  const group = long ? Math.min(GROUP, Math.ceil(n / 32) * 32) : Math.min(GROUP, rows)
  const target = node.storage as Storage
  withRowMajor(queue, view, (place) => {
    queue.dispatch({
      op: fold.name,
      kernel,
      arguments: [place, { storage: target, offset: node.offset * node.dtype.size }, Uint32Array.of(n)],
      writes: [target],
      grid: [long ? rows * group : rows, 1, 1],
      threadgroup: [group, 1, 1],
    })
  })
}

const family = (fold: Fold): Family => ({
  supports: ({ inputs: [x], dtype, shape }) =>
    metalType(x.dtype) !== undefined &&
    metalType(dtype) !== undefined &&
    sizeOf(x.shape) <= MAX_ELEMENTS &&
    sizeOf(shape) * GROUP <= 0xffffffff &&
    (x.storage === null || x.storage.nbytes / x.dtype.size <= MAX_ELEMENTS),
  encode: (node, queue) => encode(fold, node, queue),
})

/** Reductions, by primitive. */
export const reductions: Families = { sum: family(sum), max: family(max), min: family(min) }
