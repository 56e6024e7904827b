/**
 * The fast Hadamard transform of rows: additions and subtractions in threadgroup memory, then the small matrix of a size that is no power
 * of two.
 */
import { hadamardFactor, hadamardMatrix, sizeOf } from "@lazuli/core/engine"
import { type Families, isCountable } from "../family"
import { viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { withRowMajor } from "./copy"
import { targetOf } from "./reduce"

/** The longest row that fits in threadgroup memory. */
const MOST = 8192
const GROUP = 256

/** `matrix` has the signs of the small matrix, row by row. */
const source = (type: string, m: number, power: number): string => `${METAL_HEADER}
kernel void hadamard(device const ${type}* x [[buffer(0)]], device ${type}* y [[buffer(1)]], constant char* matrix [[buffer(2)]],
    constant float& scale [[buffer(3)]], uint lane [[thread_position_in_threadgroup]],
    uint line [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]]) {
  threadgroup float row[${m * power}];
  uint base = line * ${m * power};
  for (uint i = lane; i < ${m * power}; i += threads) row[i] = float(x[base + i]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint h = 1; h < ${power}; h *= 2) {
    for (uint t = lane; t < ${(m * power) / 2}; t += threads) {
      uint i = 2 * h * (t / h) + t % h;
      float a = row[i], b = row[i + h];
      row[i] = a + b;
      row[i + h] = a - b;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint q = lane; q < ${power}; q += threads)
    for (uint i = 0; i < ${m}; i++) {
      float sum = 0.0f;
      for (uint j = 0; j < ${m}; j++) sum += float(matrix[i * ${m} + j]) * row[j * ${power} + q];
      y[base + i * ${power} + q] = ${type}(sum * scale);
    }
}
`

/** Hadamard transforms. */
export const hadamard: Families = {
  hadamardTransform: {
    supports: (node) =>
      metalType(node.dtype) !== undefined && node.shape[node.shape.length - 1] <= MOST && isCountable(node),
    encode: (node, queue) => {
      const [x] = node.inputs
      const { scale, transposed } = node.params as { scale: number; transposed: boolean }
      const n = node.shape[node.shape.length - 1]
      const rows = sizeOf(node.shape) / n
      if (rows === 0) return
      const { m, power } = hadamardFactor(n) as { m: number; power: number }
      const sign = hadamardMatrix(m)
      const matrix = Int8Array.from({ length: m * m }, (_, at) => {
        const [i, j] = [Math.floor(at / m), at % m]
        return transposed ? sign(j, i) : sign(i, j)
      })
      const type = metalType(node.dtype) as string
      const target = targetOf(node)
      const group = Math.min(GROUP, Math.max(32, Math.ceil(n / 64) * 32))
      withRowMajor(queue, viewOf(x), (location) =>
        queue.dispatch({
          op: "hadamardTransform",
          kernel: {
            key: `hadamard ${type} ${m} ${power}`,
            name: "hadamard",
            source: () => source(type, m, power),
          },
          arguments: [location, target, matrix, Float32Array.of(scale)],
          writes: [target.storage],
          grid: [rows * group, 1, 1],
          threadgroup: [group, 1, 1],
        }),
      )
    },
  },
}
