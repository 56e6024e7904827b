/**
 * The soak's programs: training steps, tiny ones, whose cost is bookkeeping, and large ones, whose memory would show a leak at once; eager
 * and compiled; waited for by reading the loss, by a promise, or by nobody. A loop gets no help: nothing is disposed or collected.
 */
import { mx, nn, optim } from "lazuli"
import type { Sample, Settled } from "./soak-verdict"

/** The ways to wait for a step: `item` reads the loss, `await` awaits the evaluation, `nobody` hands it over and goes on. */
export const WAITS = ["item", "await", "nobody"] as const
export type Wait = (typeof WAITS)[number]
export const MODES = ["eager", "compiled"] as const
export type Mode = (typeof MODES)[number]

/** Rows of a batch, inputs and hidden units. */
const SIZES = {
  tiny: { rows: 4, inputs: 4, hidden: 8 },
  large: { rows: 256, inputs: 256, hidden: 1024 },
} as const
export type Size = keyof typeof SIZES

class Model extends nn.Module {
  readonly first: nn.Linear
  readonly second: nn.Linear
  constructor(inputs: number, hidden: number) {
    super()
    this.first = new nn.Linear(inputs, hidden)
    this.second = new nn.Linear(hidden, 1)
  }
  forward(x: mx.Array): mx.Array {
    return this.second.forward(nn.gelu(this.first.forward(x)))
  }
}

/** One training step, to be called again and again. Each makes its batch, as a data loader would. */
function trainingStep(size: Size, mode: Mode, wait: Wait): () => Promise<void> | undefined {
  const { rows, inputs, hidden } = SIZES[size]
  mx.random.seed(0)
  const model = new Model(inputs, hidden)
  const optimizer = new optim.Adam({ learningRate: 1e-4 })
  optimizer.init(model)
  const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) =>
    nn.losses.mseLoss(model.forward(x), y),
  )
  const update = (x: mx.Array, y: mx.Array): mx.Array => {
    const [loss, gradient] = lossAndGradient(x, y)
    optimizer.update(model, gradient)
    return loss
  }
  const state = [model.state, optimizer.state]
  const step = mode === "compiled" ? mx.compile(update, { inputs: state, outputs: state }) : update
  const numbers = Float32Array.from({ length: rows * inputs }, (_, i) => Math.sin(i))
  return () => {
    const x = mx.array(numbers).reshape([rows, inputs])
    const loss = step(x, mx.sin(mx.sum(x, 1, true)))
    if (wait === "item") {
      mx.eval(loss, state)
      if (!Number.isFinite(loss.item())) throw new Error("the loss is not finite any more")
      return undefined
    }
    const work = mx.asyncEval(loss, state)
    return wait === "await" ? work : undefined
  }
}

/** Memory in use after everything unreachable was given back. */
function settle(): Settled {
  mx.synchronize()
  const { active, buffers } = mx.memoryReport()
  return { active, buffers, heap: process.memoryUsage().heapUsed }
}

/** Memory in use at the moment, and the peak since the last time. */
function sample(step: number, start: number): Sample {
  const { rss, heapUsed, heapTotal } = process.memoryUsage()
  const seconds = (performance.now() - start) / 1000
  const [active, cache, peak] = [mx.getActiveMemory(), mx.getCacheMemory(), mx.getPeakMemory()]
  mx.resetPeakMemory()
  return { step, seconds, rss, heapUsed, heapTotal, active, cache, peak }
}

/** Runs steps. Only after a quarter of them, and after the last, garbage is collected, to see what is left then. */
export async function soak(
  what: { readonly size: Size; readonly mode: Mode; readonly wait: Wait; readonly steps: number },
  samples: number,
  note: (sample: Sample) => void,
): Promise<{ readonly quarter: Settled; readonly end: Settled }> {
  const step = trainingStep(what.size, what.mode, what.wait)
  const every = Math.max(1, Math.floor(what.steps / samples))
  const start = performance.now()
  let quarter = settle()
  for (let i = 1; i <= what.steps; i++) {
    const work = step()
    if (work) await work
    if (i % every === 0) note(sample(i, start))
    if (i === what.steps >> 2) quarter = settle()
  }
  return { quarter, end: settle() }
}
