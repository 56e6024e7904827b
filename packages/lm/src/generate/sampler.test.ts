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
