import { fileURLToPath } from "node:url"
import { expect, test } from "vitest"
import { bundle } from "../../../tooling/source-bundle.mjs"
import { runJob } from "../../distributed/test/run-job"

test("a language model spread over 2 ranks says what one process says", async () => {
  const program = await bundle(fileURLToPath(new URL("../test/tensor-parallel.ts", import.meta.url)))
  const { code, out, errors } = await runJob([program], 2, { timeLimit: 20 })
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
    })
}, 60_000)
