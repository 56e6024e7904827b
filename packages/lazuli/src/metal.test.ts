/** `mx.metal`, `mx.fast.metalKernel` and the facts about devices, with both backends there. */
import { metalBackend } from "@lazuli/backend-metal"
import { mx } from "lazuli"
import { expect, test } from "vitest"

test("devices tell what they are", () => {
  expect([mx.isAvailable(mx.gpu), mx.metal.isAvailable(), mx.deviceCount("gpu")]).toEqual([true, true, 1])
  expect(mx.deviceInfo("cpu")).toMatchObject({ memorySize: expect.any(Number), threads: expect.any(Number) })
  expect(mx.metal.deviceInfo()).toMatchObject({
    deviceName: expect.any(String),
    maxBufferLength: expect.any(Number),
    maxRecommendedWorkingSetSize: expect.any(Number),
  })
})

test("mx.metal sees the memory of the GPU", () => {
  const x = mx.full([1000], 1, { stream: mx.gpu })
  mx.eval(x)
  mx.metal.resetPeakMemory()
  expect(mx.metal.getActiveMemory()).toBeGreaterThanOrEqual(4000)
  expect(mx.metal.getPeakMemory()).toBe(mx.metal.getActiveMemory())
  const before = mx.metal.setCacheLimit(1 << 20)
  expect(mx.metal.setCacheLimit(before)).toBe(1 << 20)
  const limit = mx.metal.setMemoryLimit(1 << 30)
  expect(mx.metal.setMemoryLimit(limit)).toBe(1 << 30)
  mx.metal.clearCache()
  expect(mx.metal.getCacheMemory()).toBe(0)
  expect(mx.metal.setWiredLimit(0)).toBe(0)
  expect(() => mx.metal.startCapture("x.gputrace")).toThrowErrorMatchingInlineSnapshot(
    `[DeviceError: [metal.startCapture] the metal backend does not support captures here. Captures need Xcode's tools on Apple hardware]`,
  )
  expect(() => mx.metal.stopCapture()).toThrow("[metal.stopCapture]")
})

test("metalKernel takes its arguments in MLX's order, or by name", () => {
  const source = "uint i = thread_position_in_grid.x; y[i] = x[i] + header_value;"
  const header = "constant float header_value = 2;"
  const call = {
    inputs: [mx.array([1, 2])],
    grid: [2],
    threadgroup: [2],
    outputShapes: [[2]],
    outputDtypes: [mx.float32],
  }
  const kernels = [
    mx.fast.metalKernel("plus2", ["x"], ["y"], source, header),
    mx.fast.metalKernel("plus2", ["x"], ["y"], source, { header, ensureRowContiguous: false }),
    mx.fast.metalKernel({ name: "plus2", inputNames: ["x"], outputNames: ["y"], source, header }),
  ]
  for (const kernel of kernels) expect(kernel(call)[0].tolist()).toEqual([3, 4])
})

test("a compiled function runs on the device of its call, whichever it was traced on", () => {
  const f = mx.compile((x: mx.Array) => x.multiply(x).add(1).sum(-1))
  const x = mx.ones([2, 3])
  const want = f(x).tolist()
  mx.eval(x)
  mx.setDefaultDevice(mx.gpu)
  try {
    const before = metalBackend.memory.stats?.().buffers as number
    const result = f(x)
    mx.eval(result)
    expect(metalBackend.memory.stats?.().buffers).toBeGreaterThan(before)
    expect(result.tolist()).toEqual(want)
  } finally {
    mx.setDefaultDevice(mx.cpu)
  }
  expect([f(x).tolist(), f.stats().traces]).toEqual([want, 1])
})
