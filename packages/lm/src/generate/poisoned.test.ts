/** Keys and values that are NaN or infinite do not reach another request, nor the same one after they are trimmed. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { trimCache } from "../models/cache"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-poisoned-"))
afterAll(() => rmSync(scratch, { recursive: true }))
/** A token whose embedding is not finite. */
const BAD = 200

/** A model with {@link BAD}. */
async function poisoned(family: string, value: number): Promise<lm.LoadedModel> {
  const model = await lm.load(writeCheckpoint(family, join(scratch, family)))
  const { embedTokens } = (model.network as unknown as { model: { embedTokens: { weight: mx.Array } } }).model
  const isBad = mx.arange(embedTokens.weight.shape[0]).equal(BAD).expandDims(1)
  embedTokens.weight = mx.where(isBad, mx.array(value), embedTokens.weight)
  return model
}

const prompt = (seed: number, length = 9): number[] =>
  Array.from({ length }, (_, i) => (i * i * 7 + i * seed + 3) % 150)
/** Tokens other than the bad one, which the output layer may be tied to. */
const options = { maxTokens: 12, ignoreEos: true, logitBias: { [BAD]: -Infinity } }

async function tokensOf(pieces: AsyncIterable<lm.Piece>): Promise<number[]> {
  const tokens: number[] = []
  for await (const { token } of pieces) tokens.push(token)
  return tokens
}

describe.each([Number.NaN, Infinity])("a token of %d", (value) => {
  test.each([{}, { pageTokens: 4 }, { compile: false }] as const)(
    "fails its own request of a batch, %j",
    async (how) => {
      const model = await poisoned("llama", value)
      const alone = (seed: number): Promise<number[]> => tokensOf(lm.stream(model, prompt(seed), options))
      const batch = new lm.Batcher(model, how)
      const long = tokensOf(batch.stream(prompt(1), { ...options, maxTokens: 60 }))
      const hostile = { ...options, logitBias: { [BAD]: 100 } }
      await expect(tokensOf(batch.stream(prompt(2, 40), hostile))).rejects.toThrow("not numbers")
      for (const seed of [3, 4])
        expect(await tokensOf(batch.stream(prompt(seed), options))).toEqual(await alone(seed))
      expect(await long).toEqual(await tokensOf(lm.stream(model, prompt(1), { ...options, maxTokens: 60 })))
      batch.close()
    },
  )

  test.each([
    ["llama", {}],
    ["llama-wide", { cacheBits: 8 }],
    ["llama", { pageTokens: 4 }],
    ["mistral", {}],
  ] as const)("of %s is gone from a cache %j once it is trimmed", async (family, how) => {
    const model = await poisoned(family, value)
    const network = model.network as lm.CausalNetwork
    const cacheOf = (...parts: readonly number[][]): lm.Cache => {
      const cache = lm.makeCache(network, how)
      for (const part of parts) mx.eval(network.forward(mx.array([part], mx.int32), cache))
      return cache
    }
    // In one call, causal attention would give earlier tokens NaN too.
    const bad = cacheOf(prompt(5), [BAD, BAD, BAD, BAD])
    trimCache(bad, 4)
    const rest = [...prompt(5), 7, 8]
    const run = (cache: lm.Cache): Promise<number[]> =>
      tokensOf(lm.stream(model, rest, { ...options, cache }))
    expect(await run(bad)).toEqual(await run(cacheOf(prompt(5))))
  })
})
