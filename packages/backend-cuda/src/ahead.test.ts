/** Work that is begun before anybody asks for it, on the test double. */
import * as mx from "@lazuli/core"
import { expect, it, vi } from "vitest"
import "../test/double"
import { cudaRuntime } from "./index"

mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)

it("what holds much memory is begun, and the host goes on beside it", () => {
  const states = [1, 2, 3, 4, 5, 6].map((i) => mx.zeros([10, 2 ** 21]).add(i))
  mx.eval(states)
  const commits = vi.spyOn(cudaRuntime, "commit")
  const waits = vi.spyOn(cudaRuntime, "wait")
  let seen = mx.zeros([2 ** 21])
  for (const state of states) {
    seen = state.sum(0).add(seen)
    // From here on its 80 MB, more than may be pending, are there for the sum alone.
    state.dispose()
  }
  expect(commits.mock.calls.length).toBeGreaterThan(0)
  expect(waits).not.toHaveBeenCalled()
  expect([seen.index(0).item(), seen.index(-1).item()]).toEqual([210, 210])
}, 60_000)
