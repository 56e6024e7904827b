import { mx } from "lazuli"
import { expect, test } from "vitest"
import { divide } from "./data"
import { generatedText } from "./generated-text"
import { GPT } from "./model"
import { keepLargest, readable, sample } from "./sample"
import { Trainer, train } from "./train"

const shape = { context: 16, layers: 1, width: 32, heads: 2, dropout: 0.1 }
const options = { prompt: "the ", count: 2, length: 40, context: 16, temperature: 0.5, topK: 3, seed: 0 }

test("only the largest are kept", () => {
  expect(keepLargest(mx.array([[3, 1, 2, 4]]), 2).tolist()).toEqual([[3, -Infinity, -Infinity, 4]])
  expect(keepLargest(mx.array([3, 1]), 5).tolist()).toEqual([3, 1])
})

test("texts have the length asked for, beyond the context, and follow the seed", () => {
  const model = new GPT(shape)
  const texts = sample(model, { ...options, topK: 256, temperature: 1 })
  expect(texts.length).toBe(2)
  expect(texts[0]).not.toBe(texts[1])
  expect(sample(model, { ...options, topK: 256, temperature: 1 })).toEqual(texts)
  expect(sample(model, { ...options, topK: 256, temperature: 1, seed: 1 })).not.toEqual(texts)
  expect(model.training).toBe(true)
})

test("the most likely byte alone does not depend on the seed", () => {
  const model = new GPT(shape)
  const greedy = (seed: number) => sample(model, { ...options, count: 1, topK: 1, seed })
  expect(greedy(0)).toEqual(greedy(1))
})

test("a trained model writes words of its text", async () => {
  const config = { ...shape, layers: 2, batch: 16, learningRate: 1e-2, dropout: 0, seed: 0 }
  const trainer = new Trainer(config, 200)
  const progress = { step: 0, seconds: 0, history: { train: [], validation: [] } }
  await train(trainer, divide("", [generatedText(8000)]), progress, {})
  const [text] = sample(trainer.model, { ...options, count: 1, length: 80 })
  const known = new Set(
    Buffer.from(generatedText(8000))
      .toString()
      .split(/[ .\n]+/),
  )
  const words = text.split(/[ .\n]+/).slice(1, -1)
  expect(words.filter((word) => known.has(word)).length / words.length).toBeGreaterThan(0.8)
})

test("what a terminal would obey is not printed", () => {
  expect(readable(Uint8Array.of(0x1b, 0x5b, 0x41, 9, 10, 0, 0xff))).toBe("\ufffd[A\t\n\ufffd\ufffd")
})
