/**
 * A model that is spread over all ranks is saved and loaded: `load` prints the most bytes that lay in memory meanwhile, beside those of
 * this rank's parts and of one whole array; `lack` loads where one rank cannot, and prints what each says and how long it took.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import { loadSharded, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"

const [, , mode, folder] = process.argv
const group = mx.distributed.init(true)
const WIDTH = 512
const LAYERS = 12
mx.random.seed(1)
const layers = Array.from({ length: LAYERS }, () => {
  const layer = nn.fullyShard(new nn.Linear(WIDTH, WIDTH, false))
  mx.eval(layer.parameters())
  return layer
})
const model = new nn.Sequential(...layers)
const optimizer = new optim.AdamW(0.001)
optimizer.init(model.trainableParameters())
mx.eval(optimizer.state)
saveSharded(folder, model, optimizer)
if (mode === "load") {
  mx.eval(mx.distributed.barrier())
  // Without garbage, whose memory would be free meanwhile.
  const { active: before } = mx.memoryReport()
  mx.resetPeakMemory()
  loadSharded(folder, model, optimizer)
  const most = mx.getPeakMemory() - before
  const whole = WIDTH * WIDTH * 4
  console.log(JSON.stringify({ most, own: (3 * LAYERS * whole) / group.size(), whole }))
} else {
  const begin = performance.now()
  try {
    loadSharded(group.rank() === 1 ? `${folder}-elsewhere` : folder, model, optimizer)
  } catch (error) {
    const { name, message } = error as Error
    console.log(JSON.stringify({ name, message, took: performance.now() - begin }))
  }
  // The job goes on.
  mx.eval(mx.distributed.barrier())
}
