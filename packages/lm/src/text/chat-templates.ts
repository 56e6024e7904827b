/**
 * A model's chat templates, most of which have one. Others have several by name: `default`, `tool_use` and their own.
 */
import { Template } from "@huggingface/jinja"
import { ArgumentError, FormatError, isPlainObject } from "@lazuli/core/engine"
import type { Json, JsonObject } from "../models/settings"

const DEFAULT = "default"
const FOR_TOOLS = "tool_use"

/** The templates of tokenizer_config.json: one, or a list with names. */
function configured(given: Json | undefined): [string, string][] {
  if (typeof given === "string") return [[DEFAULT, given]]
  if (!Array.isArray(given)) return []
  return given.flatMap((each) => {
    const { name, template } = isPlainObject(each) ? (each as Record<string, unknown>) : {}
    return typeof name === "string" && typeof template === "string" ? [[name, template]] : []
  })
}

export class ChatTemplates {
  /** The templates' texts by name. */
  readonly sources: ReadonlyMap<string, string>
  /** Compiled when they are first used: one that is invalid matters only to conversations. */
  private readonly compiled = new Map<string, Template>()

  /**
   * @param config - tokenizer_config.json; the files beside it come before it
   * @param file - the default template's file
   * @param files - the others' files by name
   */
  constructor(config: JsonObject, file?: string | null, files: Readonly<Record<string, string>> = {}) {
    this.sources = new Map([
      ...configured(config.chat_template),
      ...(typeof file === "string" ? [[DEFAULT, file] as const] : []),
      ...Object.entries(files),
    ])
  }

  /** The text of the template for conversations without tools, null if no template is the default. */
  get defaultSource(): string | null {
    const [only, ...others] = this.sources.values()
    return this.sources.get(DEFAULT) ?? (others.length === 0 ? (only ?? null) : null)
  }

  /**
   * The named template, or the one that transformers takes: `tool_use`, if there are tools and it exists, otherwise `default`.
   * @throws ArgumentError if there is no such template; FormatError if it is invalid
   */
  choose(name: string | undefined, hasTools: boolean): Template {
    const { sources } = this
    if (sources.size === 0)
      throw new ArgumentError("chat", "the model has no chat template", { hint: "Pass the prompt as a text" })
    const [only] = sources.keys()
    const chosen =
      name ?? (hasTools && sources.has(FOR_TOOLS) ? FOR_TOOLS : sources.size === 1 ? only : DEFAULT)
    const source = sources.get(chosen)
    if (source === undefined)
      throw new ArgumentError("chat", `the model has no chat template ${JSON.stringify(chosen)}`, {
        hint: `It has ${[...sources.keys()].join(", ")}`,
      })
    const made = this.compiled.get(chosen) ?? compiledFrom(source)
    this.compiled.set(chosen, made)
    return made
  }
}

function compiledFrom(source: string): Template {
  try {
    return new Template(source)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new FormatError("chat", `the chat template is invalid: ${reason}`, {
      cause,
      hint: "Pass the prompt as a text",
    })
  }
}
