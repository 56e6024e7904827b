// With every access of a Metal kernel checked: a plugin runs, and a kernel that writes behind its output is refused.
import assert from "node:assert/strict"

process.env.LAZULI_METAL_CHECK = "1"
await import("./use.mjs")
const { mx } = await import("lazuli")
const beyond = mx.fast.metalKernel({
  name: "beyond",
  inputNames: ["x"],
  outputNames: ["y"],
  source: "uint i = thread_position_in_grid.x; y[i + 1] = x[i];",
})
const [y] = beyond({
  inputs: [mx.ones([4])],
  grid: [4],
  threadgroup: [4],
  outputShapes: [[4]],
  outputDtypes: [mx.float32],
})
assert.throws(() => y.tolist(), /beyond/)
