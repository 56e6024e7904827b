/** Products of chosen matrices and of segments: the kernels against the reference backend. */
import * as mx from "@lazuli/core"
import { setBackend } from "@lazuli/core/engine"
import { afterEach, describe, expect, test } from "vitest"
import "./index"

// A primitive without a kernel would run by its decomposition, and be counted.
afterEach(() => expect(mx.backendStats()).toEqual({}))

const numbers = (shape: number[], seed: number): mx.Array =>
  mx.random.uniform({ low: -1, high: 1, shape, key: mx.random.key(seed) })

function check(run: () => mx.Array, bound: number): void {
  const got = run()
  mx.eval(got)
  setBackend("reference", "cpu")
  const want = run()
  mx.eval(want)
  setBackend("cpu", "cpu")
  mx.resetBackendStats()
  expect([got.shape, got.dtype]).toEqual([want.shape, want.dtype])
  if (got.size === 0) return
  const [g, w] = [got.astype(mx.float64), want.astype(mx.float64)]
  const error = g.subtract(w).abs().max().item() as number
  expect(error).toBeLessThan(bound * (1 + (w.abs().max().item() as number)))
}

describe.each([
  [mx.float32, 1e-5],
  [mx.float64, 1e-13],
  [mx.float16, 2e-3],
  [mx.bfloat16, 1e-2],
] as const)("%s", (dtype, bound) => {
  const make = (shape: number[], seed: number): mx.Array => {
    const x = numbers(shape, seed).astype(dtype)
    mx.eval(x)
    return x
  }
  test("gatherMm", () => {
    const lhs = mx.array([3, 1, -1, 0, 2, 2], mx.int32)
    const rhs = mx.array([2, 2, 2, 0, 1, 1], mx.uint8)
    for (const m of [1, 3]) {
      const a = make([4, m, 70], 1)
      for (const b of [
        make([3, 70, 90], 2),
        make([3, 90, 70], 3).swapaxes(1, 2),
        make([3, 70, 180], 4).index("...", "::2"),
      ])
        check(() => mx.gatherMm(a, b, lhs, rhs), bound)
      check(() => mx.gatherMm(a.index("::-1"), make([70, 90], 5), lhs, mx.array([0], mx.int32)), bound)
    }
    const none = mx.zeros([0], mx.int32)
    check(
      () => mx.gatherMm(make([2, 2, 0], 1), make([2, 0, 3], 1), rhs.subtract(rhs), rhs.subtract(rhs)),
      bound,
    )
    check(() => mx.gatherMm(make([2, 2, 3], 1), make([2, 3, 3], 1), none, none), bound)
  })
  test("segmentedMm", () => {
    const segments = mx.array(
      [
        [
          [0, 30],
          [30, 70],
        ],
        [
          [5, 5],
          [60, 9],
        ],
        [
          [-4, 700],
          [69, 70],
        ],
      ],
      mx.int32,
    )
    const [a, b] = [make([20, 70], 1), make([70, 33], 2)]
    for (const s of [segments, segments.maximum(0).astype(mx.uint32), segments.swapaxes(0, 1)]) {
      check(() => mx.segmentedMm(a, b, s), bound)
      check(() => mx.segmentedMm(make([70, 20], 3).T, make([33, 70], 4).T, s), bound)
    }
  })
})

test("an index outside fails", () => {
  const run = (i: number): unknown =>
    mx
      .gatherMm(mx.ones([2, 1, 1]), mx.ones([2, 1, 1]), mx.array([i], mx.int32), mx.array([0], mx.int32))
      .tolist()
  expect(() => run(2)).toThrow("[gatherMm] index 2 is out of bounds for axis 0 with size 2")
  expect(() => run(-3)).toThrow("[gatherMm] index -3 is out of bounds for axis 0 with size 2")
})
