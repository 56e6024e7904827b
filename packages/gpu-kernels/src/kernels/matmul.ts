/**
 * Products of matrices, in tiles of threadgroup memory. Rows and columns may step by anything, so that transposes are free.
 */
import { type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Kernel } from "../dispatch"
import { type Families, MAX_ELEMENTS } from "../family"
import { collapse, type View, viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { withRowMajor } from "./copy"

const TILE = 16

/** `p`: m, n, k, then of a and of b the steps of a batch, a row and a column. */
const source = (type: string): string => `${METAL_HEADER}
kernel void matmul(device const ${type}* a [[buffer(0)]], device const ${type}* b [[buffer(1)]], device ${type}* y [[buffer(2)]],
    constant int* p [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float left[${TILE}][${TILE + 1}];
  threadgroup float right[${TILE}][${TILE + 1}];
  int m = p[0], n = p[1], depth = p[2];
  a += long(group.z) * p[3];
  b += long(group.z) * p[6];
  y += long(group.z) * m * n;
  int row = int(group.y * ${TILE} + t.y), column = int(group.x * ${TILE} + t.x);
  float sum = 0.0f;
  for (int start = 0; start < depth; start += ${TILE}) {
    int ka = start + int(t.x), kb = start + int(t.y);
    left[t.y][t.x] = row < m && ka < depth ? float(a[long(row) * p[4] + long(ka) * p[5]]) : 0.0f;
    right[t.y][t.x] = column < n && kb < depth ? float(b[long(kb) * p[7] + long(column) * p[8]]) : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < ${TILE}; k++) sum += left[t.y][k] * right[k][t.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (row < m && column < n) y[long(row) * n + column] = ${type}(sum);
}
`

/** A view whose batch axes step evenly: itself, or a row-major copy. */
function withBatches(queue: DispatchQueue, view: View, body: (view: View, batch: number) => void): void {
  const rank = view.shape.length
  const batch = collapse(view.shape.slice(0, -2), [view.strides.slice(0, -2)])
  const [step] = batch.strides
  // Behind the bound offset a kernel may only go forward.
  if (step.length === 1 && view.strides.every((s) => s >= 0)) {
    body(view, step[0])
    return
  }
  withRowMajor(queue, view, ({ storage, offset }) => {
    const [rows, columns] = view.shape.slice(-2)
    const strides = new Array<number>(rank - 2).fill(0)
    body(
      { ...view, storage, offset: offset / view.itemsize, strides: [...strides, columns, 1] },
      rows * columns,
    )
  })
}

function encode(node: Node, queue: DispatchQueue): void {
  const [x, y] = node.inputs
  if (sizeOf(node.shape) === 0) return
  const [m, k] = x.shape.slice(-2)
  const n = y.shape[y.shape.length - 1]
  const batches = sizeOf(node.shape.slice(0, -2))
  const kernel: Kernel = {
    key: `matmul ${x.dtype.name}`,
    source: () => source(metalType(x.dtype) as string),
    name: "matmul",
  }
  const target = node.storage as Storage
  const { size } = node.dtype
  withBatches(queue, viewOf(x), (a, stepA) =>
    withBatches(queue, viewOf(y), (b, stepB) => {
      const shape = [m, n, k, stepA, ...a.strides.slice(-2), stepB, ...b.strides.slice(-2)]
      queue.dispatch({
        op: "matmul",
        kernel,
        arguments: [
          { storage: a.storage, offset: a.offset * size },
          { storage: b.storage, offset: b.offset * size },
          { storage: target, offset: node.offset * size },
          Int32Array.from(shape),
        ],
        writes: [target],
        grid: [Math.ceil(n / TILE) * TILE, Math.ceil(m / TILE) * TILE, batches],
        threadgroup: [TILE, TILE, 1],
      })
    }),
  )
}

/** Products, by primitive. */
export const products: Families = {
  matmul: {
    supports: ({ inputs: [x, y], dtype, shape }) =>
      dtype.kind === "floating" &&
      metalType(dtype) !== undefined &&
      [x.shape, y.shape, shape].every((s) => sizeOf(s) <= MAX_ELEMENTS),
    encode,
  },
}
