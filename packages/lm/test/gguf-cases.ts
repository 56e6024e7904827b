/** GGUF files for comparison with llama.cpp, with error bounds. */
import { mkdtempSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { writeCheckpoint } from "./checkpoints"
import { forGguf } from "./gguf-checkpoints"

export const TOKENS = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 256)
export const POSITIONS = [0, 7, 15, 23]

/** A checkpoint as a GGUF file with matrices of a type. */
export interface GgufCase {
  readonly name: string
  readonly type: lm.GgufType
  /** Maximum difference of log-probabilities, or maximum divergence, because llama.cpp quantizes the inputs of quantized layers. */
  readonly bound: { readonly by: "error" | "divergence"; readonly most: number }
}

const exact = { by: "error", most: 1e-3 } as const
const near = { by: "divergence", most: 0.01 } as const
const PACKED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"] as const

export const ggufCases: readonly GgufCase[] = [
  ...Object.keys(forGguf).map((name): GgufCase => ({ name, type: "F32", bound: exact })),
  ...["F16", "BF16", ...PACKED].map(
    (type): GgufCase => ({ name: "llama-256", type: type as lm.GgufType, bound: near }),
  ),
  ...["qwen2-moe", "mixtral", "gemma3-heads"].map((name): GgufCase => ({ name, type: "Q8_0", bound: near })),
]

const models = new Map<string, Promise<lm.LoadedModel>>()

/** A checkpoint, loaded once. */
function modelOf(name: string, folder: string): Promise<lm.LoadedModel> {
  const known = models.get(name)
  if (known) return known
  const made = lm.load(writeCheckpoint(name, mkdtempSync(join(folder, "checkpoint-")), 1, forGguf[name]))
  models.set(name, made)
  return made
}

/** Writes a case's file to a folder. */
export async function writeCase(name: string, type: lm.GgufType, folder: string): Promise<string> {
  const file = join(folder, `${name}.${type}.gguf`)
  lm.save(await modelOf(name, folder), file, { type })
  return file
}

/** llama.cpp computes GELU by a table from float16 to float16, which is imitated by rounding. */
const TABLED = /^(gemma|gpt2)/

/** Lazuli's log-probabilities for a file, with llama.cpp's rounding. */
export async function logprobs({ name }: GgufCase, file: string): Promise<mx.Array> {
  const { network } = await lm.load(file, { dtype: mx.float32 })
  type Activated = { _activation: (x: mx.Array) => mx.Array }
  if (TABLED.test(name))
    for (const module of network.modules() as Partial<Activated>[]) {
      const exact = module._activation
      if (!exact) continue
      const halves = (x: mx.Array): mx.Array => x.astype(mx.float16).astype(mx.float32)
      module._activation = (x) => halves(exact(halves(x)))
    }
  const logits = (network as lm.CausalNetwork).forward(mx.array([TOKENS], mx.int32))
  const rows = logits.index(0, mx.array(POSITIONS, mx.int32))
  return rows.subtract(mx.logsumexp(rows, -1, true))
}

/** The maximum divergence Σ p (log p − log q) over the positions. */
export const divergence = (p: mx.Array, q: mx.Array): number =>
  p.exp().multiply(p.subtract(q)).sum(-1).max().item() as number
