/** Runs the source that it is given as a kernel of 8 threads on the test double, on arrays of 8 that lie in memory of their own. */
import "./double"
import * as mx from "@lazuli/core"
import { cudaRuntime } from "../src/index"

Object.assign(cudaRuntime, { exactBuffers: true, dividesBuffers: false })
mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)
const kernel = mx.fast.metalKernel({
  name: "beyond",
  inputNames: ["x"],
  outputNames: ["y"],
  source: process.argv[2],
})
const [y] = kernel({
  inputs: [mx.ones([8])],
  grid: [8, 1, 1],
  threadgroup: [8, 1, 1],
  outputShapes: [[8]],
  outputDtypes: [mx.float32],
})
console.log(JSON.stringify(y.tolist()))
