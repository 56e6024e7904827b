/** The least that a launch takes on this machine: many of an empty kernel, in one native call. */
import { cudaRuntime as runtime } from "@lazuli/backend-cuda"
import { CommandStream } from "@lazuli/gpu-kernels"
import { median } from "./median"

const SOURCE = `#include <metal_stdlib>
using namespace metal;
kernel void empty(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i == 4294967295u) x[0] = 0.0f;
}
`
const LAUNCHES = 1000

/** µs for one launch, with the wait for all of them. */
export function launchFloor(): number {
  const x = runtime.newBuffer(256)
  const library = runtime.newLibrary(SOURCE, { file: "empty.metal" })
  const form = { inline: [undefined], threads: 32, whole: true }
  const pipeline = runtime.newPipeline(library, "empty", {}, form)
  const stream = new CommandStream()
  stream.setPipeline(pipeline)
  stream.setBuffer(0, x)
  for (let i = 0; i < LAUNCHES; i++) stream.dispatchThreads([32, 1, 1], [32, 1, 1])
  const taken: number[] = []
  for (let round = 0; round < 20; round++) {
    const begin = performance.now()
    runtime.wait(runtime.commit(stream))
    taken.push(performance.now() - begin)
  }
  runtime.releaseBuffer(x)
  return (1000 * median(taken)) / LAUNCHES
}
