/**
 * Kernels with simdgroup matrices on the test double, where lanes are numbered as tensor cores want them: products and attention agree
 * with the reference.
 */
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import "../test/double"
import "./index"
import { wave } from "../test/waves"

beforeAll(() => mx.setBackend("cuda", "gpu"))

/** A fixed array of these sizes, by the dtype's rounding. */

/** Runs `f` on the GPU and by the reference, and compares. */
function agree(f: () => mx.Array, tolerance: number): void {
  const got = mx.stream(mx.gpu, () => f().astype(mx.float32).toTypedArray()) as Float32Array
  mx.setBackend("reference", "cpu")
  const want = mx.stream(mx.cpu, () => f().astype(mx.float32).toTypedArray()) as Float32Array
  expect(got.length).toBe(want.length)
  let worst = 0
  for (let i = 0; i < got.length; i++) worst = Math.max(worst, Math.abs(got[i] - want[i]))
  expect(worst).toBeLessThan(tolerance)
}

it.each([
  [mx.float32, 1e-4],
  [mx.float16, 2e-2],
  [mx.bfloat16, 0.2],
] as const)(
  "products of %o",
  (dtype, tolerance) => {
    agree(() => mx.matmul(wave([70, 50], dtype, 0), wave([50, 90], dtype, 1)), tolerance)
    agree(() => mx.matmul(wave([2, 33, 40], dtype, 0), wave([2, 65, 40], dtype, 1).swapaxes(1, 2)), tolerance)
  },
  120_000,
)

it("attention", () => {
  const [q, k, v] = [0, 1, 2].map((phase) => () => wave([1, 2, 40, 32], mx.float16, phase))
  agree(() => mx.fast.scaledDotProductAttention(q(), k(), v(), { scale: 0.2 }), 1e-2)
}, 120_000)
