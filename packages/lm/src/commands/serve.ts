/**
 * `lazuli-lm serve`: a server in OpenAI's form.
 */
import type { Command } from "commander"
import { createServer } from "../server/server"
import { addModel, loadShown, type ModelFlags, whole } from "./options"
import type { Terminal } from "./terminal"

interface Flags extends ModelFlags {
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
  addModel(program.command("serve").description("serve a model with OpenAI's API and a chat page"))
    .option("--host <host>", "address to listen on", "127.0.0.1")
    .option("--port <n>", "port; 0 chooses a free one", whole, 8080)
    .option("--name <name>", "name of the model for clients")
    .option("--api-key <key>", "key that clients must send; LAZULI_LM_API_KEY also sets it")
    .option("--max-rows <n>", "most requests answered at once", whole, 16)
    .option("--max-waiting <n>", "most requests that may wait", whole, 256)
    .option("--max-tokens <n>", "most tokens in an answer", whole, 1024)
    .option("--max-body-bytes <n>", "most bytes in a request", whole, 2 ** 20)
    .option("--max-cache-bytes <n>", "most bytes of keys and values", whole)
    .option("--prefix-bytes <n>", "bytes kept for prefixes that later prompts may share", whole, 2 ** 28)
    .option("--cache-bits <n>", "quantize keys and values: 4 or 8", whole)
    .option("--page-tokens <n>", "keep keys and values in pages that prompts share", whole)
    .option("--exact", "make each answer independent, to the last bit, of simultaneous requests; slower")
    .action(
      async ({
        model,
        activations,
        host,
        port,
        apiKey = process.env.LAZULI_LM_API_KEY,
        ...options
      }: Flags) => {
        const server = createServer(await loadShown(model, terminal, { activations }), { ...options, apiKey })
        const url = await server.listen(port, host)
        terminal.out(`listening on ${url}\n`)
        await terminal.interruptible(
          (signal) =>
            new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
        )
        await server.close()
      },
    )
}
