/** Examples and batches of a training run. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-train-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const folder = writeCheckpoint("llama", join(scratch, "llama"))

/** A network with adapters. */
async function adapted(source = folder): Promise<lm.CausalNetwork> {
  const network = (await lm.load(source)).network as lm.CausalNetwork
  mx.random.seed(3)
  lm.addAdapters(network, { rank: 2 })
  return network
}

test("examples that the network cannot read are errors before the first update", async () => {
  const gpt2 = await adapted(writeCheckpoint("gpt2", join(scratch, "gpt2")))
  const cases = [
    [Array.from({ length: 130 }, () => 7), "examples[1] has 130 tokens, the model supports 128"],
    [[1, 288], "examples[1]: the vocabulary of 288 has no token 288"],
  ] as const
  for (const [tokens, reason] of cases) {
    const examples = [
      { tokens: [1, 2], from: 1 },
      { tokens, from: 1 },
    ]
    await expect(lm.train(gpt2, examples, { steps: 1 })).rejects.toThrow(reason)
    await expect(lm.evaluate(gpt2, examples)).rejects.toThrow(reason)
  }
  // The last token is not read.
  await lm.evaluate(gpt2, [{ tokens: cases[0][0].slice(1), from: 1 }])
})

test("examples without a token in the loss are not trained on", async () => {
  const masked = { tokens: [1, 2], from: 2 }
  const train = async (examples: lm.Example[], batchSize: number): Promise<lm.StepReport[]> => {
    const network = await adapted()
    const reports: lm.StepReport[] = []
    await lm.train(network, examples, { steps: 3, batchSize, onStep: (report) => reports.push(report) })
    return reports
  }
  await expect(train([masked, masked], 1)).rejects.toThrow(/no example has a token in the loss/)
  const counted = { tokens: [1, 2, 3], from: 1 }
  expect(await train([masked, counted, masked], 1)).toEqual(await train([counted], 1))
})

test("a batch larger than the dataset has each example once", async () => {
  const network = await adapted()
  const tokens: number[] = []
  const examples = [2, 3, 5].map((length) => ({
    tokens: Array.from({ length: length + 1 }, () => 7),
    from: 1,
  }))
  await lm.train(network, examples, { steps: 4, batchSize: 8, onStep: (step) => tokens.push(step.tokens) })
  expect(tokens).toEqual([10, 10, 10, 10])
})
