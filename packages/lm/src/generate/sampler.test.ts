/** The tokens that a sampler chooses from. */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { Sampler, type SamplingOptions } from "./sampler"

const logits = mx.log(mx.array([0.05, 0.2, 0.5, 0.15, 0.1]))

async function chosen(options: SamplingOptions): Promise<number[]> {
  const sampler = new Sampler({ temperature: 1, seed: 3, ...options }, [])
  const tokens = new Set<number>()
  for (let i = 0; i < 300; i++) tokens.add((await sampler.choose(logits)).token)
  return [...tokens].sort((a, b) => a - b)
}

test.each<[SamplingOptions, number[]]>([
  [{}, [0, 1, 2, 3, 4]],
  [{ topK: 2 }, [1, 2]],
  [{ topP: 0.8 }, [1, 2, 3]],
  [{ minP: 0.15 }, [1, 2, 3, 4]],
  // The sum before token 3 is 0.7, of which min-p excludes nothing.
  [{ topP: 0.8, minP: 0.25 }, [1, 2, 3]],
  [{ topP: 0.99, minP: 0.35 }, [1, 2]],
  [{ topK: 3, topP: 0.8, minP: 0.25 }, [1, 2]],
  [{ minP: 1 }, [2]],
])("with %j are those of transformers", async (options, want) => {
  expect(await chosen(options)).toEqual(want)
})

test("log-probabilities are those of the chosen and the most likely tokens", async () => {
  const sampler = new Sampler({ logitBias: { 3: 1.2 } }, [], 3)
  const { token, logprob, top } = await sampler.choose(logits)
  const bias = Math.exp(1.2)
  const total = 0.85 + 0.15 * bias
  expect(token).toBe(2)
  expect(logprob).toBeCloseTo(Math.log(0.5 / total), 5)
  expect(top.map((each) => each.token)).toEqual([2, 3, 1])
  expect(top[1].logprob).toBeCloseTo(Math.log((0.15 * bias) / total), 5)
  expect((await new Sampler({}, [], 0).choose(logits)).top).toEqual([])
  expect((await new Sampler({}, [], 20).choose(logits)).top.map((each) => each.token)).toEqual([
    2, 1, 3, 4, 0,
  ])
})

test("the most likely token alone is the first of several", async () => {
  const even = mx.log(mx.array([0.1, 0.4, 0.4, 0.1]))
  for (const options of [{ topK: 1 }, { topP: 0 }, { temperature: 0 }]) {
    const sampler = new Sampler({ temperature: 1, seed: 3, ...options }, [])
    for (let i = 0; i < 20; i++) expect((await sampler.choose(even)).token).toBe(1)
  }
})

test("tokens as likely as the last one that top-k or top-p keeps are kept", async () => {
  const even = mx.log(mx.array([0.1, 0.2, 0.2, 0.4, 0.1]))
  for (const options of [{ topK: 2 }, { topP: 0.5 }]) {
    const sampler = new Sampler({ temperature: 1, seed: 3, ...options }, [])
    const tokens = new Set<number>()
    for (let i = 0; i < 100; i++) tokens.add((await sampler.choose(even)).token)
    expect([...tokens].sort()).toEqual([1, 2, 3])
  }
})
