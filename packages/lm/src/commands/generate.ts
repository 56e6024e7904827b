/**
 * `lazuli-lm generate`: generates text after a prompt.
 */
import { ArgumentError } from "@lazuli/core/engine"
import type { Command } from "commander"
import { type Prompt, promptTokens } from "../generate/prompts"
import { stream } from "../generate/stream"
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
  readonly prompt: string
  readonly system?: string
  readonly raw?: boolean
}

export function addGenerate(program: Command, terminal: Terminal): void {
  const command = addModel(program.command("generate").description("generate text from a prompt"))
    .requiredOption("-p, --prompt <text>", "the prompt; - reads it from standard input")
    .option("--system <text>", "system message")
    .option("--raw", "use the prompt as given, without the chat template")
  addTemplateValues(addGeneration(command)).action(async (flags: Flags) => {
    const generation = checkedGeneration(flags)
    if (flags.system !== undefined && flags.raw)
      throw new ArgumentError("generate", "--raw uses no chat template, in which --system would be")
    const model = await loadShown(flags, terminal)
    const chats = model.tokenizer?.chats === true && !flags.raw
    if (flags.system !== undefined && !chats)
      throw new ArgumentError("generate", "the model has no chat template, in which --system would be")
    if (flags.chatTemplateKwargs && !chats)
      throw new ArgumentError("generate", "--chat-template-kwargs needs a chat template, which is not used")
    const system = flags.system === undefined ? [] : [{ role: "system", content: flags.system }]
    const content = flags.prompt === "-" ? await terminal.input() : flags.prompt
    const prompt: Prompt = chats ? [...system, { role: "user", content }] : content
    const tokens = promptTokens(model, prompt, { values: flags.chatTemplateKwargs })
    const draft = await draftOf(flags, terminal)
    const meter = new Meter(tokens.length)
    const end = (): void => {
      terminal.out("\n")
      terminal.err(`${meter.summary()}\n`)
    }
    await terminal.interruptible(async (signal) => {
      try {
        for await (const piece of stream(model, tokens, {
          ...generation,
          continues: !chats,
          draft,
          signal,
        })) {
          meter.count()
          terminal.out(piece.text)
        }
      } catch (error) {
        if (error instanceof Interrupted) end()
        throw error
      }
    })
    end()
  })
}
