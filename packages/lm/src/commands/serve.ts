/**
 * `lazuli-lm serve`: a server in OpenAI's form.
 */
import type { Command } from "commander"
import { createServer } from "../server/server"
import { loadShown, whole } from "./options"
import type { Terminal } from "./terminal"

interface Flags {
  readonly model: string
  readonly host: string
  readonly port: number
  readonly name?: string
  readonly apiKey?: string
  readonly maxRows: number
  readonly maxWaiting: number
  readonly maxTokens: number
  readonly maxBodyBytes: number
  readonly maxCacheBytes?: number
  readonly prefixBytes: number
  readonly cacheBits?: number
  readonly pageTokens?: number
  readonly exact?: boolean
}

export function addServe(program: Command, terminal: Terminal): void {
  program
    .command("serve")
    .description("serve a model in OpenAI's form, with a page to chat")
    .requiredOption("-m, --model <model>", "a folder, a .gguf file or a name on the hub")
    .option("--host <host>", "the address to listen at", "127.0.0.1")
    .option("--port <n>", "0 takes a free one", whole, 8080)
    .option("--name <name>", "the model's name for clients")
    .option("--api-key <key>", "clients must send it; LAZULI_LM_API_KEY is another way to give it")
    .option("--max-rows <n>", "the most requests answered at once", whole, 16)
    .option("--max-waiting <n>", "the most requests that wait", whole, 256)
    .option("--max-tokens <n>", "the most tokens of an answer", whole, 1024)
    .option("--max-body-bytes <n>", "the most bytes of a request", whole, 2 ** 20)
    .option("--max-cache-bytes <n>", "the most bytes of keys and values", whole)
    .option("--prefix-bytes <n>", "bytes for prompts that later ones may begin with", whole, 2 ** 28)
    .option("--cache-bits <n>", "quantize keys and values: 4 or 8", whole)
    .option("--page-tokens <n>", "keep keys and values in pages that prompts share", whole)
    .option("--exact", "answers do not depend on who else asks, to the last bit; slower")
    .action(async ({ model, host, port, apiKey = process.env.LAZULI_LM_API_KEY, ...options }: Flags) => {
      const server = createServer(await loadShown(model, terminal), { ...options, apiKey })
      const url = await server.listen(port, host)
      terminal.out(`listening at ${url}\n`)
      await terminal.interruptible(
        (signal) =>
          new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
      )
      await server.close()
    })
}
