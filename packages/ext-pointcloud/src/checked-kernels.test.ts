/**
 * Every Metal kernel in the checked mode, which reports races, overruns, missing barriers and memory that nobody wrote, by the line: none
 * reports anything, for few and for many rows, in each dtype.
 */
import { metalBackend } from "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import type { MetalFileKernel } from "@lazuli/core/plugin"
import { beforeAll, describe, expect, test, vi } from "vitest"
import { ballQuery, farthestPointSampling, indexedDistance, knn, mvmr, vvor } from "./index"
import { metalKernels } from "./metal-kernels"

vi.hoisted(() => {
  process.env.LAZULI_METAL_CHECK = "1"
})

const wave = (shape: number[], dtype: mx.Dtype): mx.Array =>
  mx
    .sin(mx.arange(shape.reduce((n, m) => n * m, 1)).multiply(1.7))
    .reshape(shape)
    .astype(dtype)
const at = (n: number, most: number, dtype: mx.Dtype = mx.int32): mx.Array =>
  mx
    .array(
      Array.from({ length: n }, (_, i) => (i * i * 7 + i) % most),
      mx.int32,
    )
    .astype(dtype)

describe.runIf(process.platform === "linux").each([mx.float32, mx.float16, mx.bfloat16])(
  "in $name",
  (dtype) => {
    beforeAll(() => mx.setDefaultDevice(mx.gpu))

    /** Products of n pairs at fewer rows, narrow and wide; distances; searches among n points, in clouds of which one is empty. */
    const programs = (n: number): mx.Array[] => {
      const rows = Math.ceil(n / 3)
      const clouds = { offsets: [0, n >> 1, n >> 1, n], queryOffsets: [0, 2, 3, 5] }
      const [points, queries] = [wave([n, 3], dtype), wave([5, 3], dtype)]
      return [
        // All at one row: more than are ordered at a time.
        mvmr(wave([n, 1, 1, 2], dtype), wave([4, 1, 2], dtype), at(n, 4), at(n, 1), { numRows: 1 }),
        ...[3, 17].map((width) =>
          mvmr(wave([n, 2, 3, width], dtype), wave([4, 2, width], dtype), at(n, 4), at(n, rows), {
            numRows: rows,
          }),
        ),
        vvor(wave([5, 2, 3], dtype), wave([4, 2, 5], dtype), at(n, 5), at(n, 4), at(n, rows), {
          numRows: rows + 1,
        }),
        ...(["euclidean", "squared", "cosine"] as const).map((metric) =>
          indexedDistance(points, queries, at(n, n), at(n, 5), { metric }),
        ),
        knn(points, queries, 4, clouds),
        knn(points, queries, 40),
        ballQuery(points, queries, 0.5, 3, clouds),
        farthestPointSampling(points, 7, { offsets: clouds.offsets }),
      ]
    }

    test.each([1, 7, 70, 1100])(
      "%i pairs and points run silently",
      async (n) => {
        const run = (): void => mx.eval(...programs(n))
        await metalBackend.rehearse(run)
        mx.resetBackendStats()
        run()
        expect(mx.backendStats()).toEqual({})
      },
      120_000,
    )

    // GPUs leave out what they cannot refuse: without touching other memory.
    test("positions and offsets that do not fit, and those of every integer dtype", () => {
      let first: unknown[] | undefined
      const [points, pairs] = [wave([6, 3], dtype), wave([6, 1, 2, 2], dtype)]
      for (const integer of [
        mx.uint8,
        mx.int8,
        mx.uint16,
        mx.int16,
        mx.uint32,
        mx.int32,
        mx.uint64,
        mx.int64,
      ]) {
        const wrong = mx.array([0, 5, 100, 3, 2, 6], mx.int32).astype(integer)
        const offsets = mx.array([3, 1, 100], mx.int32).astype(integer)
        const results = [
          mvmr(pairs, wave([6, 1, 2], dtype), wrong, wrong, { numRows: 4 }),
          indexedDistance(points, points, wrong, wrong),
          knn(points, points, 2, { offsets, queryOffsets: offsets }),
          farthestPointSampling(points, 3, { offsets }),
        ]
        mx.resetBackendStats()
        mx.eval(...results)
        expect(mx.backendStats()).toEqual({})
        // Row 0 has its one product, row 1 none; a pair with a position out of bounds has no distance.
        expect(results[0].abs().sum([1, 2]).greater(0).tolist()).toEqual([true, false, true, true])
        expect(mx.isnan(results[1]).tolist()).toEqual([false, false, true, false, false, true])
        const values = results.map((x) => x.tolist() as unknown)
        first ??= values
        expect(values).toEqual(first)
      }
    }, 120_000)

    test("products without rows, groups or elements, of lists on the device", () => {
      const list = at(5, 4)
      const run = (groups: number, height: number, width: number, numRows: number): number[][] => {
        const [left, right] = [wave([5, groups, height], dtype), wave([4, groups, width], dtype)]
        const matrices = wave([5, groups, height, width], dtype)
        const outs = [
          mvmr(matrices, right, list, list, { numRows }),
          vvor(left, right, list, list, list, { numRows }),
        ]
        mx.eval(...outs)
        return outs.map((out) => out.shape)
      }
      expect([run(2, 3, 4, 0), run(0, 3, 4, 4), run(2, 0, 4, 4)]).toEqual([
        [
          [0, 2, 3],
          [0, 2, 3, 4],
        ],
        [
          [4, 0, 3],
          [4, 0, 3, 4],
        ],
        [
          [4, 2, 0],
          [4, 2, 0, 4],
        ],
      ])
    }, 120_000)
  },
)

// Without rows nobody writes where each row's products begin, by which the next kernels would look them up.
test("nothing is launched for a result without elements", () => {
  const kernels = metalKernels.kernels as Readonly<Record<string, MetalFileKernel>>
  const meta = (shape: number[], dtype: mx.Dtype = mx.float32) => ({ shape, dtype })
  const dispatches = (name: "mvmr" | "vvor", [rows, groups, height, width]: number[]) => {
    const left = meta(name === "mvmr" ? [5, groups, height, width] : [5, groups, height])
    const out = meta(name === "mvmr" ? [rows, groups, height] : [rows, groups, height, width])
    const lists = [0, 1, 2].map(() => meta([5], mx.int32))
    const inputs = [left, meta([4, groups, width]), ...lists]
    return kernels[`@lazuli/ext-pointcloud/${name}`].launch({
      inputs,
      outputs: [out],
      params: { rows },
    } as never)?.dispatches.length
  }
  for (const name of ["mvmr", "vvor"] as const) {
    expect(dispatches(name, [0, 2, 3, 4])).toBe(0)
    expect(dispatches(name, [4, 0, 3, 4])).toBe(0)
    expect(dispatches(name, [4, 2, 3, 4])).toBeGreaterThan(0)
  }
})
