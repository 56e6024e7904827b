/**
 * Compares GGUF files of the tiny checkpoints with llama.cpp, which `npm run bench:peers` installs:
 * `node tooling/run-source.mjs packages/lm/test/llama-cpp.ts [--record]`. Fails if log-probabilities of float32 files differ by more than
 * 1e-3, or the divergence of quantized ones exceeds 0.01. --record writes llama.cpp's results for gguf.test.ts.
 */
import { spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { divergence, ggufCases, logprobs, POSITIONS, TOKENS, writeCase } from "./gguf-cases"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-llama-cpp-"))
const peer = fileURLToPath(new URL("../../../benchmarks/peers/llama-cpp.mjs", import.meta.url))
const files: string[] = []
for (const { name, type } of ggufCases) files.push(await writeCase(name, type, scratch))
const out = join(scratch, "answers.json")
const input = JSON.stringify({ files, tokens: TOKENS, positions: POSITIONS, out })
const run = spawnSync(process.execPath, [peer], { input, stdio: ["pipe", "inherit", "inherit"] })
if (run.status !== 0) throw new Error(`llama.cpp ended with ${run.status}`)
const answers = JSON.parse(readFileSync(out, "utf8")) as number[][][]

const recorded: Record<string, mx.Array> = {}
const failures: string[] = []
for (const [i, each] of ggufCases.entries()) {
  const { name, type, bound } = each
  const want = mx.array(answers[i])
  recorded[`${name}.${type}`] = want
  const got = await logprobs(each, files[i])
  const error = got.subtract(want).abs().max().item() as number
  const kl = divergence(want, got)
  const most = bound.by === "error" ? error : kl
  const row = `${name} ${type}: greatest difference ${error.toExponential(2)}, divergence ${kl.toExponential(2)}`
  console.log(row)
  if (!(most <= bound.most)) failures.push(row)
}
rmSync(scratch, { recursive: true })
if (process.argv.includes("--record"))
  mx.saveSafetensors(fileURLToPath(new URL("./llama-cpp.safetensors", import.meta.url)), recorded)
if (failures.length > 0) throw new Error(`too far from llama.cpp:\n${failures.join("\n")}`)
