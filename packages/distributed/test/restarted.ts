/**
 * Data parallel training that saves every fifth step and goes on from the last checkpoint when the job is restarted. `FAULTS` says whether
 * ranks are killed: in a step, while a part is written, and before the checkpoint counts. Prints the loss of each step.
 */
import "./renames"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { dataParallel, hasSharded, loadSharded, RankSampler, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"
import { renames } from "./renames"

const [, , folder, faults] = process.argv
const [STEPS, EVERY] = [30, 5]
const rank = mx.distributed.init(true).rank()
const attempt = faults === "faults" ? Number(process.env.LAZULI_RESTART) : -1
mx.random.seed(3)
const model = new nn.Sequential(new nn.Linear(6, 16), new nn.Tanh(), new nn.Linear(16, 3))
const optimizer = new optim.Adam({ learningRate: 0.01 })
const step = dataParallel(model, (x: mx.Array, y: mx.Array) => model.forward(x).subtract(y).square().mean())
const xs = mx.random.normal([64, 6])
const ys = mx.sin(xs.index(":", ":3"))
const sampler = new RankSampler(64, { batchSize: 4, seed: 5 })
const progress = {
  get state(): object {
    const { epoch, position } = sampler.state
    return { optimizer: optimizer.state, sampler: mx.array([begin, epoch, position], mx.int32) }
  },
  set state(given: object) {
    const { optimizer: its, sampler: where } = given as { optimizer: object; sampler: mx.Array }
    optimizer.state = its as typeof optimizer.state
    const [next, epoch, position] = where.tolist() as number[]
    begin = next
    sampler.state = { epoch, position }
  },
}
let begin = 0
if (hasSharded(folder)) loadSharded(folder, model, progress)
if (rank === 0) console.log(`from ${begin}`)

while (begin < STEPS) {
  if (attempt === 0 && begin === 13 && rank === 1) process.kill(process.pid, "SIGKILL")
  // Rank 1 while its part is written, and rank 0 when all parts are.
  if (begin === 20)
    renames.before = (to) => {
      if ((attempt === 1 && rank === 1) || (attempt === 2 && to.endsWith("checkpoint.json")))
        process.kill(process.pid, "SIGKILL")
    }
  if (begin > 0 && begin % EVERY === 0) saveSharded(folder, model, progress)
  const batch = mx.array(sampler.next(), mx.int32)
  const [loss, grads] = step(mx.take(xs, batch, 0), mx.take(ys, batch, 0))
  optimizer.update(model, grads)
  mx.eval(loss, model.parameters(), optimizer.state)
  if (rank === 0) console.log(`${begin} ${loss.item()}`)
  begin++
}
