/** Streaming from a tiny checkpoint. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { spacedTokenizer, writeJson } from "../../test/tokenizer"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-"))
afterAll(() => rmSync(scratch, { recursive: true }))
let model: lm.LoadedModel
beforeAll(async () => {
  model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
})

test("pieces add up to the text of their tokens", async () => {
  let text = ""
  const tokens: number[] = []
  let finish: lm.FinishReason | null = null
  for await (const piece of lm.stream(model, "in the beginning", { maxTokens: 20, ignoreEos: true })) {
    text += piece.text
    tokens.push(piece.token)
    finish = piece.finish
  }
  expect(tokens.length).toBe(20)
  expect(finish).toBe("length")
  expect(text).toBe(model.tokenizer?.decode(tokens))
})

test("a text after a text begins with its space, and an answer does not", async () => {
  const folder = writeCheckpoint("llama", join(scratch, "spaced"))
  writeJson(folder, "tokenizer.json", spacedTokenizer())
  const spaced = await lm.load(folder)
  const tokenizer = spaced.tokenizer!
  const word = tokenizer.idOf("▁a")!
  const options = { maxTokens: 2, logitBias: { [word]: 1e4 } }
  const batch = new lm.Batcher(spaced)
  const batched = async (prompt: lm.Prompt, given: lm.GenerateOptions): Promise<string> => {
    let text = ""
    for await (const piece of batch.stream(prompt, given)) text += piece.text
    return text
  }
  const messages = [{ role: "user", content: "Hi" }]
  for (const generate of [
    (...given: [lm.Prompt, lm.GenerateOptions]) => lm.generate(spaced, ...given),
    batched,
  ]) {
    expect(await generate("Hi", options)).toBe(" a a")
    expect(await generate(messages, options)).toBe("a a")
    expect(await generate(tokenizer.encode("Hi"), options)).toBe("a a")
    expect(await generate(tokenizer.encode("Hi"), { ...options, continues: true })).toBe(" a a")
    expect(await generate("Hi", { ...options, continues: false })).toBe("a a")
  }
  batch.close()
})

test("the tokens do not depend on prefillStep", async () => {
  const prompt = Array.from({ length: 37 }, (_, i) => (i * 7) % 250)
  const run = async (options: lm.GenerateOptions): Promise<number[]> => {
    const tokens: number[] = []
    for await (const { token } of lm.stream(model, prompt, { maxTokens: 12, ignoreEos: true, ...options }))
      tokens.push(token)
    return tokens
  }
  const want = await run({})
  for (const prefillStep of [1, 8, 36, 37]) expect(await run({ prefillStep })).toEqual(want)
})
