/** The launches of the kernels in native/pointcloud.metal. What Metal has no dtype for runs by the primitives' semantics. */
import type { Dtype } from "@lazuli/core"
import {
  type Meta,
  type MetalDispatch,
  type MetalFileKernel,
  type MetalKernels,
  sizeOf,
} from "@lazuli/core/plugin"
import { metalLibrary, PACKAGE } from "./libraries"

const THREADS = 256
/** From this width on a simdgroup shares a product. */
const WIDE = 16
/** Threads of the one threadgroup that adds up counts. */
const SCANNING = 1024
/** Threads of a simdgroup. */
const LANES = 32

const isFloat = (dtype: Dtype): boolean => dtype.kind === "floating"

/** One thread for each of `threads`. */
const each = (
  kernel: string,
  buffers: MetalDispatch["buffers"],
  threads: number,
  constants: MetalDispatch["constants"] = {},
): MetalDispatch => ({ kernel, buffers, constants, grid: [threads], threadgroup: [THREADS] })

/** Positions, or offsets, in 32 bits; those of `size` and more, and negative ones, are nowhere. */
const positions = (name: string, list: Meta, to: string, size: number): MetalDispatch =>
  each(`positions_${list.dtype.name}`, [name, to, Uint32Array.of(size)], list.shape[0])

/** Products of pairs, summed at the rows of the result. */
const products = (kernel: "mvmr" | "vvor"): MetalFileKernel => ({
  inputNames: ["left", "right", "leftList", "rightList", "rowList"],
  outputNames: ["out"],
  launch: ({ inputs: [left, right, leftList, rightList, rowList], outputs: [out] }) => {
    const [rows, groups, height] = out.shape
    const width = right.shape[2]
    const count = rowList.shape[0]
    const cells = sizeOf(out.shape)
    const wide = kernel === "mvmr" && width >= WIDE
    if (!isFloat(out.dtype) || LANES * Math.max(cells, rows) >= 2 ** 32 || count >= 2 ** 31) return null
    const sizes = Uint32Array.of(count, rows, groups, height, width)
    return {
      scratch: {
        ...{ lefts: 4 * count, rights: 4 * count, rowOf: 4 * count },
        ...{ counts: 4 * rows, starts: 4 * (rows + 1), next: 4 * rows },
        ...{ unsorted: 4 * count, order: 4 * count },
      },
      dispatches: [
        positions("leftList", leftList, "lefts", left.shape[0]),
        positions("rightList", rightList, "rights", right.shape[0]),
        positions("rowList", rowList, "rowOf", rows),
        each("clear", ["counts"], rows),
        each("count", ["lefts", "rights", "rowOf", "counts"], count),
        {
          ...each("starts", ["counts", "starts", "next", sizes], SCANNING),
          threadgroup: [SCANNING],
        },
        each("fill", ["lefts", "rights", "rowOf", "next", "unsorted"], count),
        each("sort", ["starts", "unsorted", "order"], LANES * rows),
        each(
          `${kernel}_${out.dtype.name}`,
          ["left", "right", "lefts", "rights", "starts", "order", "out", sizes],
          wide ? 32 * cells : cells,
          kernel === "mvmr" ? { WIDE: wide } : {},
        ),
      ],
    }
  },
})

/** The kernels' `Search`: sizes, and a squared radius as two floats. */
function searchOf(
  points: number,
  queries: number,
  width: number,
  clouds: number,
  k: number,
  square: number,
): Uint8Array {
  const bytes = new Uint8Array(28)
  new Uint32Array(bytes.buffer, 0, 5).set([points, queries, width, clouds, k])
  const first = Math.fround(square)
  new Float32Array(bytes.buffer, 20, 2).set([first, Number.isFinite(first) ? square - first : 0])
  return bytes
}

const neighbours: MetalFileKernel = {
  inputNames: ["points", "queries", "offsets", "queryOffsets"],
  outputNames: ["out"],
  launch: ({ inputs: [points, queries, offsets, queryOffsets], params }) => {
    const [count, width] = points.shape
    const [asked] = queries.shape
    const { k, radius, order } = params as { k: number; radius: number; order: string }
    if (!isFloat(points.dtype) || asked * k >= 2 ** 31 || count >= 2 ** 31) return null
    const clouds = offsets.shape[0] - 1
    const sizes = searchOf(count, asked, width, clouds, k, radius * radius)
    const starts = { starts: 4 * (clouds + 1), queryStarts: 4 * (clouds + 1) }
    if (order === "nearest" && k > 0 && k <= LANES && asked < 2 ** 27)
      return {
        scratch: starts,
        dispatches: [
          positions("offsets", offsets, "starts", count + 1),
          positions("queryOffsets", queryOffsets, "queryStarts", asked + 1),
          each(
            `nearest_${points.dtype.name}`,
            ["points", "queries", "starts", "queryStarts", "out", sizes],
            LANES * asked,
          ),
        ],
      }
    return {
      scratch: {
        ...starts,
        best: order === "nearest" ? 8 * asked * k : 8,
      },
      dispatches: [
        positions("offsets", offsets, "starts", count + 1),
        positions("queryOffsets", queryOffsets, "queryStarts", asked + 1),
        each(
          `neighbours_${points.dtype.name}`,
          ["points", "queries", "starts", "queryStarts", "best", "out", sizes],
          k === 0 ? 0 : asked,
          { NEAREST: order === "nearest" },
        ),
      ],
    }
  },
}

const farthestPoints: MetalFileKernel = {
  inputNames: ["points", "offsets"],
  outputNames: ["out"],
  launch: ({ inputs: [points, offsets], outputs: [out] }) => {
    const [count, width] = points.shape
    const [clouds, k] = out.shape
    if (!isFloat(points.dtype) || clouds * Math.max(THREADS, k) >= 2 ** 31 || count >= 2 ** 31) return null
    return {
      scratch: { starts: 4 * (clouds + 1), far: 8 * count },
      dispatches: [
        positions("offsets", offsets, "starts", count + 1),
        each(
          `farthest_${points.dtype.name}`,
          ["points", "starts", "far", "out", searchOf(count, 0, width, clouds, k, 0)],
          k === 0 ? 0 : clouds * THREADS,
        ),
      ],
    }
  },
}

/** The offer for backends that run Metal. */
export const metalKernels: MetalKernels = {
  form: "metal",
  package: PACKAGE,
  library: metalLibrary,
  kernels: {
    [`${PACKAGE}/mvmr`]: products("mvmr"),
    [`${PACKAGE}/vvor`]: products("vvor"),
    [`${PACKAGE}/neighbours`]: neighbours,
    [`${PACKAGE}/farthestPoints`]: farthestPoints,
  },
}
