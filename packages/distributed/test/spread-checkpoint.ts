/**
 * Saves a model of layers of which each rank has a part, after a step of training, and loads it again: on as many ranks as there are, or on
 * one without spreading it. Prints what the model and one more step give.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import { loadSharded, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"

const [, , mode, folder] = process.argv
const group = mx.distributed.init()

class Mlp extends nn.Module {
  first: nn.Module & { forward(x: mx.Array): mx.Array } = new nn.Linear(8, 24)
  second: nn.Module & { forward(x: mx.Array): mx.Array } = new nn.Linear(24, 512)
  packed: nn.Module & { forward(x: mx.Array): mx.Array } = nn.QuantizedLinear.fromLinear(
    new nn.Linear(512, 4),
  )
  whole = nn.fullyShard(new nn.Linear(4, 5))
  forward(x: mx.Array): mx.Array {
    const y = this.second.forward(this.first.forward(x))
    return this.whole.forward(this.packed.forward(segmentsOf(y)))
  }
}
mx.random.seed(mode === "save" ? 3 : 4)
const model = new Mlp()
model.first = nn.shardLinear(model.first as nn.Linear, "all-to-sharded", { segments: [8] })
model.second = nn.shardLinear(model.second as nn.Linear, "sharded-to-all", { segments: [8] })
const { weight } = model.packed as nn.QuantizedLinear
model.packed = nn.shardLinear(model.packed as nn.QuantizedLinear, "sharded-to-all", { segments: [256] })
const x = mx.sin(mx.arange(16, { dtype: mx.float32 }).reshape([2, 8]))
const summed = nn.sumGradients()
/** This rank's part of each segment of the packed layer's inputs. */
const segmentsOf = (y: mx.Array): mx.Array =>
  mx.concatenate(
    mx.split(summed(y), [256], 1).map((segment) => segment.split(group.size(), 1)[group.rank()]),
    1,
  )
const optimizer = new optim.Adam({ learningRate: 0.01 })
const step = nn.valueAndGrad(model, () => model.forward(x).square().mean())
const train = (): number => {
  const [loss, grads] = step()
  optimizer.update(model, grads as never)
  mx.eval(model.parameters(), optimizer.state)
  return loss.item() as number
}
if (mode === "save") {
  train()
  saveSharded(folder, model, optimizer)
} else {
  loadSharded(folder, model, optimizer)
}
const parts = mx.distributed.allSum(mx.array((model.packed as nn.QuantizedLinear).weight.size))
console.log(JSON.stringify([...(model.forward(x).reshape([-1]).tolist() as number[]), train(), train()]))
console.log(parts.item() === weight.size)
