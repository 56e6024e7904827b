/**
 * Softmax along the last axis: one threadgroup a row, the row's maximum and sum by simdgroups and threadgroup memory, in float.
 */
import { type Storage, sizeOf } from "@lazuli/core/engine"
import type { Kernel } from "../dispatch"
import { type Families, MAX_ELEMENTS } from "../family"
import { viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { withRowMajor } from "./copy"

const GROUP = 256

const source = (type: string): string => `${METAL_HEADER}
// The simdgroups' results, combined by all threads.
float lz_combine(float value, bool is_max, threadgroup float* parts, uint lane, uint simdgroup, uint simdgroups) {
  if (lane == 0) parts[simdgroup] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = parts[0];
  for (uint k = 1; k < simdgroups; k++) total = is_max ? max(total, parts[k]) : total + parts[k];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return total;
}
kernel void softmax_rows(device const ${type}* x [[buffer(0)]], device ${type}* y [[buffer(1)]], constant uint& n [[buffer(2)]],
    uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[32];
  x += ulong(row) * n;
  y += ulong(row) * n;
  float top = -INFINITY;
  for (uint k = t; k < n; k += threads) top = max(top, float(x[k]));
  top = lz_combine(simd_max(top), true, parts, lane, simdgroup, simdgroups);
  float sum = 0.0f;
  for (uint k = t; k < n; k += threads) sum += precise::exp(float(x[k]) - top);
  sum = lz_combine(simd_sum(sum), false, parts, lane, simdgroup, simdgroups);
  for (uint k = t; k < n; k += threads) y[k] = ${type}(precise::exp(float(x[k]) - top) / sum);
}
`

/** Softmax, by primitive. */
export const softmax: Families = {
  softmax: {
    supports: ({ inputs: [x], params }) =>
      x.dtype.kind === "floating" &&
      metalType(x.dtype) !== undefined &&
      params.axis === x.shape.length - 1 &&
      sizeOf(x.shape) <= MAX_ELEMENTS,
    encode: (node, queue) => {
      const [input] = node.inputs
      const size = sizeOf(node.shape)
      if (size === 0) return
      const n = node.shape[node.shape.length - 1]
      const kernel: Kernel = {
        key: `softmax ${input.dtype.name}`,
        source: () => source(metalType(input.dtype) as string),
        name: "softmax_rows",
      }
      const group = Math.min(GROUP, Math.ceil(n / 128) * 32)
      const target = node.storage as Storage
      withRowMajor(queue, viewOf(input), (place) => {
        queue.dispatch({
          op: "softmax",
          kernel,
          arguments: [place, { storage: target, offset: node.offset * node.dtype.size }, Uint32Array.of(n)],
          writes: [target],
          grid: [(size / n) * group, 1, 1],
          threadgroup: [group, 1, 1],
        })
      })
    },
  },
}
