/**
 * A context that a kernel has destroyed: everything that was under way has no value, and nothing works from then on.
 */

import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { failing } from "../test/double"
import "./index"

it("a lost context fails what was under way, and says so ever after", () => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  const x = mx.ones([2])
  mx.eval(x)
  const [a, b] = [x.add(1), x.multiply(3)]
  expect(() => failing("lost", () => mx.eval([a, b]))).toThrow(
    /the GPU's context was lost: the work failed: CUDA_ERROR_ILLEGAL_ADDRESS/,
  )
  expect(() => b.tolist()).toThrow(/the GPU's context was lost/)
  expect(() => x.add(1).tolist()).toThrow(
    /the GPU's context was lost: the work failed: CUDA_ERROR_ILLEGAL_ADDRESS/,
  )
  expect(mx.stream(mx.cpu, () => mx.add(1, 2)).item()).toBe(3)
}, 60_000)
