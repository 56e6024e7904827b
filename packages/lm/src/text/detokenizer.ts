/**
 * Tokens to text as they come, in pieces that never split a character: a token may hold a part of one.
 */
import type { Tokenizer } from "./tokenizer"

const INCOMPLETE = "\uFFFD"
/** A token that is no part of a character stands for itself after so many more. */
const LONGEST = 8

/**
 * The text of a growing list of tokens.
 * @example
 * const { tokenizer } = await load('my-model')
 * const text = new Detokenizer(tokenizer)
 * const pieces = tokenizer.encode('the 東京').map((token) => text.push(token))
 * pieces.join('') + text.finish() // => 'the 東京'
 */
export class Detokenizer {
  private readonly tokens: number[] = []
  /** The tokens from here on give the context in which the next ones are read: some tokenizers drop a leading space. */
  private prefix = 0
  /** The tokens before this one are given out. */
  private done = 0

  constructor(private readonly tokenizer: Tokenizer) {}

  /** The text that a further token completes; empty while a character is incomplete. */
  push(token: number): string {
    this.tokens.push(token)
    return this.take(false)
  }

  /** The rest at the end, incomplete or not. */
  finish(): string {
    return this.take(true)
  }

  private take(all: boolean): string {
    if (this.done === this.tokens.length) return ""
    const before = this.tokenizer.decode(this.tokens.slice(this.prefix, this.done))
    const now = this.tokenizer.decode(this.tokens.slice(this.prefix))
    const waiting = this.tokens.length - this.done
    if (!all && now.endsWith(INCOMPLETE) && waiting < LONGEST) return ""
    if (!now.startsWith(before)) {
      // A tokenizer that cleans up may change what was given out; what was, stays.
      this.prefix = this.done = this.tokens.length
      return now.slice(Math.min(before.length, now.length))
    }
    this.prefix = this.done
    this.done = this.tokens.length
    return now.slice(before.length)
  }
}
