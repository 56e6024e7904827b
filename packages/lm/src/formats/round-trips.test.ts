/** Every family in every form: quantized, saved as a folder, as a GGUF file, and as a folder again. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { tiny, writeCheckpoint } from "../../test/checkpoints"
import { forGguf } from "../../test/gguf-checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-trips-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const TOKENS = mx.array([Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 256)], mx.int32)

/** Logits, or an encoder's states or scores. */
function outputOf({ network }: lm.LoadedModel): mx.Array {
  if (network instanceof lm.CausalNetwork) return network.forward(TOKENS).astype(mx.float32)
  const encoder = network as lm.EncoderNetwork
  const hidden = encoder.hidden(TOKENS, null, null)
  return (encoder.scores ? encoder.score(hidden) : hidden).astype(mx.float32)
}
/** The largest difference, as a part of the largest value. */
const difference = (a: mx.Array, b: mx.Array): number =>
  a.subtract(b).abs().max().divide(a.abs().max()).item() as number
/** The same of the median token: rounding may choose other experts for some. */
function typicalDifference(a: mx.Array, b: mx.Array): number {
  const rows = a.subtract(b).abs().max(-1).reshape([-1]).tolist() as number[]
  return rows.sort((x, y) => x - y)[rows.length >> 1] / (a.abs().max().item() as number)
}

const FORMATS: readonly lm.QuantizeModelOptions[] = [
  ...[2, 3, 4, 5, 6, 8].map((bits) => ({ bits, groupSize: 32 })),
  ...(["mxfp4", "mxfp8", "nvfp4"] as const).map((mode) => ({ mode })),
]
/** Routers of experts, which have 8 bits, are float32 in GGUF files, and rounded here. */
const hasExperts = (name: string): boolean => /moe|mixtral/.test(name)
/** Those that GGUF files have, too. */
const isCopied = (name: string, { bits, mode }: lm.QuantizeModelOptions): boolean =>
  !hasExperts(name) && (mode === "mxfp4" || bits === 4 || bits === 5)

const families: Record<string, (typeof tiny)[string]> = { ...tiny, ...forGguf }
const hasGguf = (name: string): boolean => name in forGguf || name === "bert" || name === "bert-reranker"

test.each(Object.keys(families))("%s is the same in every form", async (name) => {
  const source = writeCheckpoint(name, join(scratch, name), 1, families[name])
  for (const format of [null, ...FORMATS]) {
    const label = JSON.stringify(format)
    const dtype = format ? mx.float16 : mx.float32
    let model = await lm.load(source, { dtype })
    if (format) model = lm.quantize(model, format)
    const want = outputOf(model)
    const [folder, file] = [join(scratch, "folder"), join(scratch, "file.gguf")]
    lm.save(model, folder)
    const saved = await lm.load(folder)
    expect(difference(want, outputOf(saved)), label).toBe(0)
    if (!hasGguf(name)) continue
    lm.save(saved, file)
    const read = await lm.load(file, { dtype })
    const got = outputOf(read)
    if (!format) expect(difference(want, got)).toBeLessThan(1e-5)
    else if (isCopied(name, format)) expect(difference(want, got), label).toBe(0)
    // Others become float16, or float32.
    else expect(typicalDifference(want, got), label).toBeLessThan(hasExperts(name) ? 0.05 : 0.01)
    lm.save(read, folder)
    expect(difference(got, outputOf(await lm.load(folder))), label).toBe(0)
  }
})
