/** Devices and what is known of them, without a GPU: what is there, and what the rest says. */
import { expect, test } from "vitest"
import * as mx from "../index"

test("what there is", () => {
  expect([mx.isAvailable(mx.cpu), mx.isAvailable("gpu"), mx.metal.isAvailable()]).toEqual([
    true,
    false,
    false,
  ])
  expect([mx.deviceCount(mx.cpu), mx.deviceCount("gpu")]).toEqual([1, 0])
  expect(mx.deviceInfo("cpu")).toEqual({ deviceName: "reference", architecture: "unknown" })
  expect(mx.deviceInfo()).toEqual(mx.deviceInfo(mx.cpu))
})

test("what there is not", () => {
  expect(() => mx.deviceInfo(mx.gpu)).toThrowErrorMatchingInlineSnapshot(
    `[DeviceError: [device] no backend serves Device(gpu, 0). Import a package that does, such as "@lazuli/backend-cuda" or "@lazuli/backend-metal"]`,
  )
  expect(() => mx.isAvailable("tpu" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [isAvailable] expected a device (mx.cpu or mx.gpu), received the string "tpu"]`,
  )
  expect(() => mx.metal.getActiveMemory()).toThrow("no backend serves")
  expect(() => mx.metal.startCapture("x.gputrace")).toThrow("no backend serves")
  expect(() => mx.fast.metalKernel("twice", ["x"], ["y"], "")).toThrowErrorMatchingInlineSnapshot(
    `[DeviceError: [metalKernel] there is no Metal backend to compile a kernel. import "@lazuli/backend-metal"]`,
  )
  expect(() => mx.fast.metalKernel({ names: "twice" } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [metalKernel] has no parameter "names"; it takes name, inputNames, outputNames, source, header, ensureRowContiguous, atomicOutputs, compileOptions, reference, stream. Did you mean "name"?]`,
  )
})
