/**
 * The runtime on Metal.framework, on the fake Metal of native/fake: memory, kernels, order and failures, as its own code meets them on a
 * Mac.
 */
import { CommandStream } from "@lazuli/gpu-kernels"
import { afterAll, expect, it } from "vitest"
import { AppleOnFake } from "../test/fake-metal"

const runtime = new AppleOnFake()
afterAll(() => runtime.close())
const AT = "uint i [[thread_position_in_grid]]"
const f32 = (...values: number[]): Float32Array => Float32Array.from(values)

it("runs a kernel", () => {
  const library = runtime.newLibrary(
    `#include <metal_stdlib>\nkernel void twice(device const float* x, device float* y, ${AT}) { y[i] = 2 * x[i]; }`,
  )
  expect(library.kernels).toEqual(["twice"])
  const pipeline = runtime.newPipeline(library, "twice")
  expect(pipeline).toMatchObject({ name: "twice", maxThreads: 1024 })
  const [x, y] = [runtime.newBuffer(12), runtime.newBuffer(12)]
  runtime.write(x, 0, f32(1, 2, 3))
  const stream = new CommandStream()
  stream.setPipeline(pipeline)
  stream.setBuffer(0, x)
  stream.setBuffer(1, y)
  stream.dispatchThreads([3, 1, 1], [32, 1, 1])
  const submission = runtime.commit(stream)
  const out = new Float32Array(3)
  expect(runtime.wait(submission)).toEqual([])
  runtime.read(y, 0, out)
  expect([...out]).toEqual([2, 4, 6])
  runtime.releaseBuffer(x)
  runtime.releaseBuffer(y)
})
