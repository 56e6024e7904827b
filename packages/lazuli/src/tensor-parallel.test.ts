import { fileURLToPath } from "node:url"
import { expect, test } from "vitest"
import { bundle } from "../../../tooling/source-bundle.mjs"
import { runJob } from "../../distributed/test/run-job"

test.each([2, 4])(
  "a language model spread over %i ranks says what one process says",
  async (ranks) => {
    const program = await bundle(fileURLToPath(new URL("../test/tensor-parallel.ts", import.meta.url)))
    const { code, out, errors } = await runJob([program], ranks, { timeLimit: 20 })
    expect(code, errors.flat().join("\n")).toBe(0)
    for (const [line] of out)
      expect(JSON.parse(line)).toEqual({
        llama: true,
        "llama, sampled": true,
        "llama, quantized": true,
        phi3: true,
        "phi3, sampled": true,
        "phi3, quantized": true,
        "odd features": true,
        "fewer key-value heads": true,
      })
  },
  120_000,
)
