/**
 * Applications that come again, on the test double: remembered dispatches give the same for other arrays, and nothing of them stays.
 */
import * as mx from "@lazuli/core"
import { beforeAll, describe, expect, it, vi } from "vitest"
import "../test/double"
import "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

const numbers = (shape: number[], from: number): mx.Array => {
  const size = shape.reduce((a, b) => a * b, 1)
  return mx
    .array(
      Float32Array.from({ length: size }, (_, i) => Math.sin(i + 7 * from)),
      mx.float32,
    )
    .reshape(shape)
}
const at = mx.array([3, 0, 5, 3, -1], mx.int32)

const cases: Record<string, (x: mx.Array, y: mx.Array) => mx.Array | mx.Array[]> = {
  sums: (x, y) => [x.sum(), x.sum(0), y.sum(1), x.transpose().sum(0), x.mean([0, 1])],
  "rows and columns of parts": (x) => [
    x.slice([1, 0], [0, 1], [4, 8]).sum(1),
    x.index(2).sum(),
    x.index(3).max(),
  ],
  rows: (x, y) => [mx.softmax(x, -1), mx.fast.layerNorm(y, x.index(0), null, 1e-5), mx.cumsum(x, 1)],
  "sorting, with memory in between": (x) => [mx.sort(x.reshape(-1)), mx.argsort(x, 0)],
  products: (x, y) => [
    mx.matmul(x, y.transpose()),
    mx.addmm(y.reshape(8, 6).index(0), x, y.reshape(8, 6)),
    mx.matmul(x, x.transpose()),
  ],
  gathers: (x, y) => [mx.take(x, at, 0), mx.takeAlongAxis(y, mx.argsort(x, 1), 1), x.index(at, 1)],
  scatters: (x, y) => [x.at(at).add(1), y.at(at).maximum(x.index(slice)), x.at([2]).add(y.index(2))],
}
const slice = mx.s(0, 5)

describe("operations", () => {
  it.each(Object.keys(cases))("that come again are the same for other arrays: %s", (name) => {
    for (let round = 0; round < 5; round++) {
      const run = (device: mx.Device): unknown[] =>
        mx.stream(device, () => {
          const made = cases[name](numbers([6, 8], round), numbers([6, 8], 100 + round))
          return [made].flat().map((each) => each.tolist())
        })
      const [got, expected] = [run(mx.gpu), run(mx.cpu)].map(
        (each) => (each as unknown[]).flat(3) as number[],
      )
      got.forEach((value, i) => {
        expect(value, `round ${round}, number ${i}`).toBeCloseTo(expected[i], 4)
      })
    }
  })
  it("tell parameters and sizes apart", () => {
    for (let round = 0; round < 4; round++)
      for (const n of [4, 5, 9]) {
        const x = mx.ones([n, n])
        expect(x.sum(0).tolist()).toEqual(Array(n).fill(n))
        expect(
          mx
            .cumsum(x, 1, { reverse: round % 2 === 0 })
            .index(0, 0)
            .item(),
        ).toBe(round % 2 === 0 ? n : 1)
      }
  })
  it("of a kernel that is to be shown show it each time", () => {
    const double = mx.fast.metalKernel({
      name: "twice",
      inputNames: ["x"],
      outputNames: ["y"],
      source: "y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];",
    })
    const log = vi.spyOn(console, "log").mockImplementation(() => {})
    try {
      for (let round = 0; round < 4; round++) {
        const call = {
          inputs: [mx.ones([32]).add(round)],
          grid: [32, 1, 1],
          threadgroup: [32, 1, 1],
        } as const
        const [y] = double({ ...call, outputShapes: [[32]], outputDtypes: [mx.float32], verbose: true })
        expect(y.index(31).item()).toBe(2 + 2 * round)
      }
      expect(log).toHaveBeenCalledTimes(4)
    } finally {
      log.mockRestore()
    }
  })
  it("give their memory back with the handle of the result, without a collection of garbage", () => {
    const x = numbers([512, 512], 0)
    mx.eval(x)
    const used = (f: () => mx.Array): number => {
      const before = mx.getActiveMemory()
      for (let i = 0; i < 3; i++) {
        const y = f()
        mx.eval(y)
        y.dispose()
      }
      return mx.getActiveMemory() - before
    }
    const large = x.nbytes
    for (const f of [
      () => mx.take(x, mx.arange(512), 0),
      () => x.index(mx.arange(512)),
      () => x.at(mx.arange(512)).add(x),
    ])
      expect(used(f)).toBeLessThan(large)
  })
})
