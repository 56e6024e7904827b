/**
 * Fully sharded training in float64: `begin` trains, saves a checkpoint and goes on, `resume` goes on from that checkpoint, on as many
 * ranks as there are. Prints the losses of the steps after it.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import { loadSharded, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"

const [, , mode, folder] = process.argv
const { distributed } = mx
const group = distributed.init()
const [rank, size] = [group.rank(), group.size()]

class Mlp extends nn.Module {
  // Rows that neither 2 nor 4 members can divide.
  first = nn.fullyShard(new nn.Linear(6, 13))
  second = nn.fullyShard(new nn.Linear(13, 3))
  forward(x: mx.Array): mx.Array {
    return this.second.forward(mx.tanh(this.first.forward(x)))
  }
}
mx.random.seed(3)
const model = new Mlp()
model.update(mx.treeMap((x) => (x as mx.Array).astype(mx.float64), model.parameters()) as never)
const optimizer = new optim.Adam({ learningRate: 0.01 })
const step = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) =>
  model.forward(x).subtract(y).square().mean(),
)
function train(from: number, to: number): number[] {
  const losses: number[] = []
  for (let i = from; i < to; i++) {
    const x = mx.sin(mx.arange(48, { dtype: mx.float64 }).reshape([8, 6]).multiply(0.37).add(i))
    const y = mx.cos(x.index(":", ":3").multiply(2))
    const [value, grads] = step(x.split(size, 0)[rank], y.split(size, 0)[rank])
    optimizer.update(model, grads as never)
    mx.eval(model.parameters(), optimizer.state)
    losses.push(distributed.allSum(value).divide(size).item() as number)
  }
  return losses
}
if (mode === "begin") {
  train(0, 5)
  saveSharded(folder, model, optimizer)
} else {
  loadSharded(folder, model, optimizer)
}
console.log(JSON.stringify(train(5, 10)))
