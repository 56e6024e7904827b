// TensorFlow.js on its wasm backend, with threads where the platform lets it, as a contestant.
import { createRequire } from "node:module"
import { dirname } from "node:path"
import * as tf from "@tensorflow/tfjs"
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm"
import { numbers, serve } from "../dist/serve.js"

const wasm = dirname(createRequire(import.meta.url).resolve("@tensorflow/tfjs-backend-wasm"))
setWasmPaths(`${wasm}/`)
await tf.setBackend("wasm")
await tf.ready()

const make = (shape) => tf.tensor(numbers(shape.reduce((a, b) => a * b, 1)), shape)
/** Computes, waits for the numbers to be there, and frees. The wasm backend computes at once. */
const on =
  (f, ...shapes) =>
  () => {
    const inputs = shapes.map(make)
    return () => {
      tf.tidy(() => {
        f(...inputs)
      })
    }
  }
const big = [4096, 4096]
const wide = [8, 1000, 1024]

await serve({
  "chain of 1,000 adds (16 elements)": on(
    (y) => {
      let x = y
      for (let i = 0; i < 1000; i++) x = x.add(y)
    },
    [16],
  ),
  "one add, one eval (16 elements)": on((x) => x.add(x), [16]),
  "add 4096²": on((x, y) => x.add(y), big, big),
  "multiply 4096²": on((x, y) => x.mul(y), big, big),
  "copy 4096²": on((x) => x.add(0), big),
  "axpby 4096²": on((x, y) => x.mul(4).add(y.mul(2)), big, big),
  "exp 8×1000×1024": on((x) => x.exp(), wide),
  "erf 8×1000×1024": on((x) => x.erf(), wide),
  "tanh 8×1000×1024": on((x) => x.tanh(), wide),
  "composed gelu 8×1000×1024": on((x) => x.mul(x.div(Math.SQRT2).erf().add(1)).div(2), wide),
  "sum 4096², axis 0": on((x) => x.sum(0), big),
  "sum 4096², axis 1": on((x) => x.sum(1), big),
  "sum 4096², all": on((x) => x.sum(), big),
  "max 4096², axis 1": on((x) => x.max(1), big),
  "argmax 4096², axis 1": on((x) => x.argMax(1), big),
  "var 4096², axis 1": on((x) => tf.moments(x, 1).variance, big),
  "softmax 4096²": on((x) => x.softmax(), big),
  "logsumexp 4096²": on((x) => x.logSumExp(1), big),
  "matmul 64": on((x, y) => x.matMul(y), [64, 64], [64, 64]),
  "matmul 512": on((x, y) => x.matMul(y), [512, 512], [512, 512]),
  "matmul 1024": on((x, y) => x.matMul(y), [1024, 1024], [1024, 1024]),
  "matmul 2048": on((x, y) => x.matMul(y), [2048, 2048], [2048, 2048]),
  "matmul 1024, second transposed": on((x, y) => x.matMul(y, false, true), [1024, 1024], [1024, 1024]),
  "matmul 64 × 128²": on((x, y) => x.matMul(y), [64, 128, 128], [64, 128, 128]),
  "attention 1×8×512×64": on(
    (q, k, v) => q.matMul(k, false, true).mul(0.125).softmax().matMul(v),
    ...[0, 1, 2].map(() => [8, 512, 64]),
  ),
  "conv2d 8×64×64×32, 64 of 3×3": on((x, w) => tf.conv2d(x, w, 1, "same"), [8, 64, 64, 32], [3, 3, 32, 64]),
  "conv2d 8×56×56×256, 64 of 1×1": on(
    (x, w) => tf.conv2d(x, w, 1, "same"),
    [8, 56, 56, 256],
    [1, 1, 256, 64],
  ),
  "conv2d 8×56×56×96, depthwise 7×7": on(
    (x, w) => tf.depthwiseConv2d(x, w, 1, "same"),
    [8, 56, 56, 96],
    [7, 7, 96, 1],
  ),
  "cumsum 1e7": on((x) => x.cumsum(0), [10_000_000]),
  "random normal 1e7": on(() => tf.randomNormal([10_000_000])),
  "random uniform 1e7": on(() => tf.randomUniform([10_000_000])),
})
