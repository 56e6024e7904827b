/**
 * Writing: continues a prompt byte by byte. Each byte is drawn from the most likely ones after the model has read all
 * of its context again.
 */
import { mx } from "lazuli"
import type { GPT } from "./model"

/** Options of writing. */
export interface SampleOptions {
  readonly prompt: string
  /** The number of texts. */
  readonly count: number
  /** Bytes to add to each. */
  readonly length: number
  readonly context: number
  readonly temperature: number
  readonly topK: number
  readonly seed: number
}

/** Continuations of a prompt, the prompt not included. */
export function sample(model: GPT, options: SampleOptions): string[] {
  const { prompt, count, length, context, temperature, topK, seed } = options
  model.eval()
  // One shape for all calls: what lies behind `last` is padding that causal attention never sees.
  const draw = mx.compile(
    (tokens: mx.Array, last: mx.Array, key: mx.Array) => {
      const logits = mx.take(model.forward(tokens), last, 1).divide(temperature)
      return mx.random.categorical(keepLargest(logits, topK), { key })
    },
    { inputs: model.state },
  )
  const start = [...Buffer.from(prompt)]
  const texts = Array.from({ length: count }, () => [...start])
  let key = mx.random.key(seed)
  let used: mx.Array
  for (let i = 0; i < length; i++) {
    const tokens = new Int32Array(count * context)
    texts.forEach((text, row) => tokens.set(text.slice(-context), row * context))
    const last = Math.min(texts[0].length, context) - 1
    ;[key, used] = mx.random.split(key)
    const next = draw(mx.array(tokens).reshape([count, context]), mx.array(last, mx.int32), used)
    next.toTypedArray().forEach((byte, row) => texts[row].push(Number(byte)))
  }
  model.train()
  return texts.map((text) => readable(Uint8Array.from(text.slice(start.length))))
}

/** Logits with all but the `k` largest at −∞. */
export function keepLargest(logits: mx.Array, k: number): mx.Array {
  const count = logits.shape.at(-1) as number
  if (k >= count) return logits
  const least = mx.sort(logits, -1).index("...", `${count - k}:${count - k + 1}`)
  return mx.where(logits.less(least), -Infinity, logits)
}

/** Text for a terminal: control characters, which the model may well write, could move the cursor or worse. */
export function readable(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes).replace(/[^\P{C}\n\t]/gu, "\u{fffd}")
}
