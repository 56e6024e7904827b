/** The choice of the default device, with stand-ins for the system and the Metal backend: no Mac is at hand. */
import { cpu, defaultDevice, setDefaultDevice } from "@lazuli/core"
import { afterEach, expect, it, vi } from "vitest"
import { preferMacGpu, type System } from "./mac"
import "@lazuli/backend-metal"

const MAC: System = { platform: "darwin", arch: "arm64" }
afterEach(() => {
  setDefaultDevice(cpu)
  vi.unstubAllEnvs()
})

/** The default device afterwards, and how often Metal was loaded. */
function chosen(system: System, hasGpu = true): [string, number] {
  let loads = 0
  preferMacGpu(system, () => {
    loads++
    return { hasMetalGpu: () => hasGpu }
  })
  return [defaultDevice().type, loads]
}

it("is the GPU on a Mac with Apple silicon that has one", () => {
  expect(chosen(MAC)).toEqual(["gpu", 1])
})
it("is the CPU where the GPU cannot be used, or the user says so", () => {
  expect(chosen(MAC, false)).toEqual(["cpu", 1])
  vi.stubEnv("LAZULI_DEVICE", "cpu")
  expect(chosen(MAC)).toEqual(["cpu", 1])
})
it("is the GPU where the user's word is not known, which a warning tells", () => {
  const warnings = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
  vi.stubEnv("LAZULI_DEVICE", "CPU")
  expect(chosen(MAC)).toEqual(["gpu", 1])
  expect(warnings.mock.calls.map(([text]) => text)).toEqual([
    'LAZULI_DEVICE must be one of cpu, gpu, received "CPU": it is ignored',
  ])
  warnings.mockRestore()
})
it("is the CPU elsewhere, and nothing is loaded", () => {
  expect(chosen({ ...MAC, arch: "x64" })).toEqual(["cpu", 0])
  expect(chosen({ ...MAC, platform: "linux" })).toEqual(["cpu", 0])
})
it("is the CPU without the package", () => {
  const missing = (): never => {
    throw new Error("Cannot find module '@lazuli/backend-metal'")
  }
  expect(preferMacGpu(MAC, missing)).toBe(false)
  expect(defaultDevice().type).toBe("cpu")
})
