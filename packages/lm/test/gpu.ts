/** Tests for GPUs: the tokens and training results of the CPU. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import { writeCheckpoint } from "./checkpoints"

const PROMPT = Array.from({ length: 9 }, (_, i) => (i * 37 + 11) % 250)

/** Runs `body` with a default device. */
async function on<T>(device: mx.Device, body: () => Promise<T>): Promise<T> {
  const before = mx.defaultDevice()
  mx.setDefaultDevice(device)
  try {
    return await body()
  } finally {
    mx.setDefaultDevice(before)
  }
}

/** Tests of the current GPU backend. */
export function gpuTests(): void {
  const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-gpu-"))
  afterAll(() => rmSync(scratch, { recursive: true }))
  let folder = ""
  beforeAll(() => {
    folder = writeCheckpoint("llama", join(scratch, "llama"))
  })

  test.each([{}, { bits: 4 }] as const)(
    "writes the CPU's tokens, packed by %j",
    async ({ bits }: { bits?: number }) => {
      const run = async (): Promise<number[]> => {
        const loaded = await lm.load(folder)
        const model = bits ? lm.quantize(loaded, { bits }) : loaded
        const tokens: number[] = []
        for await (const { token } of lm.stream(model, PROMPT, { maxTokens: 6, ignoreEos: true }))
          tokens.push(token)
        return tokens
      }
      const want = await on(mx.cpu, run)
      expect(await on(mx.gpu, run)).toEqual(want)
    },
    300_000,
  )

  test("by default a server's caches may use half of the device's free memory", async () => {
    await on(mx.gpu, async () => {
      const { app, batch } = lm.createServer(await lm.load(folder), {
        maxTokens: 2 ** 40,
        contextLength: 2 ** 41,
      })
      const body = JSON.stringify({ prompt: "the", max_tokens: 2 ** 40 })
      const response = await app.request("/v1/completions", { method: "POST", body })
      expect([response.status, await response.text()]).toEqual([
        400,
        expect.stringContaining("do not fit maxCacheBytes"),
      ])
      batch?.close()
    })
  })

  test("learns with adapters what the CPU learns", async () => {
    const data = join(scratch, "data.jsonl")
    writeFileSync(data, ["the end", "in the end"].map((text) => JSON.stringify({ text })).join("\n"))
    const run = async (): Promise<[before: number, after: number]> => {
      mx.random.seed(3)
      const { network, tokenizer } = (await lm.load(folder)) as lm.LoadedModel<lm.CausalNetwork>
      lm.addAdapters(network, { rank: 4, scale: 8 })
      const examples = lm.readDataset(data, tokenizer!)
      const before = await lm.evaluate(network, examples)
      await lm.train(network, examples, { steps: 12, batchSize: 2, learningRate: 0.02 })
      return [before, await lm.evaluate(network, examples)]
    }
    const want = await on(mx.cpu, run)
    const got = await on(mx.gpu, run)
    expect(got[0]).toBeCloseTo(want[0], 4)
    expect(want[1]).toBeLessThan(want[0] * 0.8)
    expect(got[1]).toBeLessThan(got[0] * 0.8)
  }, 300_000)

  test("goes on where it stopped, bit for bit where that is asked for", async () => {
    const examples = [5, 9].map((n) => ({ tokens: PROMPT.slice(0, n), from: 1 }))
    const run = async (state: string, parts: readonly number[]): Promise<number[]> => {
      const losses: number[] = []
      for (const steps of parts) {
        mx.random.seed(3)
        const { network } = (await lm.load(folder)) as lm.LoadedModel<lm.CausalNetwork>
        lm.addAdapters(network, { rank: 4, scale: 8 })
        await lm.train(network, examples, {
          ...{ steps, batchSize: 2, learningRate: 0.02, deterministic: true, state: join(scratch, state) },
          onStep: ({ loss }) => losses.push(loss),
        })
      }
      return losses
    }
    await on(mx.gpu, async () => {
      expect(await run("stopped", [2, 5])).toEqual(await run("whole", [5]))
    })
  }, 300_000)
}
