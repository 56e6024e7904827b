import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { mx } from "lazuli"
import { afterEach, beforeEach, expect, test } from "vitest"
import { checkCompatible, readCheckpoint, restore, saveCheckpoint } from "./checkpoint"
import { divide } from "./data"
import { generatedText } from "./generated-text"
import { type Config, parseOptions } from "./options"
import { type Progress, Trainer, train } from "./train"

const config: Config = {
  batch: 4,
  context: 8,
  layers: 2,
  width: 16,
  heads: 2,
  learningRate: 1e-2,
  dropout: 0.2,
  seed: 5,
}
const corpus = divide("generated", [generatedText(3000)])
const start = (): Progress => ({ step: 0, seconds: 0, history: { train: [], validation: [] } })
const parse = (line: string) => parseOptions(line.split(" ").filter(Boolean))!

let folder = ""
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lazuli-checkpoint-"))
})
afterEach(() => rmSync(folder, { recursive: true }))

/** All that a run has come to, bit for bit. */
const bytesOf = (trainer: Trainer) =>
  mx
    .treeFlatten({
      model: trainer.model.parameters(),
      optimizer: trainer.optimizer.state,
      random: mx.random.state,
    })
    .map(([name, a]) => `${name} ${a.dtype.name} ${Buffer.from(a.toTypedArray().buffer).toString("base64")}`)

test("ten steps, a checkpoint and ten more are twenty steps, bit for bit", async () => {
  const whole = new Trainer(config, 20)
  const progress = start()
  await train(whole, corpus, progress, {})
  const expected = bytesOf(whole)

  const first = new Trainer(config, 20)
  const half = start()
  await train(first, corpus, half, { stop: ({ step }) => step === 10 })
  saveCheckpoint(folder, first, half, corpus)

  mx.random.seed(999)
  const checkpoint = readCheckpoint(folder)
  const second = new Trainer(checkpoint.config, checkpoint.steps)
  restore(second, checkpoint)
  await train(second, corpus, checkpoint.progress, {})
  expect(bytesOf(second)).toEqual(expected)
  expect(checkpoint.progress.history).toEqual(progress.history)
})

test("a checkpoint is one file, and says what it is", () => {
  const file = saveCheckpoint(folder, new Trainer(config, 20), start(), corpus)
  saveCheckpoint(folder, new Trainer(config, 20), start(), corpus)
  expect(readdirSync(folder)).toEqual(["checkpoint.safetensors"])
  const [arrays, metadata] = mx.load(file, { returnMetadata: true }) as [Record<string, mx.Array>, object]
  expect(metadata).toMatchObject({ step: "0", steps: "20", seed: "5", data: corpus.hash })
  expect(Object.keys(arrays)).toContain("model.blocks.1.attention.qkvProj.weight")
})

test("an old checkpoint survives a save that fails", () => {
  const trainer = new Trainer(config, 20)
  const file = saveCheckpoint(folder, trainer, start(), corpus)
  const copy = join(folder, "copy")
  copyFileSync(file, copy)
  trainer.optimizer.state.broken = 5 as unknown as mx.Array
  expect(() => saveCheckpoint(folder, trainer, start(), corpus)).toThrow()
  expect(readCheckpoint(folder).progress.step).toBe(0)
  expect(existsSync(join(folder, "partial-checkpoint.safetensors"))).toBe(false)
})

test("what cannot be resumed is refused in one sentence", () => {
  expect(() => readCheckpoint(folder)).toThrow(`there is no checkpoint to resume in ${folder}`)
  const file = saveCheckpoint(folder, new Trainer(config, 20), start(), corpus)
  const checkpoint = readCheckpoint(folder)
  checkCompatible(checkpoint, corpus, parse("--width 16"))
  expect(() =>
    checkCompatible(checkpoint, corpus, parse("--learning-rate 0.5")),
  ).toThrowErrorMatchingInlineSnapshot(
    `[UserError: cannot resume: the checkpoint has --learning-rate 0.01, not 0.5]`,
  )
  expect(() =>
    checkCompatible(checkpoint, divide("x.txt", [generatedText(400)]), parse("")),
  ).toThrowErrorMatchingInlineSnapshot(
    `[UserError: cannot resume: the checkpoint was trained on another text than x.txt]`,
  )
  expect(() =>
    restore(new Trainer({ ...config, width: 32 }, 20), checkpoint),
  ).toThrowErrorMatchingInlineSnapshot(
    `[UserError: cannot resume: the checkpoint has shape [256,16] where the model has [256,32] for model.bytes.weight]`,
  )
  expect(() =>
    restore(new Trainer({ ...config, layers: 3 }, 20), checkpoint),
  ).toThrowErrorMatchingInlineSnapshot(
    `[UserError: cannot resume: the checkpoint has nothing for model.blocks.2.attentionNorm.weight]`,
  )
  writeFileSync(file, "no checkpoint at all")
  expect(() => readCheckpoint(folder)).toThrow("is no checkpoint of this program")
  mx.saveSafetensors(file, { a: mx.ones([1]) })
  expect(() => readCheckpoint(folder)).toThrow("its format is undefined, not lazuli-gpt-1")
})
