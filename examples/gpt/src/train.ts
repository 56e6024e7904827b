/**
 * Training: one compiled function that computes the loss, its gradient and AdamW's update, the loop around it, and the evaluation
 * on held-out text.
 */
import { mx, nn, optim } from "lazuli"
import { batchAt, type Corpus, windows } from "./data"
import { GPT } from "./model"
import type { Config } from "./options"
import type { History } from "./plot"
import { everybody, largest, least } from "./ranks"

/** Steps at the beginning in which the learning rate rises from 0. */
const WARMUP = 100
/** Gradients longer than this are scaled down to it. */
const MAX_GRADIENT_NORM = 1
/** The learning rate ends at this part of its highest. */
const LAST_RATE = 0.05

/** Rises along a line, then falls along half a cosine. */
function schedule({ learningRate }: Config, steps: number) {
  const warmup = Math.min(WARMUP, Math.ceil(steps / 10))
  const rise = optim.linearSchedule(learningRate / warmup, learningRate, warmup)
  const fall = optim.cosineDecay(learningRate, Math.max(1, steps - warmup), learningRate * LAST_RATE)
  return optim.joinSchedules([rise, fall], [warmup])
}

/** A model, its optimizer, and the compiled functions that change and judge it. */
export class Trainer {
  readonly model: GPT
  readonly optimizer: optim.AdamW
  readonly #step: (windows: mx.Array) => mx.Array
  readonly #loss: (windows: mx.Array) => mx.Array

  /**
   * @param steps - the length of the learning rate's schedule
   * @param group - the processes that each have a part of a batch
   */
  constructor(
    readonly config: Config,
    readonly steps: number,
    readonly group: mx.distributed.Group = everybody(),
  ) {
    mx.random.seed(config.seed)
    const model = new GPT(config)
    const optimizer = new optim.AdamW({
      learningRate: schedule(config, steps),
      betas: [0.9, 0.95],
      weightDecay: 0.1,
      biasCorrection: true,
    })
    optimizer.init(model.trainableParameters())
    mx.eval(model.parameters(), optimizer.state)
    this.model = model
    this.optimizer = optimizer

    const state = [model.state, optimizer.state, mx.random.state]
    const lossAndGradient = nn.valueAndGrad(model, (batch: mx.Array) => model.loss(batch))
    this.#step = mx.compile(
      (batch: mx.Array) => {
        const [loss, gradient] = lossAndGradient(batch)
        const ranks = group.size()
        const average = ranks === 1 ? gradient : nn.averageGradients(gradient, group)
        const [clipped] = optim.clipGradNorm(average, MAX_GRADIENT_NORM)
        optimizer.update(model, clipped)
        return ranks === 1 ? loss : mx.distributed.allSum(loss, { group }).divide(ranks)
      },
      { inputs: state, outputs: state },
    )
    this.#loss = mx.compile((batch: mx.Array) => model.loss(batch), { inputs: model.state })
  }

  /** One step on windows [batch, context + 1], and its loss before the step. */
  step(batch: Int32Array): number {
    const { context } = this.config
    const part = batch.length / this.group.size()
    const own = batch.subarray(this.group.rank() * part, (this.group.rank() + 1) * part)
    const loss = this.#step(mx.array(own).reshape([-1, context + 1]))
    mx.eval(loss, this.model.state, this.optimizer.state)
    return loss.item() as number
  }

  /** The mean loss over windows, without dropout. */
  evaluate(pieces: readonly Int32Array[]): number {
    const { batch, context } = this.config
    this.model.eval()
    let sum = 0
    for (let i = 0; i < pieces.length; i += batch) {
      const rows = pieces.slice(i, i + batch)
      const flat = new Int32Array(rows.length * (context + 1))
      rows.forEach((row, k) => flat.set(row, k * (context + 1)))
      sum += (this.#loss(mx.array(flat).reshape([-1, context + 1])).item() as number) * rows.length
    }
    this.model.train()
    return sum / pieces.length
  }
}

/** The number of steps that fit into a time, by trying some on a model that is thrown away. */
export function stepsWithin(seconds: number, config: Config, corpus: Corpus): number {
  // By itself: others may take another number of steps here.
  const trainer = new Trainer({ ...config, batch: config.batch / everybody().size() }, 1e6, ALONE)
  const step = (i: number): number => {
    const start = performance.now()
    trainer.step(batchAt(corpus.train, trainer.config.batch, config.context + 1, config.seed, i))
    return (performance.now() - start) / 1000
  }
  for (let i = 0; i < 3; i++) step(i)
  const times: number[] = []
  for (let total = 0, i = 3; total < Math.min(2, seconds / 10) && i < 100; i++) {
    times.push(step(i))
    total += times.at(-1) as number
  }
  const typical = times.sort((a, b) => a - b)[times.length >> 1]
  return least(Math.max(1, Math.floor((seconds * TRAINING_SHARE) / typical)))
}

const ALONE = new mx.distributed.Group()

/** The share of the time that evaluations and checkpoints leave. */
const TRAINING_SHARE = 0.92
/** Evaluations in a run, and windows in each. */
const EVALUATIONS = 20
const EVALUATION_WINDOWS = 128
/** Losses that the shown one is averaged over, about. */
const SMOOTHING = 0.97

/** The progress of a run. */
export interface Progress {
  /** Steps done. */
  step: number
  /** Seconds of training so far. */
  seconds: number
  history: { train: [number, number][]; validation: [number, number][] } & History
}

/** Called by the loop after each step. */
export interface Watcher {
  onStep?(step: number, smoothedLoss: number, validation: number | null): void
  /** True to stop now. */
  stop?(progress: Progress): boolean
  /** Called between steps; a checkpoint may be written. */
  between?(progress: Progress): void
}

/**
 * Trains from `progress.step` to the end of the trainer's schedule, and keeps `progress` current. Between steps the event loop
 * runs, so that signals and timers are heard.
 */
export async function train(
  trainer: Trainer,
  corpus: Corpus,
  progress: Progress,
  watcher: Watcher,
): Promise<void> {
  const { config, steps } = trainer
  const { history } = progress
  const held = windows(corpus.validation, config.context, EVALUATION_WINDOWS)
  const every = Math.max(1, Math.ceil(steps / EVALUATIONS))
  const evaluate = (): void => {
    if (history.validation.at(-1)?.[0] === progress.step) return
    history.validation.push([progress.step, trainer.evaluate(held)])
  }
  let smoothed = 0
  let weight = 0
  const before = progress.seconds
  const start = performance.now()
  if (progress.step === 0) evaluate()
  while (progress.step < steps) {
    const loss = trainer.step(
      batchAt(corpus.train, config.batch, config.context + 1, config.seed, progress.step),
    )
    progress.step++
    history.train.push([progress.step, loss])
    smoothed = smoothed * SMOOTHING + loss
    weight = weight * SMOOTHING + 1
    if (progress.step % every === 0 || progress.step === steps) evaluate()
    progress.seconds = before + (performance.now() - start) / 1000
    watcher.onStep?.(progress.step, smoothed / weight, history.validation.at(-1)?.[1] ?? null)
    await new Promise(setImmediate)
    if (largest(watcher.stop?.(progress) ? 1 : 0) === 1) return
    watcher.between?.(progress)
  }
}
