/** The umbrella where the CPU backend's addon does not load. */
import type * as core from "@lazuli/core"
import { afterAll, expect, test, vi } from "vitest"

const before = process.env.LAZULI_CPU_ADDON
process.env.LAZULI_CPU_ADDON = "/nowhere/lazuli_cpu.node"
const warnings = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
afterAll(() => {
  warnings.mockRestore()
  if (before === undefined) delete process.env.LAZULI_CPU_ADDON
  else process.env.LAZULI_CPU_ADDON = before
})

test("it runs on the reference, and says so once", async () => {
  const { mx } = await import("./index")
  await import("@lazuli/backend-cpu/optional")
  expect(mx.matmul(mx.ones([2, 3]), mx.ones([3, 2])).tolist()).toEqual([
    [3, 3],
    [3, 3],
  ])
  expect(
    mx
      .grad((x: core.Array) => x.square().sum())(mx.array([3]))
      .tolist(),
  ).toEqual([6])
  expect(warnings).toHaveBeenCalledTimes(1)
  const [said] = warnings.mock.calls[0]
  expect(said).toContain(`no native addon for ${process.platform}-${process.arch} could be loaded`)
  expect(said).toContain("Everything runs on the reference backend until then, which is slow.")
})

test("asked for by name, the backend throws", async () => {
  await expect(import("@lazuli/backend-cpu")).rejects.toThrow("no native addon for")
})
