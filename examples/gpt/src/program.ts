/**
 * The program, in the order in which things happen: command line, text, baseline, training, judgement, picture, samples.
 */
import { mkdirSync } from "node:fs"
import { relative } from "node:path"
import { bigramLoss, bits, fitBigram } from "./bigram"
import { checkCompatible, readCheckpoint, restore, saveCheckpoint } from "./checkpoint"
import { type Corpus, checkLength, readRepository, readText, windows } from "./data"
import { requireNativeBackend } from "./native-backend"
import { checkHeads, configOf, type Options, parseOptions } from "./options"
import { writePlot } from "./plot"
import { showProgress, thousands } from "./progress"
import { everybody, isRank, startRanks } from "./ranks"
import { sample } from "./sample"
import { type Progress, stepsWithin, Trainer, train } from "./train"

/** Held-out windows that the verdict rests on, at most: more change its third digit and take their time. */
const MAX_WINDOWS = 1024
/** Without --steps, training that takes this many times longer than planned is ended: the machine has become slower. */
const PATIENCE = 1.5

/** Of several processes the first speaks for all, but for their progress. */
const isFirst = (): boolean => everybody().rank() === 0
const say = (line = ""): boolean => isFirst() && process.stdout.write(`${line}\n`)
const short = (path: string): string => {
  const here = relative(process.cwd(), path)
  return here.startsWith("..") ? path : here
}
const loss = (nats: number): string => `${nats.toFixed(3)} nats (${bits(nats).toFixed(3)} bits) a byte`

/** A trainer and its progress: at the start, or where the checkpoint is. */
function prepare(options: Options, corpus: Corpus): { trainer: Trainer; progress: Progress } {
  if (!options.resume) {
    const config = configOf(options)
    checkHeads(config)
    checkLength(corpus, config.context)
    const steps = options.steps ?? stepsWithin(options.seconds, config, corpus)
    const progress = { step: 0, seconds: 0, history: { train: [], validation: [] } }
    return { trainer: new Trainer(config, steps), progress }
  }
  const checkpoint = readCheckpoint(options.out)
  checkCompatible(checkpoint, corpus, options)
  const trainer = new Trainer(checkpoint.config, options.steps ?? checkpoint.steps)
  restore(trainer, checkpoint)
  say(`Resuming after step ${checkpoint.progress.step} of ${trainer.steps}.`)
  return { trainer, progress: checkpoint.progress }
}

/** Tells if the user has asked to stop. A second Ctrl-C finds no listener and ends the process at once. */
function listenForSignals(onSignal: () => void): { asked: () => boolean; forget: () => void } {
  let asked = false
  const signals = ["SIGINT", "SIGTERM"] as const
  const forget = (): void => {
    for (const signal of signals) process.removeListener(signal, listener)
  }
  const listener = (): void => {
    asked = true
    forget()
    onSignal()
  }
  for (const signal of signals) process.on(signal, listener)
  return { asked: () => asked, forget }
}

/** Trains to the end; false when the user stopped it. */
async function run(trainer: Trainer, progress: Progress, corpus: Corpus, options: Options): Promise<boolean> {
  const { batch, context } = trainer.config
  const bar = showProgress({
    first: progress.step,
    last: trainer.steps,
    tokensPerStep: batch * context,
    stream: process.stdout,
  })
  const signals = listenForSignals(() => {
    bar.stop()
    say("Stopping after this step; once more to quit at once.")
  })
  const began = performance.now()
  let saved = began
  try {
    await train(trainer, corpus, progress, {
      onStep: (step, loss, validation) => bar.update({ step, loss, validation }),
      stop: () =>
        signals.asked() ||
        (options.steps === null && performance.now() - began > PATIENCE * options.seconds * 1000),
      between: () => {
        if (performance.now() - saved < options.saveEvery * 1000) return
        if (isFirst()) saveCheckpoint(options.out, trainer, progress, corpus)
        saved = performance.now()
      },
    })
    bar.stop()
    if (!isFirst()) return !signals.asked()
    const file = saveCheckpoint(options.out, trainer, progress, corpus)
    if (!signals.asked()) return true
    say(`Saved step ${progress.step} of ${trainer.steps} to ${short(file)}. To go on:`)
    const out = options.given.has("out") ? ` --out ${options.out}` : ""
    const ranks = options.ranks > 1 ? ` --ranks ${options.ranks}` : ""
    say(`  npm run demo -- --resume${out}${ranks}${textFlag(options)}`)
    return false
  } finally {
    bar.stop()
    signals.forget()
  }
}

const textFlag = ({ text }: Options): string => (text === null ? "" : ` --text ${text}`)

export async function main(args: readonly string[]): Promise<number> {
  const options = parseOptions(args)
  if (options === null) return 0
  requireNativeBackend()
  if (options.ranks > 1 && !isRank()) return await startRanks(options.ranks, args)
  const corpus = options.text === null ? readRepository() : readText(options.text)
  mkdirSync(options.out, { recursive: true })
  const { trainer, progress } = prepare(options, corpus)
  const { config, model } = trainer
  const held = windows(corpus.validation, config.context, MAX_WINDOWS)
  const bigram = fitBigram(corpus.train)
  const baseline = bigramLoss(bigram, held)

  say(
    `Text: ${corpus.name}, ${thousands(corpus.train.length)} bytes to learn, ${thousands(corpus.validation.length)} held out`,
  )
  say(
    `Model: ${thousands(model.size)} parameters, ${config.layers} layers, width ${config.width}, context ${config.context}`,
  )
  say(`Bigram baseline on the held-out text: ${loss(baseline)}`)
  say(`Training: ${thousands(trainer.steps)} steps of ${config.batch} × ${config.context} bytes`)
  const { step, seconds } = progress
  const finished = await run(trainer, progress, corpus, options)
  const trained = progress.step - step
  if (trained > 0) {
    const speed = (trained * config.batch * config.context) / (progress.seconds - seconds)
    say(
      `Trained ${thousands(trained)} steps in ${(progress.seconds - seconds).toFixed(0)} s: ${thousands(speed)} tokens/s`,
    )
  }
  if (!finished) return 130
  if (!isFirst()) return 0

  const final = trainer.evaluate(held)
  const title = `A GPT of ${thousands(model.size)} parameters on ${corpus.name}`
  const files = await writePlot(options.out, progress.history, baseline, title)
  say(`Loss curve: ${files.map(short).join(", ")}`)
  for (const text of options.sample > 0
    ? sample(model, { ...options, ...config, count: options.sample })
    : [])
    say(`\n──── ${JSON.stringify(options.prompt)} goes on:\n${text}`)
  say(`\nHeld-out text, ${thousands(held.length * config.context)} predictions:`)
  say(`  GPT     ${loss(final)}`)
  say(`  bigram  ${loss(baseline)}`)
  const difference = Math.abs(100 * (1 - final / baseline)).toFixed(1)
  say(
    final < baseline
      ? `Verdict: the GPT beats the bigram baseline by ${difference} %.`
      : `Verdict: the GPT does not beat the bigram baseline; its loss is ${difference} % higher. Train longer.`,
  )
  return 0
}
