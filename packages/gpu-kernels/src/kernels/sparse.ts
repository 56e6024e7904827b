/**
 * Products of sparse matrices with dense ones. Where rows ascend, a thread an element finds its row's values by bisection, and adds them in
 * order; elsewhere a thread an element of each value's product adds atomically, or a thread a column where the same bits are asked for.
 * Positions out of bounds are left out, since a kernel cannot refuse them.
 */
import { determinism, isInteger, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { METAL_HEADER, metalType } from "../metal-types"
import { withAllRowMajor } from "./copy"
import { dispatchEach } from "./moves"
import { targetOf } from "./reduce"

/** Terms that are added up before they meet the sum of those before them, so that errors do not grow with their number. */
const BLOCK = 32

const takes = (node: Node): boolean =>
  isCountable(node) &&
  node.inputs.every(
    (x) => isInteger(x.dtype) || (x.dtype.kind === "floating" && metalType(x.dtype) !== undefined),
  )

const orderedSource = (type: string, row: string, column: string): string => `${METAL_HEADER}
inline uint lz_from(device const ${row}* rows, uint count, long row) {
  uint low = 0, high = count;
  while (low < high) {
    uint middle = (low + high) / 2;
    if (long(rows[middle]) < row) low = middle + 1;
    else high = middle;
  }
  return low;
}
kernel void sparse_rows(device const ${type}* values [[buffer(0)]], device const ${row}* rows [[buffer(1)]],
    device const ${column}* columns [[buffer(2)]], device const ${type}* dense [[buffer(3)]], device ${type}* y [[buffer(4)]],
    constant uint* sizes [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  uint count = sizes[1], n = sizes[2], j = i % n;
  long row = long(i / n);
  uint end = lz_from(rows, count, row + 1);
  float total = 0.0f, part = 0.0f;
  uint terms = 0;
  for (uint t = lz_from(rows, count, row); t < end; t++) {
    ulong column = ulong(columns[t]);
    if (column < ulong(sizes[3])) part += float(values[t]) * float(dense[column * n + j]);
    if (++terms % ${BLOCK} == 0) { total += part; part = 0.0f; }
  }
  y[i] = ${type}(total + part);
}
`

const atomicSource = (type: string, row: string, column: string): string => `${METAL_HEADER}
kernel void sparse_values(device const ${type}* values [[buffer(0)]], device const ${row}* rows [[buffer(1)]],
    device const ${column}* columns [[buffer(2)]], device const ${type}* dense [[buffer(3)]], device atomic<float>* y [[buffer(4)]],
    constant uint* sizes [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  uint n = sizes[2], t = i / n, j = i % n;
  ulong row = ulong(rows[t]), column = ulong(columns[t]);
  if (row < ulong(sizes[1]) && column < ulong(sizes[3]))
    atomic_fetch_add_explicit(y + (row * n + j), float(values[t]) * float(dense[column * n + j]), memory_order_relaxed);
}
`

/** The same in order: a thread a column. */
const serialSource = (type: string, row: string, column: string): string => `${METAL_HEADER}
kernel void sparse_serial(device const ${type}* values [[buffer(0)]], device const ${row}* rows [[buffer(1)]],
    device const ${column}* columns [[buffer(2)]], device const ${type}* dense [[buffer(3)]], device float* y [[buffer(4)]],
    constant uint* sizes [[buffer(5)]], uint j [[thread_position_in_grid]]) {
  uint n = sizes[2];
  if (j >= n) return;
  for (uint t = 0; t < sizes[0] / n; t++) {
    ulong row = ulong(rows[t]), column = ulong(columns[t]);
    if (row < ulong(sizes[1]) && column < ulong(sizes[3]))
      y[row * n + j] += float(values[t]) * float(dense[column * n + j]);
  }
}
`

/** Writes \`n\` elements of one expression over \`i\`. */
const fillSource = (name: string, from: string, to: string, value: string): string => `${METAL_HEADER}
kernel void ${name}(device const ${from}* x [[buffer(0)]], device ${to}* y [[buffer(1)]], constant uint& n [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  if (i < n) y[i] = ${value};
}
`

function encodeUnordered(
  queue: DispatchQueue,
  node: Node,
  locations: readonly Location[],
  types: readonly [type: string, row: string, column: string],
  sizes: readonly number[],
): void {
  const cells = sizeOf(node.shape)
  const target = targetOf(node)
  const [type] = types
  const op = "sparseMatmul"
  // Halves are summed in float32, and rounded once.
  const wide: Storage | null = type === "float" ? null : queue.allocate(4 * cells)
  const sums = wide ? { storage: wide, offset: 0 } : target
  const each = (name: string, from: string, to: string, value: string, args: readonly Location[]): void =>
    dispatchEach(
      queue,
      op,
      { key: `sparse ${name} ${to}`, name, source: () => fillSource(name, from, to, value) },
      [...args, Uint32Array.of(cells)],
      [args[1].storage],
      cells,
    )
  each("sparse_zeros", "float", "float", "0.0f", [sums, sums])
  const inOrder = determinism.isAsked
  dispatchEach(
    queue,
    op,
    inOrder
      ? { key: `sparse serial ${types}`, name: "sparse_serial", source: () => serialSource(...types) }
      : { key: `sparse values ${types}`, name: "sparse_values", source: () => atomicSource(...types) },
    [...locations, sums, Uint32Array.from(sizes)],
    [sums.storage],
    inOrder ? sizes[2] : sizes[0],
  )
  if (wide) each("sparse_narrow", "float", type, `${type}(x[i])`, [sums, target])
  wide?.drop()
}

const sparseMatmul: Family = {
  supports: takes,
  encode: (node, queue) => {
    const [values, rows, columns, dense] = node.inputs
    const cells = sizeOf(node.shape)
    if (cells === 0) return
    const count = values.shape[0]
    const [height, n] = dense.shape
    const names = [values, rows, columns].map((x) => metalType(x.dtype) as string)
    const types = names as [string, string, string]
    const target = targetOf(node)
    withAllRowMajor(queue, node.inputs, (locations) => {
      if (!node.params.sorted) {
        encodeUnordered(queue, node, locations, types, [count * n, node.shape[0], n, height])
        return
      }
      dispatchEach(
        queue,
        "sparseMatmul",
        { key: `sparse rows ${types}`, name: "sparse_rows", source: () => orderedSource(...types) },
        [...locations, target, Uint32Array.of(cells, count, n, height)],
        [target.storage],
        cells,
      )
    })
  },
}

/** A simdgroup a product. */
const sampledSource = (type: string, row: string, column: string): string => `${METAL_HEADER}
kernel void sampled_products(device const ${type}* a [[buffer(0)]], device const ${type}* b [[buffer(1)]],
    device const ${row}* rows [[buffer(2)]], device const ${column}* columns [[buffer(3)]], device ${type}* y [[buffer(4)]],
    constant uint* sizes [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  uint t = i / 32, lane = i % 32, n = sizes[1];
  bool real = t < sizes[0];
  ulong row = real ? ulong(rows[t]) : 0, column = real ? ulong(columns[t]) : 0;
  bool inside = row < ulong(sizes[2]) && column < ulong(sizes[3]);
  float sum = 0.0f;
  if (real && inside)
    for (uint j = lane; j < n; j += 32) sum += float(a[row * n + j]) * float(b[column * n + j]);
  sum = simd_sum(sum);
  if (real && lane == 0) y[t] = ${type}(inside ? sum : NAN);
}
`

const sampledMatmul: Family = {
  supports: takes,
  encode: (node, queue) => {
    const [a, b, rows, columns] = node.inputs
    const count = sizeOf(node.shape)
    if (count === 0) return
    const types = [a, rows, columns].map((x) => metalType(x.dtype) as string) as [string, string, string]
    const target = targetOf(node)
    withAllRowMajor(queue, node.inputs, (locations) =>
      dispatchEach(
        queue,
        "sampledMatmul",
        { key: `sampled ${types}`, name: "sampled_products", source: () => sampledSource(...types) },
        [...locations, target, Uint32Array.of(count, a.shape[1], a.shape[0], b.shape[0])],
        [target.storage],
        32 * count,
      ),
    )
  },
}

/** Sparse products, by primitive. */
export const sparse: Families = { sparseMatmul, sampledMatmul }
