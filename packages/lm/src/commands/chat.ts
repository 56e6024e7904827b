/**
 * `lazuli-lm chat`: a conversation in the terminal. The cache is kept from turn to turn.
 */
import { LazuliError } from "@lazuli/core/engine"
import type { Command } from "commander"
import { factOf } from "../arguments"
import { emptyCache } from "../generate/caches"
import { PrefixStore } from "../generate/prefixes"
import { causal, promptTokens } from "../generate/prompts"
import { stream } from "../generate/stream"
import { cacheLength } from "../models/cache"
import type { Message } from "../text/tokenizer"
import {
  addGeneration,
  addModel,
  addTemplateValues,
  checkedGeneration,
  draftOf,
  type GenerationFlags,
  loadShown,
  type ModelFlags,
  type TemplateFlags,
} from "./options"
import { Interrupted, Meter, type Terminal } from "./terminal"

interface Flags extends GenerationFlags, ModelFlags, TemplateFlags {
  readonly system?: string
}

export function addChat(program: Command, terminal: Terminal): void {
  const command = addModel(program.command("chat").description("chat with a model")).option(
    "--system <text>",
    "system message",
  )
  addTemplateValues(addGeneration(command)).action(async (flags: Flags) => {
    const checked = checkedGeneration(flags)
    const model = await loadShown(flags, terminal)
    const network = causal("chat", model)
    const generation = { ...checked, draft: await draftOf(flags, terminal) }
    const store = new PrefixStore(Number.MAX_SAFE_INTEGER)
    if (terminal.interactive) terminal.err("Ctrl-C stops an answer, and Ctrl-D ends the chat.\n")
    const messages: Message[] = flags.system ? [{ role: "system", content: flags.system }] : []
    const answer = async (): Promise<string> => {
      const tokens = promptTokens(model, messages, { values: flags.chatTemplateKwargs })
      const cache = store.find(tokens) ?? emptyCache(network, generation)
      const meter = new Meter(tokens.length - cacheLength(cache))
      const generated: number[] = []
      let text = ""
      await terminal.interruptible(async (signal) => {
        try {
          for await (const piece of stream(model, tokens, { ...generation, cache, signal })) {
            meter.count()
            generated.push(piece.token)
            text += piece.text
            terminal.out(piece.text)
          }
        } catch (error) {
          // The partial answer stays in the conversation.
          if (!(error instanceof Interrupted && error.signal === "SIGINT")) throw error
        }
      })
      terminal.out("\n")
      terminal.err(`${meter.summary()}\n`)
      store.clear()
      store.add([...tokens, ...generated], cache)
      return text
    }
    for await (const line of terminal.lines("> ")) {
      if (line.trim() === "") continue
      messages.push({ role: "user", content: line })
      try {
        messages.push({ role: "assistant", content: await answer() })
      } catch (error) {
        if (!terminal.interactive || !(error instanceof LazuliError)) throw error
        // The user may go on without this message.
        messages.pop()
        terminal.err(`${factOf(error)}\n`)
      }
    }
  })
}
