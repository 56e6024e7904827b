/**
 * The same model and data on all ranks together and on this one alone: data parallel, with spread layers and fully spread, in float64 and
 * float32. Prints the largest differences.
 */
import "@lazuli/backend-cpu"
import { join } from "node:path"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { dataParallel, loadSharded, RankSampler, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"

const group = mx.distributed.init(true)
const [rank, size] = [group.rank(), group.size()]
const BATCH = 8

class Mlp extends nn.Module {
  first: nn.Module & { forward(x: mx.Array): mx.Array } = new nn.Linear(6, 16)
  second: nn.Module & { forward(x: mx.Array): mx.Array } = new nn.Linear(16, 3)
  forward(x: mx.Array): mx.Array {
    return this.second.forward(mx.tanh(this.first.forward(x)))
  }
}
const make = (dtype: mx.Dtype): Mlp => {
  mx.random.seed(3)
  const model = new Mlp()
  model.update(mx.treeMap((x) => (x as mx.Array).astype(dtype), model.parameters()) as never)
  return model
}
const data = (step: number, dtype: mx.Dtype): [mx.Array, mx.Array] => {
  const grid = mx.arange(BATCH * 6, { dtype: mx.float32 }).reshape([BATCH, 6])
  const x = mx.sin(grid.multiply(0.37).add(step)).astype(dtype)
  return [x, mx.cos(x.index(":", ":3").multiply(2))]
}
const lossOf =
  (model: Mlp) =>
  (x: mx.Array, y: mx.Array): mx.Array =>
    model.forward(x).subtract(y).square().mean()
const part = (x: mx.Array): mx.Array => x.split(size, 0)[rank]

/** Losses of some steps. */
function train(
  model: Mlp,
  steps: number,
  dtype: mx.Dtype,
  way: "alone" | "parts" | "whole",
  optimizer: optim.Optimizer,
): number[] {
  const loss = lossOf(model)
  const step = way === "parts" ? dataParallel(model, loss) : nn.valueAndGrad(model, loss)
  const losses: number[] = []
  for (let i = 0; i < steps; i++) {
    const [x, y] = data(i, dtype)
    const [value, grads] = way === "alone" || way === "whole" ? step(x, y) : step(part(x), part(y))
    optimizer.update(model, grads as never)
    mx.eval(model.parameters(), optimizer.state)
    losses.push(value.item() as number)
  }
  return losses
}
const difference = (a: number[], b: number[]): number => Math.max(...a.map((v, i) => Math.abs(v - b[i])))
const adam = (): optim.Optimizer => new optim.Adam({ learningRate: 0.01 })

const result: Record<string, number> = {}
for (const [dtype, steps] of [
  [mx.float64, 30],
  [mx.float32, 100],
] as const) {
  const alone = train(make(dtype), steps, dtype, "alone", adam())
  result[`data parallel ${dtype.name}`] = difference(train(make(dtype), steps, dtype, "parts", adam()), alone)
  const tensor = make(dtype)
  tensor.first = nn.shardLinear(tensor.first as nn.Linear, "all-to-sharded")
  tensor.second = nn.shardLinear(tensor.second as nn.Linear, "sharded-to-all")
  result[`spread layers ${dtype.name}`] = difference(train(tensor, steps, dtype, "whole", adam()), alone)

  // Fully spread: every member has a part of the batch and of the parameters, and the loss is the average.
  const spread = make(dtype)
  spread.first = nn.fullyShard(spread.first)
  spread.second = nn.fullyShard(spread.second)
  const optimizer = adam()
  const mean = (xs: number[]): number[] =>
    mx.distributed
      .allSum(mx.array(Float64Array.from(xs)))
      .divide(size)
      .tolist() as number[]
  const run = (model: Mlp, from: number, to: number, its: optim.Optimizer): number[] => {
    const step = nn.valueAndGrad(model, lossOf(model))
    const losses: number[] = []
    for (let i = from; i < to; i++) {
      const [x, y] = data(i, dtype)
      const [value, grads] = step(part(x), part(y))
      its.update(model, grads as never)
      mx.eval(model.parameters(), its.state)
      losses.push(value.item() as number)
    }
    return losses
  }
  const half = steps / 2
  const before = run(spread, 0, half, optimizer)
  // The second half from a checkpoint.
  const folder = process.env.CHECKPOINT as string
  saveSharded(join(folder, dtype.name), spread, optimizer)
  const again = make(dtype)
  again.first = nn.fullyShard(again.first)
  again.second = nn.fullyShard(again.second)
  const other = adam()
  loadSharded(join(folder, dtype.name), again, other)
  const after = run(again, half, steps, other)
  result[`fully spread ${dtype.name}`] = difference(mean([...before, ...after]), alone)
  const held = mx.treeFlatten(again.parameters()).reduce((n, [, x]) => n + (x as mx.Array).size, 0)
  const all = mx.treeFlatten(make(dtype).parameters()).reduce((n, [, x]) => n + (x as mx.Array).size, 0)
  result[`parameters held ${dtype.name}`] = held / all
}
// Running statistics of parts of the batch: their average is the same on all ranks, also in a compiled step.
{
  const model = new nn.Sequential(new nn.Linear(6, 4), new nn.BatchNorm(4), new nn.Linear(4, 3))
  const optimizer = new optim.SGD({ learningRate: 0.01 })
  const step = dataParallel(model, (x: mx.Array, y: mx.Array) => model.forward(x).subtract(y).square().mean())
  const update = (x: mx.Array, y: mx.Array): mx.Array => {
    const [value, grads] = step(x, y)
    optimizer.update(model, grads as never)
    return value
  }
  const compiled = compile(update, { inputs: [model, optimizer], outputs: [model, optimizer] })
  const norm = model.layers[1] as nn.BatchNorm
  const statistics = (): mx.Array =>
    mx.concatenate([norm.runningMean as mx.Array, norm.runningVar as mx.Array])
  let off = 0
  for (let i = 0; i < 4; i++) {
    const [x, y] = data(i, mx.float32)
    // The average of what each makes of its own part, from the statistics before, which all have.
    const inner = (model.layers[0] as nn.Linear).forward(part(x))
    const seen = mx.concatenate([inner.mean(0), inner.var({ axis: 0, ddof: 1 })])
    const wanted = statistics().multiply(0.9).add(mx.distributed.allSum(seen).divide(size).multiply(0.1))
    mx.eval(wanted)
    const value = (i % 2 === 0 ? update : compiled)(part(x), part(y))
    mx.eval(value, model.trainableParameters(), optimizer.state)
    // The averages are there with the gradients: to read them alone exchanges nothing.
    if (rank === 0) mx.eval(statistics())
    const [most, least] = [mx.distributed.allMax(statistics()), mx.distributed.allMin(statistics())]
    off = Math.max(off, mx.abs(most.subtract(least)).max().item() as number)
    off = Math.max(off, mx.abs(statistics().subtract(wanted)).max().item() as number)
  }
  result.statistics = off
}
const sampler = new RankSampler(10, { batchSize: 2, seed: 1 })
console.log(JSON.stringify({ result, batches: [sampler.next(), sampler.next()] }))
