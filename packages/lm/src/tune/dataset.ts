/**
 * Training examples from JSON Lines files: conversations, prompts with completions, or texts.
 */
import { existsSync, readFileSync, statSync } from "node:fs"
import { ArgumentError, FormatError, isPlainObject } from "@lazuli/core/engine"
import { checkKind, FLAG, type Kind, TEXT } from "../argument-kinds"
import { checkTokenizer, optionsNamed } from "../arguments"
import { isMessage, isTextPart, type Message, type Tokenizer } from "../text/tokenizer"

/** A training example. */
export interface Example {
  readonly tokens: readonly number[]
  /** Index of the first token in the loss. */
  readonly from: number
}

/** Options of {@link readDataset}. */
export interface DatasetOptions {
  /** Compute the loss only on completions and last messages. */
  readonly maskPrompt?: boolean
  /** Longer examples are truncated; 2048 tokens by default. */
  readonly maxTokens?: number
}

const LENGTH: Kind = {
  expected: "an integer of at least 2",
  accepts: (value) => Number.isSafeInteger(value) && (value as number) >= 2,
}

const checkNames = optionsNamed<DatasetOptions>({ maskPrompt: FLAG, maxTokens: LENGTH })

/** @throws ArgumentError for unknown options, and those out of range */
export const checkReading = (options: DatasetOptions): void => checkNames("readDataset", options)

/**
 * Reads a file with one JSON object per line: `{"messages": […]}`, `{"prompt": …, "completion": …}` or `{"text": …}`. Conversations
 * may have `"tools"` for the chat template.
 * @throws FormatError with the line's number
 * @example
 * const { tokenizer } = await load('my-model')
 * readDataset('train.jsonl', tokenizer, { maskPrompt: true }).length // => 3
 */
export function readDataset(file: string, tokenizer: Tokenizer, options: DatasetOptions = {}): Example[] {
  checkKind("readDataset", "the file", file, TEXT)
  checkTokenizer("readDataset", tokenizer)
  checkReading(options)
  if (!existsSync(file)) throw new ArgumentError("readDataset", `${file} does not exist`)
  if (statSync(file).isDirectory())
    throw new ArgumentError("readDataset", `${file} is a folder, expected a file in it`, {
      hint: "A folder for mlx-lm has train.jsonl and valid.jsonl",
    })
  const examples: Example[] = []
  readFileSync(file, "utf8")
    .replace(/^\uFEFF/, "")
    .split("\n")
    .forEach((line, i) => {
      if (line.trim() === "") return
      const error = (fact: string, cause?: unknown): FormatError =>
        new FormatError("readDataset", `${file}, line ${i + 1}: ${fact}`, { cause })
      let value: unknown
      try {
        value = JSON.parse(line)
      } catch (cause) {
        throw error("is not valid JSON", cause)
      }
      let example: Example | null
      try {
        example = isPlainObject(value)
          ? exampleOf(value as Record<string, unknown>, tokenizer, options)
          : null
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : String(cause)
        throw error(reason.replace(/^\[\w+\] /, ""), cause)
      }
      if (!example)
        throw error(
          'expected an object with "messages", "prompt" and "completion", or "text", and at most a list of "tools"',
        )
      if (example.tokens.length < 2) throw error("has fewer than two tokens")
      examples.push(example)
    })
  if (examples.length === 0) throw new FormatError("readDataset", `${file}: has no examples`)
  return examples
}

function exampleOf(
  value: Record<string, unknown>,
  tokenizer: Tokenizer,
  options: DatasetOptions,
): Example | null {
  const { maskPrompt = false, maxTokens = 2048 } = options
  const { messages, tools = null, prompt, completion, text } = value
  if (tools !== null && !(Array.isArray(tools) && tools.every(isPlainObject))) return null
  const made = (tokens: number[], masked: () => number): Example => {
    const cut = tokens.slice(0, maxTokens)
    return { tokens: cut, from: maskPrompt ? Math.max(1, masked()) : 1 }
  }
  const chat = (all: readonly Message[]): Example => {
    const render = (some: readonly Message[], addGenerationPrompt: boolean): number[] =>
      tokenizer.encode(tokenizer.prompt(some, { addGenerationPrompt, values: { tools } }), { special: false })
    return made(
      render(all, false),
      () => render(all.slice(0, -1), all[all.length - 1].role === "assistant").length,
    )
  }
  const turns: unknown[] = Array.isArray(messages) ? messages.map(withContent) : []
  if (turns.length > 0 && turns.every(isMessage)) return chat(turns)
  if (typeof prompt === "string" && typeof completion === "string") {
    if (tokenizer.chats)
      return chat([
        { role: "user", content: prompt },
        { role: "assistant", content: completion },
      ])
    const before = begun(prompt, tokenizer)
    const after = tokenizer.encode(completion, { special: false })
    return made(ended([...before, ...after], tokenizer), () => before.length)
  }
  if (typeof text !== "string") return null
  return made(ended(tokenizer.encode(text), tokenizer), () => 1)
}

/** A message with a text as content: that of its parts, and none of one that only calls tools. */
function withContent(message: unknown): unknown {
  if (!isPlainObject(message)) return message
  const { content = null, tool_calls: calls } = message as Record<string, unknown>
  if (Array.isArray(content) && content.every(isTextPart))
    return { ...message, content: content.map(({ text }) => text).join("") }
  return content === null && Array.isArray(calls) && calls.length > 0 ? { ...message, content: "" } : message
}

/** The end-of-text token, if there is one. */
function endOf(tokenizer: Tokenizer): number | undefined {
  const { eosToken, eosIds } = tokenizer
  const [first] = eosIds
  return (eosToken === null ? undefined : tokenizer.idOf(eosToken)) ?? first
}

/** A prompt's tokens, without an end that the tokenizer adds to texts. */
function begun(prompt: string, tokenizer: Tokenizer): number[] {
  const tokens = tokenizer.encode(prompt)
  const end = endOf(tokenizer)
  const adds = tokens.at(-1) === end && tokenizer.encode(prompt, { special: false }).at(-1) !== end
  return adds ? tokens.slice(0, -1) : tokens
}

/** Tokens that end with the end-of-text token, if there is one. */
function ended(tokens: number[], tokenizer: Tokenizer): number[] {
  const end = endOf(tokenizer)
  return end === undefined || tokens.at(-1) === end ? tokens : [...tokens, end]
}
