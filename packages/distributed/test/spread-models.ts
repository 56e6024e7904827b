/**
 * Models that are spread in several ways, on four ranks: their checkpoints, with optimizers within other state, and what is refused. Prints
 * what is wrong.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { dataParallel, hasSharded, loadSharded, RankSampler, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"

const [, , scratch] = process.argv
const group = mx.distributed.init(true)
const rank = group.rank()
const wrong: string[] = []
const same = (name: string, got: unknown, want: unknown): void => {
  if (JSON.stringify(got) !== JSON.stringify(want))
    wrong.push(`${name}: ${JSON.stringify(got)} is not ${JSON.stringify(want)}`)
}
const refused = (name: string, body: () => void): void => {
  try {
    body()
    wrong.push(`${name} is not refused`)
  } catch (error) {
    if (!(error instanceof mx.ArgumentError)) wrong.push(`${name}: ${String(error)}`)
  }
}

// Optimizers' state of ranks' own parts, at any depth.
const x = mx.sin(mx.arange(8).reshape([2, 4]))
interface Progress {
  readonly optimizer: optim.Optimizer
  readonly saved: { state: object }
}
const nested = (): Progress => {
  const optimizer = new optim.Adam({ learningRate: 0.1 })
  const sampler = new RankSampler(64, { batchSize: 4 })
  const saved = {
    get state(): object {
      return { optimizer: optimizer.state, sampler: mx.array([sampler.state.position]) }
    },
    set state(given: object) {
      optimizer.state = (given as { optimizer: optim.OptimizerState }).optimizer
    },
  }
  return { optimizer, saved }
}
const several = (): Progress => {
  const optimizers = [
    new optim.Adam({ learningRate: 0.1 }),
    new optim.SGD({ learningRate: 0.1, momentum: 0.9 }),
  ]
  const optimizer = new optim.MultiOptimizer(optimizers, [(path) => path.includes("weight")])
  return { optimizer, saved: optimizer }
}
for (const [name, make] of Object.entries({ nested, several })) {
  const begin = (): { step: () => number; progress: Progress; model: nn.Module } => {
    mx.random.seed(1)
    const layers = [new nn.Linear(4, 8), new nn.Linear(8, 4)].map((layer) => nn.fullyShard(layer))
    const model = new nn.Sequential(layers[0], new nn.ReLU(), layers[1])
    const progress = make()
    const run = nn.valueAndGrad(model, () => model.forward(x).subtract(1).square().mean())
    const step = (): number => {
      const [loss, grads] = run()
      progress.optimizer.update(model, grads)
      mx.eval(loss, model.parameters(), progress.optimizer.state)
      return loss.item() as number
    }
    return { step, progress, model }
  }
  const folder = join(scratch, name)
  const first = begin()
  for (let i = 0; i < 3; i++) first.step()
  saveSharded(folder, first.model, first.progress.saved)
  const want = [first.step(), first.step()]
  const second = begin()
  second.step()
  loadSharded(folder, second.model, second.progress.saved)
  same(`losses after ${name}`, [second.step(), second.step()], want)
}

// Whole arrays of an optimizer's state, of names like those of parts.
const averaged = new nn.FullyShardedModule(new nn.Linear(2, 4))
const ema = averaged.wholeParameters()
mx.eval(ema)
saveSharded(join(scratch, "whole"), averaged, { state: { ema, part: averaged.parameters() } })
const read = { state: {} as { ema?: object; part?: object } }
loadSharded(join(scratch, "whole"), averaged, read)
const shapes = (tree: object | undefined): unknown =>
  (mx.treeFlatten((tree ?? {}) as never) as [string, mx.Array][])
    .map(([path, { shape }]) => [path, shape])
    .sort()
same("whole arrays", shapes(read.state.ema), shapes(ema))
same("parts beside them", shapes(read.state.part), shapes(averaged.parameters()))

// Before a step is evaluated, which exchanges gradients.
const begun = new nn.Linear(4, 8)
const begin = new optim.Adam({ learningRate: 0.1 })
begin.update(begun, dataParallel(begun, () => begun.forward(x).multiply(rank).square().mean())()[1])
saveSharded(join(scratch, "begun"), begun, begin)
const reloaded = new nn.Linear(4, 8)
loadSharded(join(scratch, "begun"), reloaded)
same("weights of a step", reloaded.weight.tolist(), begun.weight.tolist())

// Two dimensions: each pair has the model.
const pair = group.split(Math.floor(rank / 2))
const across = group.split(rank % 2)
mx.random.seed(1)
const spread = nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group: pair })
for (let i = 0; i < 3; i++) {
  const folder = join(scratch, "pairs")
  saveSharded(folder, spread, null, pair)
  same("a checkpoint of pairs", [hasSharded(folder), readdirSync(folder).length], [true, 3])
  mx.eval(mx.distributed.barrier())
}
const reread = nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group: pair })
loadSharded(join(scratch, "pairs"), reread, null, pair)
same("weights of pairs", reread.weight.tolist(), spread.weight.tolist())
// Each into a folder of its own.
saveSharded(join(scratch, `pair-${Math.floor(rank / 2)}`), spread, null, pair)
mx.eval(mx.distributed.barrier())
same(
  "folders of pairs",
  [0, 1].map((i) => hasSharded(join(scratch, `pair-${i}`))),
  [true, true],
)

// Fully spread across pairs, of which each has another part.
const both = nn.fullyShard(nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group: pair }), {
  group: across,
})
same(
  "a part of a part",
  (mx.treeFlatten(both.parameters()) as [string, mx.Array][]).map(([, { shape }]) => shape),
  [[2, 4], [2]],
)
refused("fullyShard over the same pair", () => {
  const again = group.split(Math.floor(rank / 2))
  nn.fullyShard(nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group: pair }), { group: again })
})

// Data parallel over those that have different parts, and over those that have the same.
const loss = (y: mx.Array): mx.Array => spread.forward(y).square().mean()
refused("dataParallel over the pair", () => dataParallel(spread, loss, { group: pair }))
refused("dataParallel over all", () => dataParallel(spread, loss))
refused("dataParallel of fullyShard", () => {
  const full = nn.fullyShard(new nn.Linear(4, 8))
  dataParallel(full, (y: mx.Array) => full.forward(y).mean())
})
mx.eval(dataParallel(spread, loss, { group: across })(x))

// Statistics, which ranks have of their own inputs.
const normalized = nn.fullyShard(new nn.Sequential(new nn.Linear(4, 8), new nn.BatchNorm(8)))
const optimizer = new optim.SGD({ learningRate: 0.1 })
const run = nn.valueAndGrad(normalized, () =>
  normalized
    .forward(x.multiply(rank + 1))
    .square()
    .mean(),
)
optimizer.update(normalized, run()[1])
saveSharded(join(scratch, "statistics"), normalized, optimizer)
loadSharded(join(scratch, "statistics"), normalized, optimizer)

console.log(JSON.stringify(wrong))
