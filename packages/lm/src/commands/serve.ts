/**
 * `lazuli-lm serve`: a server with OpenAI's API.
 */
import { type Command, InvalidArgumentError } from "commander"
import { isLocal } from "../server/origins"
import { createServer } from "../server/server"
import { checkGrace, checkServer } from "../server/server-options"
import { addModel, integer, loadShown, type ModelFlags } from "./options"
import type { Terminal } from "./terminal"

interface Flags extends ModelFlags {
  readonly host: string
  readonly port: number
  readonly name?: string
  readonly apiKey?: string
  readonly allowedOrigins?: string[]
  readonly allowedHosts?: string[]
  readonly graceMs: number
  readonly maxStallMs: number
  readonly maxConnections: number
  readonly maxRows: number
  readonly maxWaiting: number
  readonly maxTokens: number
  readonly maxBodyBytes: number
  readonly maxCacheBytes?: number
  readonly prefixBytes: number
  readonly cacheBits?: number
  readonly maxContext?: number
  readonly maxPromptTokens: number
  readonly contextLength?: number
  readonly pageTokens?: number
  readonly exact?: boolean
}

function portOf(text: string): number {
  const port = integer(text)
  if (port < 0 || port > 65_535) throw new InvalidArgumentError("Not a port.")
  return port
}

const list = (text: string): string[] => text.split(",").map((name) => name.trim())

export function addServe(program: Command, terminal: Terminal): void {
  addModel(
    program.command("serve").description("serve a model with an OpenAI-compatible API and a chat page"),
  )
    .option("--host <host>", "address to listen on", "127.0.0.1")
    .option("--port <n>", "port; 0 for any free one", portOf, 8080)
    .option("--name <name>", "model name in the API")
    .option("--api-key <key>", "API key that clients must send; or set LAZULI_LM_API_KEY")
    .option("--allowed-origins <list>", "origins of web pages that may use the server, or *", list)
    .option(
      "--allowed-hosts <list>",
      "names of this machine beside localhost, such as host.docker.internal",
      list,
    )
    .option("--max-rows <n>", "maximum number of requests in the batch", integer, 16)
    .option("--max-waiting <n>", "maximum number of queued requests", integer, 256)
    .option("--max-tokens <n>", "maximum number of generated tokens per request", integer, 1024)
    .option("--max-prompt-tokens <n>", "maximum number of prompt tokens per request", integer, 32_768)
    .option(
      "--context-length <n>",
      "maximum number of tokens of a prompt with its answer; the model's by default",
      integer,
    )
    .option("--max-body-bytes <n>", "maximum size of a request body", integer, 2 ** 20)
    .option(
      "--max-cache-bytes <n>",
      "memory limit for keys and values; half of the free memory by default",
      integer,
    )
    .option("--prefix-bytes <n>", "memory for caches of earlier prompts", integer, 2 ** 28)
    .option("--cache-bits <n>", "quantize keys and values to 6 or 8 bits", integer)
    .option("--max-context <n>", "limit attention to the last n tokens", integer)
    .option("--page-tokens <n>", "store keys and values in pages of n tokens, shared by prompts", integer)
    .option("--max-stall-ms <n>", "time after which an answer that is not read ends", integer, 60_000)
    .option("--max-connections <n>", "maximum number of open connections", integer, 1024)
    .option("--grace-ms <n>", "time that requests have to end after Ctrl-C or SIGTERM", integer, 10_000)
    .option("--exact", "make outputs bit-for-bit independent of concurrent requests; slower")
    .action(
      async ({
        model,
        activations,
        adapters,
        host,
        port,
        apiKey = process.env.LAZULI_LM_API_KEY,
        graceMs,
        ...options
      }: Flags) => {
        checkServer({ ...options, apiKey })
        checkGrace(graceMs)
        const loaded = await loadShown({ model, activations, adapters }, terminal)
        const server = createServer(loaded, {
          ...options,
          apiKey,
          onError: (error) => terminal.err(`${error instanceof Error ? error.stack : error}\n`),
        })
        if (apiKey === undefined && !isLocal(host))
          terminal.err(`anyone who can reach ${host} may use the server: --api-key asks for a key\n`)
        const url = await server.listen(port, host)
        terminal.out(`listening on ${url}\n`)
        await terminal.interruptible(
          (signal) =>
            new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
        )
        await server.close(graceMs)
      },
    )
}
