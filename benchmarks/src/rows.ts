/** The rows: what is measured, how often, and in what unit. Each row gives one number a round; smaller is better. */
import { mx, nn, optim } from "lazuli"

/** One measured workload. */
export interface Row {
  readonly name: string
  readonly unit: string
  /** How many numbers are taken. */
  readonly rounds: number
  /** Sets up, and gives the function that takes one number. */
  prepare(): () => number
}

const milliseconds = (body: () => void): number => {
  const start = performance.now()
  body()
  return performance.now() - start
}

/** `count` dependent additions of 16 numbers, one evaluation; microseconds an operation. */
function chain(name: string, held: boolean): Row {
  const count = 1000
  return {
    name,
    unit: "µs/op",
    rounds: 400,
    prepare() {
      const y = mx.ones([16])
      mx.eval(y)
      return () => {
        const kept: unknown[] = []
        return (
          milliseconds(() => {
            let x = y
            for (let i = 0; i < count; i++) {
              x = x.add(y)
              if (held) kept.push(x)
            }
            mx.eval(x)
          }) *
          (1000 / count)
        )
      }
    },
  }
}

const oneOperation: Row = {
  name: "one add, one eval (16 elements)",
  unit: "µs",
  rounds: 400,
  prepare() {
    const y = mx.ones([16])
    mx.eval(y)
    return () =>
      milliseconds(() => {
        for (let i = 0; i < 100; i++) mx.eval(y.add(y))
      }) * 10
  },
}

/** 100,000 steps that make a 1 MB array each, without dispose: the most resident memory seen, in MB. */
const memory: Row = {
  name: "synchronous loop, 100,000 × 1 MB: peak resident memory",
  unit: "MB",
  rounds: 1,
  prepare() {
    const x = mx.zeros([512, 512])
    return () => {
      let peak = 0
      for (let i = 0; i < 100_000; i++) {
        mx.eval(x.add(i))
        if (i % 100 === 0) peak = Math.max(peak, process.memoryUsage.rss())
      }
      return peak / 2 ** 20
    }
  },
}

/** A small transformer: 4 layers, 128 wide, length 64, 256 tokens. */
class Transformer extends nn.Module {
  tokens = new nn.Embedding(256, 128)
  positions = new nn.Embedding(64, 128)
  body = new nn.TransformerEncoder(4, 128, 4, { mlpDims: 512, normFirst: true })
  head = new nn.Linear(128, 256)
  forward(ids: mx.Array): mx.Array {
    const mask = nn.MultiHeadAttention.createAdditiveCausalMask(64)
    return this.head.forward(
      this.body.forward(this.tokens.forward(ids).add(this.positions.forward(mx.arange(64))), mask),
    )
  }
}

/** The graph alone of a transformer's loss and of all its gradients; nothing is evaluated. */
function transformerGraph(name: string, withGradient: boolean): Row {
  return {
    name,
    unit: "ms",
    rounds: 400,
    prepare() {
      const model = new Transformer()
      const [x, y] = [mx.random.randint(0, 256, [16, 64]), mx.random.randint(0, 256, [16, 64])]
      mx.eval(x, y, model.parameters())
      const loss = (): mx.Array => nn.losses.crossEntropy(model.forward(x), y, { reduction: "mean" })
      const lossAndGradient = nn.valueAndGrad(model, loss)
      return () => milliseconds(withGradient ? lossAndGradient : loss)
    },
  }
}

/** One AdamW step of a small transformer, batch 16. */
function transformerStep(name: string, compiled: boolean): Row {
  return {
    name,
    unit: "ms",
    rounds: 30,
    prepare() {
      const model = new Transformer()
      const optimizer = new optim.AdamW({ learningRate: 1e-3 })
      const [x, y] = [mx.random.randint(0, 256, [16, 64]), mx.random.randint(0, 256, [16, 64])]
      const lossAndGradient = nn.valueAndGrad(model, (a: mx.Array, b: mx.Array) =>
        nn.losses.crossEntropy(model.forward(a), b, { reduction: "mean" }),
      )
      const eager = (a: mx.Array, b: mx.Array): mx.Array => {
        const [loss, gradient] = lossAndGradient(a, b)
        optimizer.update(model, gradient)
        return loss
      }
      const state = [model.state, optimizer.state]
      const step = compiled ? mx.compile(eager, { inputs: state, outputs: state }) : eager
      mx.eval(x, y, model.parameters())
      const run = (): number => milliseconds(() => mx.eval(step(x, y), state))
      for (let i = 0; i < 3; i++) run()
      return run
    },
  }
}

/** All rows, in the order of the table. */
export const rows: readonly Row[] = [
  chain("chain of 1,000 adds (16 elements)", false),
  chain("chain of 1,000 adds (16 elements), handles held", true),
  oneOperation,
  transformerGraph("transformer, 4 layers: graph of the loss", false),
  transformerGraph("transformer, 4 layers: graph of the loss and its gradients", true),
  transformerStep("transformer step, eager", false),
  transformerStep("transformer step, compiled", true),
  memory,
]
