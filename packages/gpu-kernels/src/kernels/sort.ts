/**
 * Stable sorting along an axis, NaN last. Elements become keys that compare as unsigned numbers, beside their positions. Rows that fit are
 * sorted by a threadgroup (Batcher's bitonic network); longer ones in blocks, which passes then merge two by two: each thread finds its
 * part of a merge by bisection (Green, McColl and Bader, "GPU merge path", 2012).
 */
import { type Dtype, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Place } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { permuted, viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { encodeCopy, withRowMajor } from "./copy"
import { targetOf } from "./reduce"

/** The most elements that a threadgroup sorts by itself. */
const BLOCK = 2048
const GROUP = 256
/** Elements that a thread merges. */
const EACH = 8

/** Keys in the order of the elements: of equal elements equal, of NaN the largest. */
function keySource(dtype: Dtype): { key: string; text: string } {
  const type = metalType(dtype) as string
  const of = (key: string, body: string): { key: string; text: string } => ({
    key,
    text: `inline ${key} lz_key(${type} x) { ${body} }\n`,
  })
  const float = `inline uint lz_float_key(float x) {
  uint bits = as_type<uint>(x == 0.0f ? 0.0f : x);
  return x != x ? 0xffffffffu : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
`
  if (dtype.kind === "complex") {
    const { key, text } = of(
      "ulong",
      "return x.x != x.x || x.y != x.y ? ~0ul : (ulong(lz_float_key(x.x)) << 32) | ulong(lz_float_key(x.y));",
    )
    return { key, text: float + text }
  }
  if (dtype.kind === "floating") {
    const { key, text } = of("uint", "return lz_float_key(float(x));")
    return { key, text: float + text }
  }
  if (dtype.kind === "bool") return of("uint", "return x ? 1u : 0u;")
  if (dtype.size === 8)
    return of("ulong", dtype.kind === "signed" ? "return ulong(x) ^ 0x8000000000000000ul;" : "return x;")
  return of("uint", dtype.kind === "signed" ? "return uint(int(x)) ^ 0x80000000u;" : "return uint(x);")
}

/** What a pass leaves: sorted keys and positions, or results: positions or elements. */
type Result = "keys" | "positions" | "elements"

const outputs = (type: string, result: Result, key: string): string =>
  result === "keys"
    ? `device ${key}* keys_out [[buffer(1)]], device uint* places_out [[buffer(2)]]`
    : `device ${result === "positions" ? "uint" : type}* y [[buffer(1)]], device const uint* unused [[buffer(2)]]`

const leave = (result: Result, at: string, key: string, place: string): string =>
  result === "keys"
    ? `keys_out[${at}] = ${key}; places_out[${at}] = ${place};`
    : result === "positions"
      ? `y[${at}] = ${place};`
      : `y[${at}] = x[row * n + ${place}];`

/** Sorts blocks of `size` elements, a power of two. */
function blockSource(dtype: Dtype, size: number, result: Result): string {
  const { key, text } = keySource(dtype)
  const type = metalType(dtype) as string
  return `${METAL_HEADER}${text}kernel void sort_block(device const ${type}* x [[buffer(0)]], ${outputs(type, result, key)},
    constant uint* sizes [[buffer(3)]], uint lane [[thread_position_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]]) {
  threadgroup ${key} keys[${size}];
  threadgroup uint places[${size}];
  uint n = sizes[0], blocks = sizes[1], row = group / blocks, begin = group % blocks * ${size};
  for (uint i = lane; i < ${size}; i += threads) {
    // What pads a block comes behind all else by its position.
    keys[i] = begin + i < n ? lz_key(x[row * n + begin + i]) : ~${key}(0);
    places[i] = begin + i;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint run = 2; run <= ${size}; run *= 2) {
    for (uint step = run / 2; step > 0; step /= 2) {
      for (uint t = lane; t < ${size / 2}; t += threads) {
        uint i = 2 * step * (t / step) + t % step, j = i + step;
        ${key} a = keys[i], b = keys[j];
        uint p = places[i], q = places[j];
        bool swap = a > b || (a == b && p > q);
        if (swap == ((i & run) == 0)) {
          keys[i] = b; keys[j] = a;
          places[i] = q; places[j] = p;
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  for (uint i = lane; i < ${size}; i += threads)
    if (begin + i < n) { ${leave(result, "row * n + begin + i", "keys[i]", "places[i]")} }
}
`
}

/** Merges sorted runs of `run` elements, two by two. */
function mergeSource(dtype: Dtype, result: Result): string {
  const { key } = keySource(dtype)
  const type = metalType(dtype) as string
  return `${METAL_HEADER}kernel void merge(device const ${type}* x [[buffer(0)]], ${outputs(type, result, key)},
    constant uint* sizes [[buffer(3)]], device const ${key}* keys [[buffer(4)]], device const uint* places [[buffer(5)]],
    uint i [[thread_position_in_grid]]) {
  uint n = sizes[0], run = sizes[1], each = sizes[2];
  if (i >= sizes[3]) return;
  uint row = i / each, first = i % each * ${EACH};
  uint low = first / (2 * run) * (2 * run), middle = min(n, low + run), high = min(n, low + 2 * run);
  uint diagonal = first - low, left = middle - low, right = high - middle;
  device const ${key}* a = keys + row * n + low;
  device const ${key}* b = keys + row * n + middle;
  // How many of the merged elements before the diagonal come from the left run; of equal ones the left is first.
  uint least = diagonal > right ? diagonal - right : 0, most = min(diagonal, left);
  while (least < most) {
    uint mid = (least + most) / 2;
    if (a[mid] <= b[diagonal - mid - 1]) least = mid + 1;
    else most = mid;
  }
  uint p = least, q = diagonal - least;
  for (uint e = 0; e < ${EACH} && first + e < high; e++) {
    bool fromLeft = q >= right || (p < left && a[p] <= b[q]);
    uint at = row * n + (fromLeft ? low + p : middle + q);
    ${leave(result, "row * n + first + e", "keys[at]", "places[at]")}
    if (fromLeft) p++;
    else q++;
  }
}
`
}

/** Sorts the rows of a row-major input. */
function dispatchSort(
  queue: DispatchQueue,
  op: string,
  dtype: Dtype,
  place: Place,
  target: Place,
  rows: number,
  n: number,
  result: Result,
): void {
  const size = Math.max(2, Math.min(BLOCK, 2 ** Math.ceil(Math.log2(n))))
  const blocks = Math.ceil(n / size)
  const group = Math.min(GROUP, Math.max(32, size / 2))
  const name = dtype.name
  const keySize = dtype.size === 8 ? 8 : 4
  const pairs: Storage[] = []
  const pair = (): Place[] => {
    const made = [queue.allocate(rows * n * keySize), queue.allocate(rows * n * 4)]
    pairs.push(...made)
    return made.map((storage) => ({ storage, offset: 0 }))
  }
  const whole = (from: Place): Place[] => [target, from]
  let from = blocks > 1 ? pair() : whole(place)
  let spare = blocks > 2 ? pair() : null
  const first: Result = blocks > 1 ? "keys" : result
  queue.dispatch({
    op,
    kernel: {
      key: `sort block ${name} ${size} ${first}`,
      name: "sort_block",
      source: () => blockSource(dtype, size, first),
    },
    arguments: [place, ...from, Uint32Array.of(n, blocks)],
    writes: blocks > 1 ? from.map((p) => p.storage) : [target.storage],
    grid: [rows * blocks * group, 1, 1],
    threadgroup: [group, 1, 1],
  })
  for (let run = size; run < n; run *= 2) {
    const last = 2 * run >= n
    const left: Result = last ? result : "keys"
    const to = last ? whole(place) : (spare as Place[])
    const each = Math.ceil(n / EACH)
    const threads = rows * each
    const args: Argument[] = [place, ...to, Uint32Array.of(n, run, each, threads), ...from]
    const width = Math.min(GROUP, Math.ceil(threads / 32) * 32)
    queue.dispatch({
      op,
      kernel: { key: `merge ${name} ${left}`, name: "merge", source: () => mergeSource(dtype, left) },
      arguments: args,
      writes: last ? [target.storage] : to.map((p) => p.storage),
      grid: [Math.ceil(threads / width) * width, 1, 1],
      threadgroup: [width, 1, 1],
    })
    if (!last) {
      spare = from
      from = to
    }
  }
  for (const storage of pairs) storage.drop()
}

const family = (result: Result): Family => ({
  supports: (node) => metalType(node.inputs[0].dtype) !== undefined && isCountable(node),
  encode: (node: Node, queue) => {
    const [x] = node.inputs
    const op = node.primitive?.name as string
    const axis = node.params.axis as number
    if (sizeOf(node.shape) === 0) return
    const last = node.shape.length - 1
    const n = node.shape[axis]
    const order = [...node.shape.keys()].filter((i) => i !== axis).concat(axis)
    const rows = sizeOf(node.shape) / n
    const { dtype } = x
    withRowMajor(queue, permuted(viewOf(x), order), (place) => {
      if (axis === last) {
        dispatchSort(queue, op, dtype, place, targetOf(node), rows, n, result)
        return
      }
      const sorted = queue.allocate(sizeOf(node.shape) * node.dtype.size)
      dispatchSort(queue, op, dtype, place, { storage: sorted, offset: 0 }, rows, n, result)
      const shape = order.map((i) => node.shape[i])
      const strides = shape.map((_, i) => sizeOf(shape.slice(i + 1)))
      const back = order.map((_, i) => order.indexOf(i))
      const view = { storage: sorted, itemsize: node.dtype.size, shape, strides, offset: 0 }
      encodeCopy(queue, permuted(view, back), targetOf(node), op)
      sorted.drop()
    })
  },
})

/** Sorting, by primitive. */
export const sorts: Families = { sort: family("elements"), argsort: family("positions") }
