/**
 * Ranks add up arrays until rank 1 does what the first argument says, in the step that the second says. The others print what they were
 * told.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { leave } from "@lazuli/distributed"
import * as nn from "@lazuli/nn"
import { grad, jvp } from "@lazuli/transforms"

const [, , fault, steps = "5", total = "1000", elements = "1000"] = process.argv
const began = performance.now()
let at = began
try {
  const group = mx.distributed.init(true)
  const culprit = group.rank() === 1
  for (let step = 0; step < Number(total); step++) {
    const due = step === Number(steps)
    if (due) at = performance.now()
    if (due && culprit) {
      if (fault === "kill") process.kill(process.pid, "SIGKILL")
      if (fault === "stop" || fault === "busy") process.kill(process.pid, "SIGSTOP")
      if (fault === "exit") process.exit(0)
      if (fault === "slow") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20_000)
    }
    // They come to the sum late, and need not wait as long again.
    if (due && fault === "busy") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 900)
    const odd = due && culprit
    const shape = odd && fault === "shape" ? [2, 500] : odd && fault === "count" ? [900] : [Number(elements)]
    const dtype = odd && fault === "dtype" ? mx.int32 : mx.float32
    const x = mx
      .arange(1, 1 + shape.reduce((a, b) => a * b))
      .astype(dtype)
      .reshape(shape)
    if (due && fault === "root") mx.eval(mx.distributed.broadcast(x, { root: group.rank() }))
    // Trees of the same number of elements, and of the same names.
    if (due && fault === "names") mx.eval(nn.averageGradients({ [odd ? "v" : "w"]: x }))
    if (due && fault === "types") mx.eval(nn.averageGradients({ v: odd ? x.astype(mx.int32) : x }))
    if (due && fault === "leaves") mx.eval(nn.averageGradients(odd ? [x, x.add(1)] : [x]))
    // Derivatives that exchange something on the ranks where the array depends on the input.
    const own = (a: mx.Array): mx.Array => (odd ? mx.ones(a.shape) : a)
    if (due && fault === "tangents") mx.eval(jvp((a: mx.Array) => mx.distributed.allSum(own(a)), [x], [x])[1])
    if (due && fault === "cotangents") {
      mx.eval(grad((a: mx.Array) => mx.distributed.sumScatter(own(a)).sum())(mx.ones([group.size()])))
      mx.eval(mx.distributed.allGather(mx.ones([1])))
    }
    const y = odd && fault === "order" ? mx.distributed.allMax(x) : mx.distributed.allSum(x)
    if (y.flatten().index(0).item() !== group.size() && !odd) throw new Error(`wrong sum in step ${step}`)
  }
  if (fault === "none") console.log(JSON.stringify({ name: "none" }))
  if (fault === "late" && culprit) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500)
    process.kill(process.pid, "SIGKILL")
  }
  leave()
  if (fault === "late") console.log(JSON.stringify({ name: "left" }))
} catch (error) {
  const { name, message, rank, op } = error as mx.DistributedError
  console.log(JSON.stringify({ name, message, rank, op, took: performance.now() - at }))
  process.exitCode = 3
}
