/**
 * Decoding of a language model of 8 billion random weights on an NVIDIA GPU, through `@lazuli/lm`: bfloat16 and 4 bits, one stream, and 8
 * and 64 at once. PyTorch's side is peers/lm_gpu_pytorch.py, which is run on the same machine.
 *
 *   node benchmarks/dist/lm-gpu.js [--layers 32] [--batch 1,8,64] [--context 256] [--tokens 64] [--only REGEX] [--json FILE]
 */
import { writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import "@lazuli/backend-cuda"
import { median } from "./median"

const { values } = parseArgs({
  options: {
    layers: { type: "string", default: "32" },
    batch: { type: "string", default: "1,8,64" },
    context: { type: "string", default: "256" },
    tokens: { type: "string", default: "64" },
    only: { type: "string", default: "" },
    json: { type: "string" },
  },
})
const layers = Number(values.layers)
const context = Number(values.context)
const tokens = Number(values.tokens)
const config = {
  model_type: "llama",
  hidden_size: 4096,
  intermediate_size: 14_336,
  num_hidden_layers: layers,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  vocab_size: 128_256,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_theta: 500_000,
  tie_word_embeddings: false,
}
const promptOf = (row: number): number[] =>
  Array.from({ length: context }, (_, i) => (i * 7919 + row * 104_729) % config.vocab_size)

/** Bytes a second of a copy, read and written. */
function copyRate(): number {
  const x = mx.random.normal([2 ** 30 / 4])
  mx.eval(x)
  const taken = Array.from({ length: 8 }, () => {
    const begin = performance.now()
    const y = x.add(1)
    mx.eval(y)
    const ms = performance.now() - begin
    y.dispose()
    return ms
  })
  x.dispose()
  return 2 ** 31 / (Math.min(...taken) / 1000)
}

/** Milliseconds a step of one stream: the median. */
async function alone(model: lm.LoadedModel): Promise<number> {
  const taken: number[] = []
  let last = 0
  for await (const _piece of lm.stream(model, promptOf(0), { maxTokens: tokens, ignoreEos: true })) {
    const now = performance.now()
    if (last > 0) taken.push(now - last)
    last = now
  }
  return median(taken.slice(4))
}

/** Milliseconds a step of several streams: what all took from the last first token on, over the steps. */
async function together(model: lm.LoadedModel, rows: number): Promise<number> {
  const batch = new lm.Batcher(model, { maxRows: rows, prefillStep: 512 })
  const times: number[][] = []
  const run = async (row: number): Promise<void> => {
    const own: number[] = []
    times.push(own)
    for await (const _piece of batch.stream(promptOf(row), { maxTokens: tokens + rows, ignoreEos: true }))
      own.push(performance.now())
  }
  await Promise.all(Array.from({ length: rows }, (_, row) => run(row)))
  batch.close()
  const begin = Math.max(...times.map((own) => own[0]))
  const last = times.find((own) => own[0] === begin)!
  const steps = last.slice(1, tokens).map((time, i) => time - last[i])
  return median(steps.slice(4))
}

mx.setDefaultDevice(mx.gpu)
const copies = copyRate()
console.log(`${mx.deviceInfo(mx.gpu).deviceName}: a copy moves ${(copies / 1e9).toFixed(0)} GB/s`)
const rows: object[] = []
const begin = performance.now()
const dense = lm.fromConfig(config, mx.bfloat16)
console.log(`bfloat16: made in ${((performance.now() - begin) / 1000).toFixed(1)} s`)
const read = (model: lm.LoadedModel): number =>
  (mx.treeFlatten(model.network.parameters()) as [string, mx.Array][]).reduce(
    (sum, [name, array]) => sum + (name.includes("embedTokens") ? 0 : array.nbytes),
    0,
  )
const cacheToken = layers * 2 * config.num_key_value_heads * 128 * 2
for (const name of ["bfloat16", "4 bits"]) {
  if (!new RegExp(values.only).test(name)) continue
  const model = name === "4 bits" ? lm.quantize(dense, { bits: 4, groupSize: 64 }) : dense
  const weights = read(model)
  for (const many of values.batch.split(",").map(Number))
    try {
      if (many === 1) await alone(model)
      const ms = many === 1 ? await alone(model) : await together(model, many)
      const bytes = weights + many * cacheToken * (context + tokens / 2)
      const share = bytes / (ms / 1000) / copies
      console.log(
        `${name}, ${many} at once: ${ms.toFixed(3)} ms a step, ${((many * 1000) / ms).toFixed(0)} tokens/s, ${(100 * share).toFixed(0)} % of the copy's bandwidth`,
      )
      rows.push({ name, many, ms, share })
    } catch (error) {
      console.log(`${name}, ${many} at once: ${String(error).slice(0, 300)}`)
    }
}
console.log(`without a kernel: ${JSON.stringify(mx.backendStats())}`)
if (values.json) writeFileSync(values.json, JSON.stringify({ copies, rows }, null, 1))
