/** Parts of buffers beside buffers of exact sizes, as checks of memory ask for them, on the test double. */
import * as mx from "@lazuli/core"
import type { GpuRuntime } from "@lazuli/gpu-kernels"
import { expect, it } from "vitest"
import "../test/double"
import { cudaRuntime } from "./index"

mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)

it("a buffer stays while parts of it are in use, whatever sizes are asked for later", () => {
  const given = mx.arange(512).add(1)
  const released = mx.arange(512).add(2)
  mx.eval(given, released)
  const { exactBuffers, dividesBuffers }: GpuRuntime = cudaRuntime
  Object.assign(cudaRuntime, { exactBuffers: true, dividesBuffers: false })
  mx.setCacheLimit(0)
  try {
    released.dispose()
    const others = Array.from({ length: 8 }, (_, i) => mx.full([512], -i))
    mx.eval(others)
    expect(given.tolist()).toEqual(Array.from({ length: 512 }, (_, i) => i + 1))
    for (const each of others) each.dispose()
    expect(given.add(1).index(511).item()).toBe(513)
  } finally {
    Object.assign(cudaRuntime, { exactBuffers, dividesBuffers })
  }
})
