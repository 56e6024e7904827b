/** Work that is begun before anybody asks for it, on the test double. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, it, vi } from "vitest"
import "../test/double"
import { cudaRuntime } from "./index"

mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)

it("what holds much memory is begun, and the host goes on beside it", () => {
  const step = compile((x: mx.Array) => [x.add(1), x.index(mx.s(0, 4)).multiply(2)], { donate: [0] })
  // More than may be pending.
  let state = mx.zeros([20 * 2 ** 20]).add(1)
  mx.eval(state)
  const commits = vi.spyOn(cudaRuntime, "commit")
  const waits = vi.spyOn(cudaRuntime, "wait")
  let seen = mx.zeros([4])
  for (let i = 0; i < 4; i++) {
    const [next, part] = step(state)
    state = next
    seen = part.add(seen)
  }
  expect(commits.mock.calls.length).toBeGreaterThan(0)
  expect(waits).not.toHaveBeenCalled()
  expect([seen.tolist(), state.index(-1).item()]).toEqual([[20, 20, 20, 20], 5])
}, 60_000)
