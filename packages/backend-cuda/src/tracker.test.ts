/** Loops that never yield, with no other backend's weak references: their memory comes back all the same. */
import * as mx from "@lazuli/core"
import { expect, test, vi } from "vitest"
import "../test/double"
import { cudaRuntime } from "./index"

test("a loop of large arrays stays flat without a pause", () => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  let x = mx.zeros([1 << 20])
  // 1.6 GB in arrays of 4 MB.
  for (let i = 0; i < 400; i++) {
    x = x.add(1)
    mx.eval(x)
  }
  expect(x.index(5).item()).toBe(400)
  expect(mx.getPeakMemory()).toBeLessThan(600 * 2 ** 20)
}, 60_000)

test("small arrays share buffers of the driver", () => {
  const all = Array.from({ length: 1000 }, (_, i) => mx.ones([4]).add(i))
  mx.eval(all)
  all.forEach((each, i) => {
    expect(each.index(3).item()).toBe(i + 1)
  })
})

test("large arrays that are given back by hand ask for no collection of garbage, and others do", () => {
  const collect = vi.spyOn(cudaRuntime.tracker as { collect(full: boolean): void }, "collect")
  const x = mx.zeros([1 << 21])
  mx.eval(x)
  const loop = (after: (y: mx.Array) => void): number => {
    collect.mockClear()
    for (let i = 0; i < 70; i++) {
      const y = x.add(1)
      mx.eval(y)
      after(y)
    }
    return collect.mock.calls.length
  }
  // Polls from time to time, where they take little of it, are another matter.
  vi.spyOn(performance, "now").mockReturnValue(1e6)
  loop(() => {})
  mx.memoryReport() // collects what that loop left
  const [freed, kept] = [loop((y) => y.dispose()), loop(() => {})]
  expect([freed, kept > 0]).toEqual([0, true])
  vi.restoreAllMocks()
}, 60_000)
