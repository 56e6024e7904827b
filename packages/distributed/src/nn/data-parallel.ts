/**
 * Data parallelism: every member has the whole model and a part of the batch.
 */
import * as mx from "@lazuli/core"
import { checkOptions } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"

/** Options of {@link dataParallel}. */
export type DataParallelOptions = nn.AverageGradientsOptions

/** @throws ArgumentError if members have different parts of the model's parameters */
function checkIsWhole(op: string, model: nn.Module, group: mx.distributed.Group): void {
  const spread = new Map(nn.shardedModules(model).map(([path, { _group }]) => [_group, path]))
  for (const [its, path] of spread) {
    if (!nn.groupsOverlap(its, group)) continue
    throw new mx.ArgumentError(op, `the members of the group have different parts of "${path}"`, {
      hint: "fullyShard averages gradients itself: use nn.valueAndGrad. Spread over other members, pass a group across these",
    })
  }
}

/**
 * Makes the members' parameters those of rank 0.
 * @throws ArgumentError if members have different parts of the parameters
 * @example
 * shareParameters(new nn.Linear(2, 3)).weight.shape // => [3, 2]
 */
export function shareParameters<M extends nn.Module>(model: M, group: mx.distributed.Group | null = null): M {
  return shared("shareParameters", model, group ?? mx.distributed.init())
}

function shared<M extends nn.Module>(op: string, model: M, its: mx.distributed.Group): M {
  if (its.size() === 1) return model
  checkIsWhole(op, model, its)
  const share = (x: unknown): mx.Array => mx.distributed.broadcast(x as mx.Array, { group: its })
  model.update(mx.treeMap(share, model.parameters()) as never)
  mx.eval(model.parameters())
  return model
}

/**
 * `nn.valueAndGrad` for members that each have a part of the batch: the loss and the gradients are the members' averages, so that an
 * optimizer does the same on all. So are running statistics of {@link nn.BatchNorm} after each step; it normalizes by those of the member's
 * part alone. The members begin with the parameters of rank 0.
 * @throws ArgumentError if members have different parts of the parameters, as of layers that {@link nn.fullyShard} gave
 * @example
 * const model = new nn.Linear(1, 1, { bias: false })
 * const step = dataParallel(model, (x: mx.Array) => model.forward(x).mean())
 * const [loss, grads] = step(mx.array([[3]]))
 * grads.weight.tolist() // => [[3]]
 */
export function dataParallel<M extends nn.Module, A extends unknown[], R>(
  model: M,
  loss: (...args: A) => R,
  options: DataParallelOptions = {},
): (...args: A) => [value: R, grads: nn.ParametersOf<M>] {
  checkOptions("dataParallel", options, ["group", "allReduceSize", "communicationStream"])
  const group = options.group ?? mx.distributed.init()
  shared("dataParallel", model, group)
  const run = nn.valueAndGrad(model, loss)
  return (...args) => {
    const [value, grads] = run(...args)
    const statistics = group.size() > 1 ? averageStatistics(model, { ...options, group }) : []
    const [loss, averages] = [averageOf(value, group), nn.averageGradients(grads, { ...options, group })]
    if (statistics.length === 0) return [loss, averages]
    // All members use the gradients. A member that alone reads statistics later, as to save them, must find them evaluated.
    const behind = (x: unknown): unknown => (x instanceof mx.Array ? mx.depends(x, statistics) : x)
    return [loss, mx.treeMap(behind, averages)]
  }
}

/** Makes running statistics, which every member has of its own part of the batch, the members' averages, and gives these. */
function averageStatistics(model: nn.Module, options: DataParallelOptions): mx.Array[] {
  const norms = model
    .modules()
    .filter((module) => module instanceof nn.BatchNorm && module.training && module.runningMean)
  const own = (norms as nn.BatchNorm[]).map(({ runningMean, runningVar }) => ({ runningMean, runningVar }))
  const averages = nn.averageGradients(own, options)
  averages.forEach((average, i) => Object.assign(norms[i], average))
  return mx.treeFlatten(averages).map(([, x]) => x as mx.Array)
}

/** A loss, or a list that begins with one: of what follows it every member has its own. */
function averageOf<R>(value: R, group: mx.distributed.Group): R {
  if (group.size() === 1) return value
  const average = (x: mx.Array): mx.Array => nn.averageGradients(x, { group })
  if (value instanceof mx.Array) return average(value) as R
  if (!Array.isArray(value)) return value
  return [average(value[0] as mx.Array), ...(value.slice(1) as unknown[])] as R
}
