/**
 * `lazuli-lm bench`: speed of prompt processing and generation, for one stream or several.
 */
import * as mx from "@lazuli/core"
import { type Command, InvalidArgumentError } from "commander"
import { Batcher } from "../generate/batch"
import { causal } from "../generate/prompts"
import { addModel, integer, loadShown, type ModelFlags } from "./options"
import { bytesText, type Terminal } from "./terminal"

interface Flags extends ModelFlags {
  readonly promptTokens: number
  readonly tokens: number
  readonly streams: number[]
}

function count(text: string): number {
  const n = integer(text)
  if (n < 1) throw new InvalidArgumentError("Not a positive integer.")
  return n
}

const counts = (text: string): number[] => text.split(",").map(count)

export function addBench(program: Command, terminal: Terminal): void {
  addModel(program.command("bench").description("measure tokens per second on random prompts"))
    .option("--prompt-tokens <n>", "tokens in each prompt", count, 512)
    .option("--tokens <n>", "tokens to generate per stream", count, 64)
    .option("--streams <list>", "numbers of concurrent streams, such as 1,4,16", counts, [1])
    .action(async ({ promptTokens, tokens, streams, ...flags }: Flags) => {
      const loaded = await loadShown(flags, terminal)
      const { vocabulary } = causal("bench", loaded)
      for (const n of streams) {
        const batch = new Batcher(loaded, { maxRows: n, maxWaiting: n, prefillStep: 512 })
        const prompts = Array.from({ length: n }, (_, k) =>
          Array.from({ length: promptTokens }, (_, i) => (i * 7919 + k * 104_729) % vocabulary),
        )
        const begin = performance.now()
        const times: number[] = []
        /** The time from which all streams generate. */
        let prefilled = 0
        const run = async (prompt: number[]): Promise<void> => {
          let first = true
          for await (const _piece of batch.stream(prompt, { maxTokens: tokens, ignoreEos: true })) {
            times.push(performance.now())
            if (first) prefilled = times[times.length - 1]
            first = false
          }
        }
        await Promise.all(prompts.map(run))
        const end = performance.now()
        const rate = (count: number, ms: number): string => (count / (ms / 1000)).toFixed(1)
        terminal.out(
          `${n} ${n === 1 ? "stream" : "streams"}: overall ${rate(n * (promptTokens + tokens), end - begin)} tokens/s, ` +
            `after the last prompt ${rate(times.filter((time) => time > prefilled).length, end - prefilled)} tokens/s, peak memory ${bytesText(mx.getPeakMemory())}\n`,
        )
        batch.close()
      }
    })
}
