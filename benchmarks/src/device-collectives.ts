// All-reduce between GPUs by NCCL, and data parallel training of a model of GPT-2 small's size, as a rank of a job:
// `npx lazuli launch -n 2 benchmarks/dist/device-collectives.js [megabytes]`; beside it benchmarks/peers/device_collectives.py.
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { shareParameters } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import { AdamW } from "@lazuli/nn/optimizers"
import { GPT_BATCH, GPT_LENGTH, GPT_WORDS, Gpt } from "./gpu-gpt"

const megabytes = Number(process.argv[2] ?? 100)
const group = mx.distributed.init({ backend: "nccl" })
const size = group.size()

/** Milliseconds of a call, the least of some rounds of several. */
function timed(calls: number, rounds: number, body: () => void): number {
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < rounds + 3; i++) {
    mx.eval(mx.distributed.barrier())
    const begin = performance.now()
    for (let k = 0; k < calls; k++) body()
    mx.synchronize()
    if (i >= 3) least = Math.min(least, (performance.now() - begin) / calls)
  }
  return least
}

function gptStep(dtype: mx.Dtype): number {
  mx.random.seed(1)
  const model = new Gpt()
  model.setDtype(dtype)
  shareParameters(model)
  const optimizer = new AdamW({ learningRate: 1e-4 })
  optimizer.init(model)
  const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) => model.loss(x, y))
  const state = [model.state, optimizer.state]
  const step = compile(
    (x: mx.Array, y: mx.Array): mx.Array => {
      const [loss, gradients] = lossAndGradient(x, y)
      optimizer.update(model, nn.averageGradients(gradients))
      return loss
    },
    { inputs: state, outputs: state, donate: true },
  )
  const tokens = mx.random.randint(0, GPT_WORDS, [GPT_BATCH, GPT_LENGTH])
  mx.eval(tokens, model.parameters())
  return timed(4, 4, () => mx.eval(step(tokens, tokens), state))
}

const results: Record<string, number> = {}
if (size > 1) {
  const x = mx.ones([megabytes * 250_000])
  mx.eval(x)
  // In one graph, as PyTorch queues them.
  const calls = 10
  const ms =
    timed(1, 5, () => {
      let y = x
      for (let i = 0; i < calls; i++) y = mx.distributed.allSum(y)
      mx.eval(y)
    }) / calls
  results[`all-reduce of ${megabytes} MB, ms`] = ms
  // As NCCL's tests count: what each link carries.
  results["bus bandwidth, GB/s"] = ((megabytes / 1000) * 2 * (size - 1)) / size / (ms / 1000)
}
results["GPT-2 small step, bf16, ms"] = gptStep(mx.bfloat16)
if (group.rank() === 0) console.log(JSON.stringify({ ranks: size, ...results }))
