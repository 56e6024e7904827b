import { mx } from "lazuli"
import { expect, test } from "vitest"
import { bigramLoss, fitBigram } from "./bigram"
import { divide, windows } from "./data"
import { generatedText } from "./generated-text"
import type { Config } from "./options"
import { type Progress, stepsWithin, Trainer, train } from "./train"

const config: Config = {
  batch: 8,
  context: 16,
  layers: 2,
  width: 32,
  heads: 2,
  learningRate: 1e-2,
  dropout: 0,
  seed: 1,
}
const corpus = divide("generated", [generatedText(8000)])
const start = (): Progress => ({ step: 0, seconds: 0, history: { train: [], validation: [] } })

test("training beats the bigram baseline on text that was held out", async () => {
  const trainer = new Trainer(config, 150)
  const progress = start()
  await train(trainer, corpus, progress, {})
  const held = windows(corpus.validation, config.context)
  const baseline = bigramLoss(fitBigram(corpus.train), held)
  expect(trainer.evaluate(held)).toBeLessThan(0.8 * baseline)
  expect(progress.step).toBe(150)
  expect(progress.history.train.length).toBe(150)
  expect(progress.history.validation.map(([step]) => step)).toContain(150)
})

test("a step needs nothing but kernels", () => {
  const trainer = new Trainer({ ...config, dropout: 0.1 }, 10)
  mx.resetBackendStats()
  const batch = new Int32Array(8 * 17).fill(65)
  for (let i = 0; i < 3; i++) trainer.step(batch)
  trainer.evaluate([batch.slice(0, 17)])
  expect(mx.backendStats()).toEqual({})
})

test("the same seed gives the same run, another one another", () => {
  const losses = (seed: number, dropout = 0) => {
    const trainer = new Trainer({ ...config, seed, dropout }, 10)
    const batch = Int32Array.from(corpus.train.subarray(0, 8 * 17))
    return [0, 1, 2].map(() => trainer.step(batch))
  }
  expect(losses(1)).toEqual(losses(1))
  expect(losses(1)).not.toEqual(losses(2))
  expect(losses(1, 0.5)).toEqual(losses(1, 0.5))
  expect(losses(1, 0.5)).not.toEqual(losses(1))
})

test("dropout rests while the model is judged", () => {
  const trainer = new Trainer({ ...config, dropout: 0.5 }, 10)
  const held = windows(corpus.validation, config.context, 4)
  expect(trainer.evaluate(held)).toBe(trainer.evaluate(held))
  expect(trainer.model.training).toBe(true)
})

test("the learning rate rises, falls, and ends above zero", () => {
  const trainer = new Trainer(config, 20)
  const rates = Array.from({ length: 20 }, () => {
    trainer.step(new Int32Array(8 * 17))
    return trainer.optimizer.learningRate.item() as number
  })
  expect(rates[0]).toBeLessThan(rates[1])
  expect(Math.max(...rates)).toBeCloseTo(0.01)
  expect(rates[19]).toBeLessThan(0.001)
  expect(rates[19]).toBeGreaterThan(0)
})

test("a watcher can stop the loop after any step", async () => {
  const progress = start()
  await train(new Trainer(config, 50), corpus, progress, { stop: ({ step }) => step === 7 })
  expect(progress.step).toBe(7)
})

test("a time becomes a number of steps", () => {
  expect(stepsWithin(0.5, config, corpus)).toBeGreaterThanOrEqual(1)
})
