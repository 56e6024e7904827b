/**
 * Compiled steps of fully sharded training on ranks with a GPU each, with each layer's parameters exchanged together and one by one.
 * Prints what is wrong, how many nodes run beside others in the graph of a step of either, the most bytes in use in the last step, and a
 * bound: the members' shares of parameters, gradients and moments, two gathered layers, and activations.
 */
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import * as nn from "@lazuli/nn"
import { Adam } from "@lazuli/nn/optimizers"

const [, , folder] = process.argv
const graphs = join(folder, process.env.LAZULI_RANK as string)
process.env.LAZULI_CUDA_DOUBLE_GRAPHS = graphs
mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)
const group = mx.distributed.init({ strict: true, backend: "nccl" })
const rank = group.rank()

const [LAYERS, WIDTH, BATCH, STEPS] = [6, 128, 8, 4]
/** Bytes of what each layer reads, and of what one computes from that. */
const ACTIVATIONS = 4 * BATCH * WIDTH * (LAYERS + 16)

class Layer extends nn.Module {
  norm = new nn.LayerNorm(WIDTH)
  first = new nn.Linear(WIDTH, 2 * WIDTH)
  second = new nn.Linear(2 * WIDTH, WIDTH)
  forward(x: mx.Array): mx.Array {
    return x.add(this.second.forward(nn.gelu(this.first.forward(this.norm.forward(x)))))
  }
}

/** The losses and parameters after some steps, and the most bytes that one takes. */
function train(gather: (parts: readonly mx.Array[]) => mx.Array[]): { results: mx.Array[]; most: number } {
  mx.random.seed(3)
  const own = Object.assign(Object.create(group) as typeof group, { gatherParameters: gather })
  const layers = Array.from({ length: LAYERS }, () => new Layer())
  const model = new nn.Sequential(...layers.map((layer) => nn.fullyShard(layer, { group: own })))
  const optimizer = new Adam({ learningRate: 0.01 })
  optimizer.init(model)
  const run = nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).square().mean())
  const state = [model.state, optimizer.state]
  const step = compile(
    (x: mx.Array): mx.Array => {
      const [loss, gradients] = run(x)
      optimizer.update(model, gradients)
      return loss
    },
    { inputs: state, outputs: state, donate: true } as never,
  )
  const x = mx.sin(
    mx
      .arange(BATCH * WIDTH)
      .reshape([BATCH, WIDTH])
      .add(rank),
  )
  const losses: mx.Array[] = []
  for (let i = 0; i < STEPS; i++) {
    // Collects what earlier steps dropped.
    mx.memoryReport()
    mx.resetPeakMemory()
    losses.push(step(x))
    mx.eval(losses, state)
  }
  const most = mx.getPeakMemory()
  return { results: [...losses, ...mx.treeFlatten(model.parameters()).map(([, p]) => p as mx.Array)], most }
}

const bytes = mx
  .treeFlatten(Array.from({ length: LAYERS }, () => new Layer().parameters()))
  .reduce((sum, [, x]) => sum + (x as mx.Array).nbytes, 0)
const one = group.gatherParameters.bind(group)
const together = train(one)
const apart = train((parts) => parts.flatMap((part) => one([part])))
const wrong = together.results.flatMap((each, i) =>
  mx.arrayEqual(each, apart.results[i]).item() ? [] : [`${i}: ${each} is not ${apart.results[i]}`],
)
// Only the double of the driver writes them.
const lines = existsSync(graphs) ? readFileSync(graphs, "utf8").trim().split("\n") : []
console.log(
  JSON.stringify({
    wrong,
    graphs: lines.map((line) => line.split(" ").map(Number)),
    most: together.most,
    bound: (4 * bytes) / group.size() + (2 * bytes) / LAYERS + ACTIVATIONS,
  }),
)
