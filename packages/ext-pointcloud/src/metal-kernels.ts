/** The launches of the kernels in native/pointcloud.metal. What Metal has no dtype for runs by the primitives' semantics. */
import type { Dtype } from "@lazuli/core"
import {
  type Meta,
  type MetalDispatch,
  type MetalFileKernel,
  type MetalKernels,
  sizeOf,
} from "@lazuli/core/plugin"
import { type Metric, metrics } from "./distances"
import { metalLibrary, PACKAGE } from "./libraries"

const THREADS = 256
/** From this width on a simdgroup shares a product. */
const WIDE = 16
/** Rows whose counts a threadgroup adds up. */
const SCANNED = 8 * THREADS
/** Elements of a thread of vvor, where there are threads enough. */
const ELEMENTS = 8
const ENOUGH_THREADS = 2 ** 20
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

/** Lists as kernels read them: those of 32 bits as they are, others from scratch memory, which `dispatches` fill. */
function listsOf(inputs: Readonly<Record<string, Meta>>, sizes: readonly number[]) {
  const dispatches: MetalDispatch[] = []
  const scratch: Record<string, number> = {}
  const names = Object.entries(inputs).map(([name, list], i) => {
    if (list.dtype.size === 4) return name
    const to = `${name}32`
    scratch[to] = 4 * list.shape[0]
    dispatches.push(positions(name, list, to, sizes[i]))
    return to
  })
  return { names, scratch, dispatches }
}

/** Threads that a row of vvor has: one for each element or, where rows are many, for several. */
function threadsOf(rows: number, size: number): number {
  const each = Math.min(ELEMENTS, Math.max(1, Math.floor((rows * size) / ENOUGH_THREADS)))
  return size <= LANES ? Math.max(size, 1) : LANES * Math.ceil(size / each / LANES)
}

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
    // Counts of no rows would be read before anything was written.
    if (cells === 0) return { dispatches: [] }
    const threads = threadsOf(rows, groups * height * width)
    const blocks = Math.ceil(rows / SCANNED)
    const [lefts, rights] = [left.shape[0], right.shape[0]]
    const sizes = Uint32Array.of(count, rows, groups, height, width, threads, lefts, rights)
    const lists = listsOf({ leftList, rightList, rowList }, [lefts, rights, rows])
    const rowOf = lists.names[2]
    const product: MetalDispatch["buffers"] = ["left", "right", "starts", "pairs", "out", sizes]
    return {
      scratch: {
        ...lists.scratch,
        ...{ counts: 4 * rows, arrivals: 4 * count, sums: 4 * blocks, starts: 4 * (rows + 1) },
        ...{ list: 4 * count, sorted: 4 * count, pairs: 8 * count },
      },
      dispatches: [
        ...lists.dispatches,
        each("clear", ["counts"], rows),
        each("count", [...lists.names, "counts", "arrivals", sizes], count),
        each("blocks", ["counts", "sums", sizes], blocks * THREADS),
        each("starts", ["counts", "sums", "starts", sizes], blocks * THREADS),
        each("fill", [...lists.names, "starts", "arrivals", "list", sizes], count),
        each("parts", [rowOf, "starts", "list", "sorted", sizes], count),
        each("pairs", [rowOf, "starts", "sorted", ...lists.names.slice(0, 2), "pairs", sizes], count),
        kernel === "mvmr"
          ? each(`mvmr_${out.dtype.name}`, product, wide ? LANES * cells : cells, { WIDE: wide })
          : each(`vvor_${out.dtype.name}`, product, rows * threads),
      ],
    }
  },
})

const pairDistances: MetalFileKernel = {
  inputNames: ["x", "y", "left", "right"],
  outputNames: ["out"],
  launch: ({ inputs: [x, y, left, right], outputs: [out], params }) => {
    if (!isFloat(x.dtype) || out.shape[0] >= 2 ** 31) return null
    const sizes = [x.shape[0], y.shape[0]]
    const lists = listsOf({ left, right }, sizes)
    return {
      scratch: lists.scratch,
      dispatches: [
        ...lists.dispatches,
        each(
          `distances_${x.dtype.name}`,
          ["x", "y", ...lists.names, "out", Uint32Array.of(x.shape[1], ...sizes)],
          out.shape[0],
          { METRIC: metrics.indexOf(params.metric as Metric) },
        ),
      ],
    }
  },
}

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
    [`${PACKAGE}/pairDistances`]: pairDistances,
    [`${PACKAGE}/neighbours`]: neighbours,
    [`${PACKAGE}/farthestPoints`]: farthestPoints,
  },
}
