/** Memory and reports of loading: at no time is more than one array there in two forms, and an aborted load leaves nothing. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { forGguf } from "../../test/gguf-checkpoints"
import { weightsOf } from "./packed"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-loading-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5))

const shards = writeCheckpoint("llama-256", at("shards"), 3, forGguf["llama-256"])
const dense = await lm.load(shards)
lm.save(dense, at("dense.gguf"))
lm.save(dense, at("half.gguf"), { type: "F16" })
for (const type of ["Q8_0", "Q4_K", "Q6_K"] as const) lm.save(dense, at(`${type}.gguf`), { type })
lm.save(lm.quantize(await lm.load(shards), { bits: 4 }), at("packed"))
writeCheckpoint("mixtral", at("experts"), 2)
writeCheckpoint("gpt2", at("gpt2"))

test.each<[string, lm.LoadModelOptions]>([
  ["shards", {}],
  ["shards", { dtype: mx.bfloat16 }],
  ["packed", {}],
  ["packed", { dtype: mx.float16 }],
  ["experts", {}],
  ["experts", { dtype: mx.bfloat16 }],
  ["gpt2", {}],
  ["dense.gguf", {}],
  ["dense.gguf", { dtype: mx.bfloat16 }],
  ["half.gguf", {}],
  ["half.gguf", { dtype: mx.float32 }],
  ["Q8_0.gguf", {}],
  ["Q4_K.gguf", {}],
  ["Q6_K.gguf", {}],
])(
  "loading %s with %j needs the model's memory and that of its largest array twice",
  async (name, options) => {
    await lm.load(at(name), options)
    await pause()
    mx.memoryReport()
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const model = await lm.load(at(name), options)
    const peak = mx.getPeakMemory() - before
    const arrays = Object.values(weightsOf(model))
    const bytes = arrays.reduce((sum, { nbytes }) => sum + nbytes, 0)
    // As float32, which files may have.
    const largest = 4 * Math.max(...arrays.map(({ size, dtype }) => (dtype === mx.uint32 ? 8 : 1) * size))
    expect(peak).toBeLessThan(bytes + 2 * largest)
  },
)

test.each(["shards", "packed", "Q4_K.gguf"])("an aborted load of %s leaves nothing", async (name) => {
  await lm.load(at(name))
  await pause()
  mx.memoryReport()
  const before = mx.getActiveMemory()
  const controller = new AbortController()
  const enough = new Error("enough")
  const onProgress = (done: number, total: number): void => {
    if (done > total / 2) controller.abort(enough)
  }
  await expect(lm.load(at(name), { onProgress, signal: controller.signal })).rejects.toBe(enough)
  for (let i = 0; i < 10 && mx.getActiveMemory() !== before; i++) {
    await pause()
    mx.memoryReport()
  }
  expect(mx.getActiveMemory() - before).toBe(0)
  await expect(lm.load(at(name), { signal: AbortSignal.abort(enough) })).rejects.toBe(enough)
})

test("a load says which types of a GGUF file it holds as they are, and which it converts", async () => {
  const storedOf = async (name: string, options: lm.LoadModelOptions = {}) =>
    (await lm.load(at(name), options)).stored
  const norms = { type: "F32", tensors: 5, packed: false }
  expect(await storedOf("Q4_K.gguf")).toEqual([
    { type: "Q4_K", tensors: 16, held: "4 bits in groups of 32", packed: true, converted: false },
    { ...norms, held: "float16", converted: true },
  ])
  expect(await storedOf("Q4_K.gguf", { dtype: mx.float32 })).toMatchObject([
    { type: "Q4_K" },
    { ...norms, held: "float32", converted: false },
  ])
  expect(await storedOf("dense.gguf")).toEqual([
    { type: "F32", tensors: 21, held: "float32", packed: false, converted: false },
  ])
  expect(await storedOf("half.gguf", { dtype: mx.bfloat16 })).toEqual([
    { type: "F16", tensors: 16, held: "bfloat16", packed: false, converted: true },
    { ...norms, held: "bfloat16", converted: true },
  ])
  expect(await storedOf("shards")).toBe(undefined)
})
