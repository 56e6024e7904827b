/**
 * Compiled functions in which ranks with a GPU each exchange arrays beside other work. Prints what is wrong, and of each graph
 * of the driver its nodes, those beside, and those with several successors and predecessors.
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
const { distributed } = mx
const group = distributed.init({ strict: true, backend: "nccl" })
const [rank, size] = [group.rank(), group.size()]
const wrong: string[] = []
const same = (name: string, got: mx.Array, want: mx.Array): void => {
  if (!mx.allclose(got, want, 1e-4, 1e-5).item()) wrong.push(`${name}: ${got} is not ${want}`)
}

/** Training of some layers, each of which is a bucket; the parameters after some steps. */
const LAYERS = 5
const WIDTH = 24
const STEPS = 6
function train(isTogether: boolean): mx.Array[] {
  mx.random.seed(3)
  const layers = Array.from({ length: LAYERS }, () => [new nn.Linear(WIDTH, WIDTH), new nn.Tanh()])
  const model = new nn.Sequential(...layers.flat())
  const optimizer = new Adam({ learningRate: 0.01 })
  optimizer.init(model)
  const run = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) =>
    model.forward(x).subtract(y).square().mean(),
  )
  const body = (x: mx.Array, y: mx.Array): mx.Array => {
    const [loss, gradients] = run(x, y)
    const averages = isTogether
      ? gradients
      : nn.averageGradients(gradients, { allReduceSize: 4 * WIDTH * (WIDTH + 1) })
    optimizer.update(model, averages)
    return isTogether ? loss : distributed.allSum(loss).divide(size)
  }
  const state = [model.state, optimizer.state]
  const step = isTogether ? body : compile(body, { inputs: state, outputs: state, donate: true } as never)
  const x = mx.sin(
    mx
      .arange(8 * WIDTH)
      .reshape([8, WIDTH])
      .multiply(0.37),
  )
  const y = mx.cos(x.multiply(3))
  const losses: mx.Array[] = []
  for (let i = 0; i < STEPS; i++) {
    const [xs, ys] = isTogether ? [x, y] : [x.split(size, 0)[rank], y.split(size, 0)[rank]]
    losses.push(step(xs, ys))
    mx.eval(losses, state)
  }
  return [...losses, ...mx.treeFlatten(model.parameters()).map(([, each]) => each as mx.Array)]
}
const expected = train(true)
train(false).forEach((each, i) => {
  same(`training, ${i}`, each, expected[i])
})

// The memory of exchanged arrays is wanted by other work meanwhile.
const busy = (x: mx.Array, sum: (x: mx.Array) => mx.Array): mx.Array => {
  let [y, z] = [x, x.multiply(0.5)]
  const sums: mx.Array[] = []
  for (let i = 0; i < 4; i++) {
    const exchanged = mx.cumsum(z, 0).multiply(0.1)
    sums.push(sum(exchanged))
    for (let k = 0; k < 3; k++) y = mx.cumsum(y, 0).multiply(0.2)
    z = mx.cumsum(y, 1).multiply(0.1)
  }
  return sums.reduce((a, b) => a.add(b)).add(y)
}
const own = (r: number): mx.Array => mx.cos(mx.arange(400).reshape([20, 20]).add(r))
const exchanges: Record<string, (x: mx.Array) => mx.Array> = {
  "in place": (x) => distributed.allSum(x),
  "of what is read again": (x) => distributed.allSum(x).add(x.multiply(0)),
  "into more memory": (x) =>
    distributed
      .allGather(x)
      .reshape([size, ...x.shape])
      .sum(0),
}
for (const [name, exchange] of Object.entries(exchanges)) {
  const compiled = compile((x: mx.Array) => busy(x, exchange))
  for (let i = 0; i < 4; i++) {
    const all = Array.from({ length: size }, (_, r) => own(r + 10 * i))
    const parts = all.map((x) => {
      const sums: mx.Array[] = []
      busy(x, (each) => {
        sums.push(each)
        return each
      })
      return sums
    })
    let at = 0
    const want = busy(all[rank], () => {
      const total = parts.map((sums) => sums[at]).reduce((a, b) => a.add(b))
      at++
      return total
    })
    same(`${name}, ${i}`, compiled(all[rank]), want)
  }
}
// Only the double of the driver writes them.
const lines = existsSync(graphs) ? readFileSync(graphs, "utf8").trim().split("\n") : []
console.log(JSON.stringify({ wrong, graphs: lines.map((line) => line.split(" ").map(Number)) }))
