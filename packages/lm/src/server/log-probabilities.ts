/**
 * Log-probabilities in the formats of OpenAI's API.
 */
import type { Piece } from "../generate/writer"
import type { Tokenizer } from "../text/tokenizer"

/** Bytes as text: printable ASCII for itself, others as `\xNN`. */
const escaped = (bytes: readonly number[]): string =>
  bytes
    .map((byte) =>
      byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`,
    )
    .join("")

/** A token's text; its bytes after `prefix` if they are a part of a character. */
function textOf(tokenizer: Tokenizer, token: number, prefix = ""): string {
  const text = tokenizer.pieceOf(token)
  const bytes = text.includes("\uFFFD") ? tokenizer.bytesOf(token) : null
  return bytes ? prefix + escaped(bytes) : text
}

/** Those of a chat's tokens. */
export function chatLogprobsOf(tokenizer: Tokenizer, pieces: readonly Piece[]): object {
  const one = (token: number, logprob: number): object => ({
    token: textOf(tokenizer, token),
    logprob,
    bytes: tokenizer.bytesOf(token),
  })
  const content = pieces.map(({ token, logprob, top }) => ({
    ...one(token, logprob ?? 0),
    top_logprobs: top.map((other) => one(other.token, other.logprob)),
  }))
  return { content, refusal: null }
}

/** Those of a completion's tokens, whose text begins at `offsets`. */
export function textLogprobsOf(
  tokenizer: Tokenizer,
  pieces: readonly Piece[],
  offsets: readonly number[],
): object {
  const text = (token: number): string => textOf(tokenizer, token, "bytes:")
  return {
    tokens: pieces.map(({ token }) => text(token)),
    token_logprobs: pieces.map(({ logprob }) => logprob),
    top_logprobs: pieces.map(({ token, logprob, top }) => {
      const byText = new Map<string, number | null>()
      // Several tokens may have one text, of which the most likely one comes first.
      for (const each of [...top, { token, logprob }])
        if (!byText.has(text(each.token))) byText.set(text(each.token), each.logprob)
      return Object.fromEntries(byText)
    }),
    text_offset: offsets,
  }
}
