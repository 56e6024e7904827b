// llama.cpp's log-probabilities of GGUF files, for packages/lm/test/llama-cpp.ts: reads {files, tokens, positions, out} from standard
// input, and writes to `out` a list for each file: at each position the log-probabilities of all tokens. Its cache is in float32.
import { writeFileSync } from "node:fs"
import { getLlama, LlamaLogLevel } from "node-llama-cpp"

const chunks = []
for await (const chunk of process.stdin) chunks.push(chunk)
const { files, tokens, positions, out } = JSON.parse(Buffer.concat(chunks).toString())
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error })

async function logprobsOf(modelPath) {
  const model = await llama.loadModel({ modelPath, gpuLayers: 0 })
  const context = await model.createContext({
    contextSize: 128,
    sequences: 1,
    threads: 1,
    flashAttention: false,
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
  })
  const input = tokens.map((token, i) =>
    positions.includes(i) ? [token, { generateNext: { logits: true } }] : token,
  )
  const results = await context.getSequence().controlledEvaluate(input)
  const rows = positions.map((i) => {
    const { logits } = results[i].next
    const row = Array.from({ length: logits.size }, (_, token) => logits.get(token))
    const most = Math.max(...row)
    const sum = Math.log(row.reduce((all, x) => all + Math.exp(x - most), 0)) + most
    return row.map((x) => x - sum)
  })
  await context.dispose()
  await model.dispose()
  return rows
}

const all = []
for (const file of files) all.push(await logprobsOf(file))
writeFileSync(out, JSON.stringify(all))
process.exit(0)
