/**
 * Kernels that move elements to computed locations: joining, padding, writing a range, counting, and random bits.
 */
import { contiguousStrides, type Dtype, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Kernel, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { collapse, type View, viewOf } from "../layout"
import { computeType, METAL_HEADER, metalType, wordType } from "../metal-types"
import { expressionFor, functionsFor, rounded } from "../scalar-source"
import { encodeCopy, withRowMajor } from "./copy"
import { targetOf } from "./reduce"

const GROUP = 256

/** The way an update meets what is there, as @lazuli/core's slice.ts names it. */
export type Mode = "set" | "add" | "multiply" | "maximum" | "minimum"

/** The stored value of `old` and `update`, both of the dtype's type in memory. */
export function combined(mode: Mode, dtype: Dtype, old: string, update: string): string {
  if (mode === "set") return update
  const compute = computeType(dtype)
  const of = expressionFor(mode, dtype) as (x: string, y: string) => string
  return `${metalType(dtype)}(${rounded(of(`${compute}(${old})`, `${compute}(${update})`), dtype)})`
}

export const canCombine = (dtype: Dtype, mode: Mode): boolean =>
  mode === "set" || (metalType(dtype) !== undefined && expressionFor(mode, dtype) !== undefined)

/** One thread an element, guarded, in whole groups; or one for `each` elements. */
export function dispatchEach(
  queue: DispatchQueue,
  op: string,
  kernel: Kernel,
  args: Parameters<DispatchQueue["dispatch"]>[0]["arguments"],
  writes: readonly Storage[],
  elements: number,
  each = 1,
): void {
  if (elements === 0) return
  const group = Math.min(GROUP, Math.ceil(elements / each / 32) * 32)
  queue.dispatch({
    op,
    kernel,
    arguments: args,
    writes,
    grid: [Math.ceil(elements / (each * group)) * group, 1, 1],
    threadgroup: [group, 1, 1],
  })
}

/** Elements of some storage, in any layout, that are written. */
interface Range {
  readonly storage: Storage
  readonly offset: number
  readonly strides: readonly number[]
}

const moveSource = (
  type: string,
  ndim: number,
  value: string,
): string => `${METAL_HEADER}${functionsFor(value)}
kernel void move(device const ${type}* x [[buffer(0)]], device ${type}* y [[buffer(1)]], constant int* layout [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  if (i >= uint(layout[0])) return;
  int p = layout[1], q = layout[2];
  uint rest = i;
  for (int axis = ${ndim - 1}; axis >= 0; axis--) {
    int c = int(rest % uint(layout[3 + axis]));
    rest /= uint(layout[3 + axis]);
    p += c * layout[${3 + ndim} + axis];
    q += c * layout[${3 + 2 * ndim} + axis];
  }
  ${type} u = x[p];
  y[q] = ${value};
}
`

/** Bytes of the largest word in which two layouts of one shape can be walked. */
function wordOf(size: number, shape: readonly number[], layouts: readonly Range[]): number {
  const last = shape.length - 1
  for (let word = 16; word > size; word /= 2) {
    const ratio = word / size
    if (shape[last] % ratio === 0)
      if (
        layouts.every(
          ({ offset, strides }) =>
            offset % ratio === 0 && strides[last] === 1 && strides.slice(0, -1).every((s) => s % ratio === 0),
        )
      )
        return word
  }
  return size
}

/** Writes a view's elements over a range of a storage, or combines them with what is there. */
function encodeMove(queue: DispatchQueue, op: string, from: View, to: Range, mode: Mode, dtype: Dtype): void {
  if (sizeOf(from.shape) === 0) return
  const merged = collapse(from.shape, [from.strides, to.strides])
  const { shape } = merged
  const [walk, target] = merged.strides
  const size = from.itemsize
  const word =
    mode === "set"
      ? wordOf(size, shape, [
          { ...from, strides: walk },
          { ...to, strides: target },
        ])
      : size
  const ratio = word / size
  const scaled = (strides: readonly number[]): number[] =>
    strides.map((s, i) => (i === shape.length - 1 ? s : s / ratio))
  const sizes = shape.map((n, i) => (i === shape.length - 1 ? n / ratio : n))
  const threads = sizeOf(sizes)
  const type = mode === "set" ? wordType(word) : (metalType(dtype) as string)
  const value = combined(mode, dtype, "y[q]", "u")
  dispatchEach(
    queue,
    op,
    {
      key: `move ${type} ${shape.length} ${mode} ${mode === "set" ? "" : dtype.name}`,
      name: "move",
      source: () => moveSource(type, shape.length, value),
    },
    [
      { storage: from.storage, offset: 0 },
      { storage: to.storage, offset: 0 },
      Int32Array.from([
        ...[threads, from.offset / ratio, to.offset / ratio, ...sizes],
        ...[...scaled(walk), ...scaled(target)],
      ]),
    ],
    [to.storage],
    threads,
  )
}

/** Where each input of a concatenation begins in it, in elements. */
function startsIn(node: Node): number[] {
  const axis = node.params.axis as number
  const stride = contiguousStrides(node.shape)[axis]
  let at = 0
  return node.inputs.map(({ shape }) => {
    const start = at
    at += shape[axis] * stride
    return start
  })
}

const concatenate: Family = {
  supports: isCountable,
  partsAt: (node) =>
    sizeOf(node.shape.slice(0, node.params.axis as number)) === 1
      ? startsIn(node).map((start) => start * node.dtype.size)
      : null,
  encode: (node, queue) => {
    const strides = contiguousStrides(node.shape)
    const storage = node.storage as Storage
    const starts = startsIn(node)
    node.inputs.forEach((input, i) => {
      const from = viewOf(input)
      // Only a plan lets an input lie in the result: where partsAt says.
      const mayLie = node.offset === 0 && input.strides === null && input.offset === 0
      if (mayLie && queue.overlays(from.storage, storage, starts[i] * node.dtype.size)) return
      const to = { storage, offset: node.offset + starts[i], strides }
      encodeMove(queue, "concatenate", from, to, "set", node.dtype)
    })
  },
}

const sliceUpdate: Family = {
  supports: (node) => isCountable(node) && canCombine(node.dtype, node.params.mode as Mode),
  overwrites: () => [0],
  encode: (node, queue) => {
    const [x, update] = node.inputs
    const { start, strides, mode } = node.params as {
      start: readonly number[]
      strides: readonly number[]
      mode: Mode
    }
    const steps = contiguousStrides(node.shape)
    // Written over x, the rest is there.
    queue.copyOver(x.storage as Storage, node.storage as Storage, () =>
      encodeCopy(queue, viewOf(x), targetOf(node), "sliceUpdate"),
    )
    const to = {
      storage: node.storage as Storage,
      offset: node.offset + start.reduce((sum, s, i) => sum + s * steps[i], 0),
      strides: steps.map((s, i) => s * strides[i]),
    }
    encodeMove(queue, "sliceUpdate", viewOf(update), to, mode, node.dtype)
  },
}

const padSource = (type: string, ndim: number): string => `${METAL_HEADER}
kernel void pad(device const ${type}* x [[buffer(0)]], device const ${type}* value [[buffer(1)]], device ${type}* y [[buffer(2)]],
    constant int* layout [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i >= uint(layout[0])) return;
  int p = layout[1];
  bool inside = true;
  uint rest = i;
  for (int axis = ${ndim - 1}; axis >= 0; axis--) {
    int c = int(rest % uint(layout[2 + axis])) - layout[${2 + ndim} + axis];
    rest /= uint(layout[2 + axis]);
    inside = inside && c >= 0 && c < layout[${2 + 2 * ndim} + axis];
    p += c * layout[${2 + 3 * ndim} + axis];
  }
  y[i] = inside ? x[p] : value[0];
}
`

const pad: Family = {
  supports: (node) => isCountable(node) && node.shape.length > 0,
  encode: (node, queue) => {
    const [x, value] = node.inputs
    const view = viewOf(x)
    const type = wordType(node.dtype.size)
    const target = targetOf(node)
    const threads = sizeOf(node.shape)
    const ndim = node.shape.length
    dispatchEach(
      queue,
      "pad",
      { key: `pad ${type} ${ndim}`, name: "pad", source: () => padSource(type, ndim) },
      [
        { storage: view.storage, offset: 0 },
        { storage: value.storage as Storage, offset: value.offset * value.dtype.size },
        target,
        Int32Array.from([
          ...[threads, view.offset, ...node.shape, ...(node.params.low as number[])],
          ...[...x.shape, ...view.strides],
        ]),
      ],
      [target.storage],
      threads,
    )
  },
}

const arangeSource = (type: string, floating: boolean): string => `${METAL_HEADER}
kernel void arange(device ${type}* y [[buffer(0)]], constant uint& n [[buffer(1)]], constant ${floating ? "float" : "long"}* p [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  if (i >= n) return;
${
  floating
    ? // Start and step in two floats each, as near as can be to what double gives.
      `  float k = float(i);\n  y[i] = ${type}(fma(k, p[2], p[0]) + fma(k, p[3], p[1]));`
    : `  y[i] = ${type}(ulong(p[0]) + ulong(i) * ulong(p[1]));`
}
}
`

const arange: Family = {
  supports: (node) => metalType(node.dtype) !== undefined && isCountable(node),
  encode: (node, queue) => {
    const { start, step } = node.params as { start: number; step: number }
    const floating = node.dtype.kind === "floating"
    const type = metalType(node.dtype) as string
    const target = targetOf(node)
    const [a, b] = [Math.fround(start), Math.fround(step)]
    const n = sizeOf(node.shape)
    dispatchEach(
      queue,
      "arange",
      { key: `arange ${type}`, name: "arange", source: () => arangeSource(type, floating) },
      [
        target,
        Uint32Array.of(n),
        floating ? Float32Array.of(a, start - a, b, step - b) : BigInt64Array.of(BigInt(start), BigInt(step)),
      ],
      [target.storage],
      n,
    )
  },
}

/** Threefry-2x32 with 20 rounds, in MLX's layout of words; see @lazuli/core's random-bits.ts. */
const randomSource = (words: boolean): string => `${METAL_HEADER}
kernel void random_bits(device const uint* keys [[buffer(0)]], device ${words ? "uint" : "uchar"}* y [[buffer(1)]],
    constant uint* sizes [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  // Words and bytes of a key; threads in all.
  uint count = sizes[0], bytes = sizes[1], first = count / 2, second = count - first;
  if (i >= sizes[2]) return;
  uint key = i / second, c = i % second;
  bool middle = c >= first;
  uint k[3];
  k[0] = keys[2 * key];
  k[1] = keys[2 * key + 1];
  k[2] = k[0] ^ k[1] ^ 0x1bd11bdau;
  uint a = c + k[0], b = (middle ? 0u : c + second) + k[1];
  for (uint round = 0; round < 5; round++) {
    bool even = round % 2 == 0;
    uint r0 = even ? 13 : 17, r1 = even ? 15 : 29, r2 = even ? 26 : 16, r3 = even ? 6 : 24;
    a += b; b = ((b << r0) | (b >> (32 - r0))) ^ a;
    a += b; b = ((b << r1) | (b >> (32 - r1))) ^ a;
    a += b; b = ((b << r2) | (b >> (32 - r2))) ^ a;
    a += b; b = ((b << r3) | (b >> (32 - r3))) ^ a;
    a += k[(round + 1) % 3];
    b += k[(round + 2) % 3] + round + 1;
  }
${
  words
    ? `  y[key * count + c] = a;
  if (!middle) y[key * count + c + second] = b;`
    : `  for (uint e = 0; e < 4; e++) {
    uint at = 4 * c + e, other = 4 * (c + second) + e;
    if (at < bytes) y[key * bytes + at] = uchar(a >> (8 * e));
    if (!middle && other < bytes) y[key * bytes + other] = uchar(b >> (8 * e));
  }`
}
}
`

const randomBits: Family = {
  supports: (node) => isCountable(node) && sizeOf(node.shape) * node.dtype.size < 2 ** 32,
  encode: (node, queue) => {
    const [keys] = node.inputs
    const { width, shape } = node.params as { width: number; shape: readonly number[] }
    const bytes = sizeOf(shape) * width
    const count = Math.ceil(bytes / 4)
    const threads = (sizeOf(keys.shape) / 2) * (count - Math.floor(count / 2))
    const target = targetOf(node)
    withRowMajor(queue, viewOf(keys), (location: Location) =>
      dispatchEach(
        queue,
        "randomBits",
        { key: `random ${width === 4}`, name: "random_bits", source: () => randomSource(width === 4) },
        [location, target, Uint32Array.of(count, bytes, threads)],
        [target.storage],
        threads,
      ),
    )
  },
}

/** Kernels that move elements to locations that shapes and parameters tell, by primitive. */
export const placements: Families = { concatenate, sliceUpdate, pad, arange, randomBits }
