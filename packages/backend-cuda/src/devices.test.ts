/**
 * `mx.cuda` and `mx.metal` with the CUDA backend imported: devices that the driver shows, and the choice among them.
 */
import "../test/double"
import * as mx from "@lazuli/core"
import { afterEach, expect, it, vi } from "vitest"
import { failing } from "../test/double"
import "./index"

afterEach(() => vi.unstubAllEnvs())

it("devices are those that the driver shows", () => {
  expect(failing("two-devices", () => mx.cuda.deviceCount())).toBe(2)
  expect(mx.cuda.isAvailable()).toBe(true)
  expect(failing("no-device", () => [mx.cuda.isAvailable(), mx.cuda.deviceCount()])).toEqual([false, 0])
  const ofGpus = () => [mx.isAvailable(mx.gpu), mx.deviceCount("gpu")]
  expect(ofGpus()).toEqual([true, 1])
  expect(failing("no-device", ofGpus)).toEqual([false, 0])
  expect(mx.cuda.deviceInfo(0)).toMatchObject({
    deviceName: "test double",
    computeCapability: "999.0",
    driverVersion: "13.0",
    memorySize: 2 ** 31,
  })
  expect(() => mx.cuda.deviceInfo(3)).toThrow("[cuda.deviceInfo] there is no GPU 3: the driver shows 1")
  expect(() => mx.cuda.deviceInfo(0.5)).toThrow("the index must be a non-negative integer")
})
it("one is chosen before the first use", () => {
  mx.setBackend("cuda", "gpu")
  expect(() => mx.cuda.setDevice(1)).toThrow("[cuda.setDevice] there is no GPU 1: the driver shows 1")
  failing("two-devices", () => {
    mx.cuda.setDevice(1)
    expect(mx.cuda.deviceInfo()).toMatchObject({ deviceName: "test double", device: 1 })
    expect(() => mx.cuda.setDevice(0)).toThrow(/GPU 1 is already in use, and a process uses only one GPU/)
    mx.cuda.setDevice(1)
  })
})
it("Metal is not there, and its memory is the GPU's that is", () => {
  expect(mx.metal.isAvailable()).toBe(false)
  expect(mx.metal.deviceInfo()).toMatchObject({ deviceName: "test double" })
  expect(mx.metal.getActiveMemory()).toBe(0)
  expect(() => mx.metal.startCapture("x.gputrace")).toThrow(
    /the cuda backend does not support captures here\. Captures need Xcode's tools/,
  )
})
it("without a driver there is no device, and no error", () => {
  vi.stubEnv("LAZULI_CUDA_WITHOUT", "cuda")
  // The library stays open once it has been.
  expect(mx.cuda.deviceCount()).toBeGreaterThanOrEqual(0)
})
