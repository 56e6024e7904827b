/**
 * Incremental detokenization that never splits a character, although tokens may be parts of one.
 */
import { checkKind, TOKENS } from "../argument-kinds"
import { checkTokenizer } from "../arguments"
import type { Tokenizer } from "./tokenizer"

const INCOMPLETE = "\uFFFD"
/** Bytes that are still not a character after this many tokens are output as they are. */
const MAX_PENDING = 8
/** Tokens before a text that decide whether its first one keeps a space; a character has fewer. */
const CONTEXT = 8
const TAIL = new RegExp(`${INCOMPLETE}+$`)

/**
 * Decodes a stream of tokens.
 * @example
 * const { tokenizer } = await load('my-model')
 * const text = new Detokenizer(tokenizer)
 * const pieces = tokenizer.encode('the 東京').map((token) => text.push(token))
 * pieces.join('') + text.finish() // => 'the 東京'
 */
export class Detokenizer {
  private readonly tokens: number[]
  /** Number of tokens that the text continues. */
  private readonly context: number
  /** Start of the context for decoding the next tokens: some tokenizers drop a leading space. */
  private prefix = 0
  /** Number of tokens that were output completely. */
  private done = 0
  /** Number of tokens, and length of the text of those after `done`, at the last output. */
  private last = 0
  private written = 0

  /** @param before - tokens that the text continues: it then begins with a space that tokenizers drop at the beginning of texts */
  constructor(
    private readonly tokenizer: Tokenizer,
    before: readonly number[] = [],
  ) {
    checkTokenizer("Detokenizer", tokenizer)
    checkKind("Detokenizer", "the tokens before", before, TOKENS)
    this.tokens = before.slice(-CONTEXT)
    this.context = this.done = this.last = this.tokens.length
  }

  /** Adds a token, and returns the text it completes; empty while a character is incomplete. */
  push(token: number): string {
    this.tokens.push(token)
    return this.take(false)
  }

  /** The remaining text, with U+FFFD for incomplete characters. */
  finish(): string {
    return this.take(true)
  }

  private take(all: boolean): string {
    if (this.done === this.tokens.length) return ""
    let before = this.tokenizer.decode(this.tokens.slice(this.prefix, this.done))
    const now = this.tokenizer.decode(this.tokens.slice(this.prefix))
    // A character that the context begins is text.
    if (this.done === this.context && !now.startsWith(before)) before = before.replace(TAIL, "")
    // A tokenizer's clean-up can change earlier text, which was already output.
    const isChanged = !now.startsWith(before)
    const from = Math.min(before.length + this.written, now.length)
    const { length } = this.tokens
    if (!all && now.endsWith(INCOMPLETE) && length - this.last < MAX_PENDING) {
      // Tokens may end a character and begin the next one.
      const text = now.replace(TAIL, "").slice(from)
      this.written += text.length
      if (text !== "") this.last = length
      return text
    }
    this.prefix = isChanged ? length : this.done
    this.done = this.last = length
    this.written = 0
    return now.slice(from)
  }
}
