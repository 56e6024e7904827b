/**
 * `lazuli-lm chat`: a conversation in the terminal. The cache is kept from turn to turn.
 */
import type { Command } from "commander"
import { emptyCache } from "../generate/caches"
import { checkOptions } from "../generate/options"
import { PrefixStore } from "../generate/prefixes"
import { causal, promptTokens } from "../generate/prompts"
import { stream } from "../generate/stream"
import type { Message } from "../text/tokenizer"
import {
  addGeneration,
  addModel,
  type GenerationFlags,
  generationOf,
  loadShown,
  type ModelFlags,
} from "./options"
import { Interrupted, type Terminal } from "./terminal"

interface Flags extends GenerationFlags, ModelFlags {
  readonly system?: string
}

export function addChat(program: Command, terminal: Terminal): void {
  const command = addModel(program.command("chat").description("chat with a model")).option(
    "--system <text>",
    "system message",
  )
  addGeneration(command).action(async (flags: Flags) => {
    const model = await loadShown(flags, terminal)
    const network = causal("chat", model)
    const generation = await generationOf(flags, terminal)
    checkOptions(generation)
    const store = new PrefixStore(Number.MAX_SAFE_INTEGER)
    if (terminal.interactive) terminal.err("Ctrl-C stops an answer, and Ctrl-D ends the chat.\n")
    const messages: Message[] = flags.system ? [{ role: "system", content: flags.system }] : []
    for await (const line of terminal.lines("> ")) {
      if (line.trim() === "") continue
      messages.push({ role: "user", content: line })
      const tokens = promptTokens(model, messages)
      const cache = store.find(tokens) ?? emptyCache(network, generation)
      const generated: number[] = []
      let answer = ""
      await terminal.interruptible(async (signal) => {
        try {
          for await (const piece of stream(model, tokens, { ...generation, cache, signal })) {
            generated.push(piece.token)
            answer += piece.text
            terminal.out(piece.text)
          }
        } catch (error) {
          // The partial answer stays in the conversation.
          if (!(error instanceof Interrupted)) throw error
        }
      })
      terminal.out("\n")
      messages.push({ role: "assistant", content: answer })
      store.clear()
      store.add([...tokens, ...generated], cache)
    }
  })
}
