/**
 * A model's tokenizer and chat template, by `@huggingface/tokenizers` and `@huggingface/jinja`.
 */
import { Tokenizer as HubTokenizer } from "@huggingface/tokenizers"
import { ArgumentError, FormatError, isPlainObject } from "@lazuli/core/engine"
import { checkKind, type Kind, OBJECT, STRING, TOKENS } from "../argument-kinds"
import type { Json, JsonObject } from "../models/settings"
import { ChatTemplates } from "./chat-templates"

/** One message of a conversation. */
export interface Message {
  readonly role: string
  readonly content: string
}

/** True for an object with a role and a content. */
export const isMessage = (value: unknown): value is Message =>
  isPlainObject(value) &&
  typeof (value as { role?: unknown }).role === "string" &&
  typeof (value as { content?: unknown }).content === "string"

/** True for a part of a message's content that is a text. */
export const isTextPart = (part: unknown): part is { readonly text: string } =>
  isPlainObject(part) &&
  (part as { type?: unknown }).type === "text" &&
  typeof (part as { text?: unknown }).text === "string"

const MESSAGES: Kind = {
  expected: "a list of messages with a role and a text as content",
  accepts: (value) => Array.isArray(value) && value.every(isMessage),
}

/** The bytes that characters of byte-level tokens stand for: printable ones for themselves, others from U+0100. */
const BYTES = new Map<string, number>()
for (let byte = 0, other = 256; byte < 256; byte++) {
  const isPrintable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173)
  BYTES.set(String.fromCharCode(isPrintable ? byte : other++), byte)
}

const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

/** The files of a tokenizer. */
export interface TokenizerFiles {
  /** tokenizer.json */
  readonly tokenizer: JsonObject
  /** tokenizer_config.json */
  readonly config: JsonObject
  /** chat_template.jinja, if there is one. */
  readonly template?: string | null
  /** The files of additional_chat_templates, by name. */
  readonly templates?: Readonly<Record<string, string>>
  /** End-of-text tokens from generation_config.json or config.json. */
  readonly eosIds?: readonly number[]
}

/** Options of {@link Tokenizer.prompt}. */
export interface ChatOptions {
  /** Append the beginning of the assistant's message; true by default. */
  readonly addGenerationPrompt?: boolean
  /** The name of a template, if the model has several; by default `tool_use` with `values.tools`, if there is one, and `default`. */
  readonly template?: string
  /** Further variables for the template. */
  readonly values?: Readonly<Record<string, unknown>>
}

const hasTools = ({ tools }: NonNullable<ChatOptions["values"]>): boolean =>
  tools !== undefined && tools !== null

/** The text of a token in tokenizer_config.json, which is a string or an object. */
function contentOf(token: Json | undefined): string | null {
  if (typeof token === "string") return token
  const content = isPlainObject(token) ? (token as JsonObject).content : null
  return typeof content === "string" ? content : null
}

/**
 * A model's tokenizer.
 * @example
 * const { tokenizer } = await load('my-model')
 * tokenizer.decode(tokenizer.encode('the end')) // => 'the end'
 */
export class Tokenizer {
  /** End-of-text tokens. */
  readonly eosIds: ReadonlySet<number>
  readonly bosToken: string | null
  readonly eosToken: string | null
  /** The texts of the chat templates by name. */
  readonly templates: ReadonlyMap<string, string>
  private readonly inner: HubTokenizer
  private readonly chatTemplates: ChatTemplates
  private readonly specialTokens: Readonly<Record<string, string>>
  /** Tokens of a letter, after which {@link pieceOf} decodes others. */
  private before: readonly number[] | null = null

  constructor(readonly files: TokenizerFiles) {
    checkKind("Tokenizer", "the files", files, OBJECT, "They are { tokenizer, config }")
    const { tokenizer, config } = files
    try {
      this.inner = new HubTokenizer(tokenizer, config)
    } catch (cause) {
      throw new FormatError("load", `tokenizer.json is invalid: ${reasonOf(cause)}`, { cause })
    }
    this.bosToken = contentOf(config.bos_token)
    this.eosToken = contentOf(config.eos_token)
    const ids = new Set(files.eosIds ?? [])
    const eos = this.eosToken === null ? undefined : this.inner.token_to_id(this.eosToken)
    if (eos !== undefined) ids.add(eos)
    this.eosIds = ids
    this.chatTemplates = new ChatTemplates(config, files.template, files.templates)
    this.templates = this.chatTemplates.sources
    const named = Object.entries(config).map(([name, token]) => [name, contentOf(token)] as const)
    this.specialTokens = Object.fromEntries(
      named.filter((pair): pair is [string, string] => pair[0].endsWith("_token") && pair[1] !== null),
    )
  }

  /** True if there is a chat template. */
  get chats(): boolean {
    return this.templates.size > 0
  }

  /** The text of the chat template for conversations without tools, null if there is none. */
  get templateSource(): string | null {
    return this.chatTemplates.defaultSource
  }

  /** Encodes a text. `special: false` omits special tokens such as those at the beginning and end. */
  encode(text: string, { special = true }: { special?: boolean } = {}): number[] {
    checkKind("Tokenizer.encode", "the text", text, STRING)
    return this.inner.encode(text, { add_special_tokens: special }).ids
  }

  /** Encodes a pair of texts, the input of rerankers; `types` gives the text that each token is from. */
  encodePair(text: string, pair: string | null): { ids: number[]; types: number[] } {
    checkKind("Tokenizer.encodePair", "the text", text, STRING)
    if (pair !== null) checkKind("Tokenizer.encodePair", "the second text", pair, STRING)
    const { ids, token_type_ids: types } = this.inner.encode(text, {
      text_pair: pair,
      return_token_type_ids: true,
    })
    return { ids, types: types ?? ids.map(() => 0) }
  }

  /** Decodes tokens, without special ones unless `special` is true. */
  decode(tokens: readonly number[], { special = false }: { special?: boolean } = {}): string {
    checkKind("Tokenizer.decode", "tokens", tokens, TOKENS)
    if (tokens.length === 0) return ""
    return this.inner.decode([...tokens], {
      skip_special_tokens: !special,
      clean_up_tokenization_spaces: false,
    })
  }

  /** The token's entry in the vocabulary. */
  textOf(token: number): string {
    return this.inner.id_to_token(token) ?? ""
  }

  /** The token's text inside a longer one: decoders drop a space at the beginning. U+FFFD is a part of a character. */
  pieceOf(token: number): string {
    this.before ??= this.encode("a", { special: false })
    const before = this.decode(this.before, { special: true })
    const text = this.decode([...this.before, token], { special: true })
    return text.startsWith(before) ? text.slice(before.length) : this.decode([token], { special: true })
  }

  /** The token's bytes, which may be a part of a character; null if it has none. Those of all tokens combine to the text. */
  bytesOf(token: number): number[] | null {
    const text = this.pieceOf(token)
    if (!text.includes("\uFFFD")) return [...Buffer.from(text)]
    const entry = this.textOf(token)
    const [, hex] = /^<0x([0-9A-F]{2})>$/.exec(entry) ?? []
    if (hex) return [Number.parseInt(hex, 16)]
    const bytes = [...entry].map((character) => BYTES.get(character))
    return bytes.every((byte) => byte !== undefined) ? bytes : null
  }

  /** The id of a token, undefined if it is not in the vocabulary. */
  idOf(text: string): number | undefined {
    return this.inner.token_to_id(text)
  }

  /** True if special tokens are added to a text: not if it begins with the first of them, as rendered conversations do. */
  addsSpecial(text: string): boolean {
    return !this.bosToken || !text.startsWith(this.bosToken)
  }

  /**
   * Applies the chat template to a conversation.
   * @throws ArgumentError if there is no such template, or it rejects the conversation; FormatError if the template is invalid
   */
  prompt(messages: readonly Message[], options: ChatOptions = {}): string {
    const variables = this.variablesOf(messages, options)
    const { template, values = {} } = options
    const chosen = this.chatTemplates.choose(template, hasTools(values))
    try {
      return chosen.render(variables)
    } catch (cause) {
      throw this.rejection(reasonOf(cause), cause)
    }
  }

  /** The chat template's variables for a conversation. @throws the errors of `prompt` without a valid template */
  variablesOf(
    messages: readonly Message[],
    { addGenerationPrompt = true, template, values = {} }: ChatOptions = {},
  ): Record<string, unknown> {
    checkKind("Tokenizer.prompt", "the conversation", messages, MESSAGES)
    if (template !== undefined) checkKind("Tokenizer.prompt", "template", template, STRING)
    // For its errors.
    this.chatTemplates.choose(template, hasTools(values))
    return {
      messages,
      tools: null,
      documents: null,
      add_generation_prompt: addGenerationPrompt,
      bos_token: "",
      eos_token: "",
      ...this.specialTokens,
      ...values,
    }
  }

  /** The error of a conversation that the chat template rejects. */
  rejection(reason: string, cause?: unknown): ArgumentError {
    return new ArgumentError("chat", `the chat template rejects the conversation: ${reason}`, { cause })
  }

  /** The tokens of a prompt, which may be a text, a conversation, to which the options apply, or tokens. */
  tokensOf(prompt: string | readonly Message[] | readonly number[], options: ChatOptions = {}): number[] {
    if (typeof prompt === "string") return this.encode(prompt, { special: this.addsSpecial(prompt) })
    if (prompt.every((item) => typeof item === "number")) return [...prompt]
    // The template adds the special tokens.
    return this.encode(this.prompt(prompt as readonly Message[], options), { special: false })
  }
}
