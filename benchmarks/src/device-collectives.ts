// All-reduce between GPUs by NCCL, and data parallel training of a model of GPT-2 small's size, as a rank of a job:
// `npx lazuli launch -n 2 benchmarks/dist/device-collectives.js [megabytes]`; beside it benchmarks/peers/device_collectives.py. After the
// megabytes, `steps` measures only steps, with gradients averaged and not, as each rank sees them, and `memory` what steps of fully sharded
// parameters take, in a process that has done nothing else.
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

/** Milliseconds of a call, the least of some rounds of several, after others in which JavaScript is compiled. */
function timed(calls: number, rounds: number, body: () => void, warm = 3): number {
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < rounds + warm; i++) {
    mx.eval(mx.distributed.barrier())
    const begin = performance.now()
    for (let k = 0; k < calls; k++) body()
    mx.synchronize()
    if (i >= warm) least = Math.min(least, (performance.now() - begin) / calls)
  }
  return least
}

const averaged = <T>(gradients: T): T => nn.averageGradients(gradients)

function gptStep(dtype: mx.Dtype, average = averaged): number {
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
      optimizer.update(model, average(gradients))
      return loss
    },
    { inputs: state, outputs: state, donate: true },
  )
  const tokens = mx.random.randint(0, GPT_WORDS, [GPT_BATCH, GPT_LENGTH])
  mx.eval(tokens, model.parameters())
  return timed(4, 4, () => mx.eval(step(tokens, tokens), state))
}

/**
 * Megabytes at most, in steps of a model of bfloat16 whose parts the members hold, and at the end of one; and those of what does not
 * depend on the batch: all parameters, gradients and moments, and the largest layer.
 */
function gptMemory(batch: number): Record<string, number> {
  mx.random.seed(1)
  const model = new Gpt()
  model.setDtype(mx.bfloat16)
  shareParameters(model)
  const bytesOf = (tree: unknown): number =>
    mx.treeFlatten(tree as never).reduce((sum, [, x]) => sum + (x instanceof mx.Array ? x.nbytes : 0), 0)
  const [whole, largest] = [bytesOf(model.parameters()), bytesOf(model.head.parameters())]
  model.words = nn.fullyShard(model.words)
  model.blocks = model.blocks.map((block) => nn.fullyShard(block))
  model.head = nn.fullyShard(model.head)
  const optimizer = new AdamW({ learningRate: 1e-4 })
  optimizer.init(model)
  const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) => model.loss(x, y))
  const tokens = mx.random.randint(0, GPT_WORDS, [batch, GPT_LENGTH])
  mx.eval(tokens, model.parameters(), optimizer.state)
  // Collects arrays that the program has dropped, which count until then.
  mx.memoryReport()
  mx.clearCache()
  mx.resetPeakMemory()
  const state = [model.state, optimizer.state]
  const step = compile(
    (x: mx.Array, y: mx.Array): mx.Array => {
      const [loss, gradients] = lossAndGradient(x, y)
      optimizer.update(model, gradients)
      return loss
    },
    { inputs: state, outputs: state, donate: true },
  )
  for (let i = 0; i < 3; i++) {
    mx.eval(step(tokens, tokens), state)
    mx.synchronize()
    mx.memoryReport()
  }
  const megabytesOf = (bytes: number): number => Math.round(bytes / 1e6)
  return {
    "at most, MB": megabytesOf(mx.getPeakMemory()),
    "between steps, MB": megabytesOf(mx.getActiveMemory()),
    "parameters, gradients and moments, MB": megabytesOf(4 * whole),
    "largest layer, MB": megabytesOf(largest),
  }
}

const results: Record<string, number> = {}
/** Milliseconds of a sum of so many bytes: several in one graph, as PyTorch queues them. */
function allReduce(bytes: number, dtype: mx.Dtype): number {
  const x = mx.contiguous(mx.zeros([bytes / dtype.size], dtype))
  mx.eval(x)
  const calls = 10
  return (
    timed(
      1,
      20,
      () => {
        let y = mx.distributed.allSum(x)
        // Without what JavaScript still holds, their memory is used again, as PyTorch's sums are in place.
        for (let i = 1; i < calls; i++) {
          const next = mx.distributed.allSum(y)
          y.dispose()
          y = next
        }
        mx.eval(y)
        y.dispose()
      },
      60,
    ) / calls
  )
}
function steps(): void {
  const apart = gptStep(mx.bfloat16, (gradients) => gradients)
  const together = gptStep(mx.bfloat16)
  console.log(JSON.stringify({ rank: group.rank(), "step, each alone, ms": apart, "step, ms": together }))
}

function everything(): void {
  if (size > 1) {
    const ms = allReduce(megabytes * 1_000_000, mx.float32)
    results[`all-reduce of ${megabytes} MB, ms`] = ms
    // As NCCL's tests count: what each link carries.
    results["bus bandwidth, GB/s"] = ((megabytes / 1000) * 2 * (size - 1)) / size / (ms / 1000)
    results["all-reduce of the gradients, ms"] = allReduce(2 * 134_000_000, mx.bfloat16)
  }
  results["GPT-2 small step, bf16, ms"] = gptStep(mx.bfloat16)
  if (group.rank() === 0) console.log(JSON.stringify({ ranks: size, ...results }))
}

const parts: Record<string, () => void> = {
  steps,
  memory() {
    for (const batch of [GPT_BATCH, 1]) {
      const memory = gptMemory(batch)
      if (group.rank() === 0) console.log(JSON.stringify({ ranks: size, batch, ...memory }))
    }
  },
}
;(parts[process.argv[3]] ?? everything)()
