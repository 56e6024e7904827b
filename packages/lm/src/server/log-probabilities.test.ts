/** Log-probabilities of tokens that are parts of characters, and of those whose decoder drops a space. */
import { expect, test } from "vitest"
import { spacedTokenizer, tinyTokenizer } from "../../test/tokenizer"
import type { Piece } from "../generate/writer"
import { Tokenizer } from "../text/tokenizer"
import { chatLogprobsOf, textLogprobsOf } from "./log-probabilities"

const pieceOf = (token: number, top: Piece["top"] = []): Piece => ({
  text: "",
  token,
  logprob: -1,
  top,
  finish: null,
})

const spacing = (): Tokenizer => new Tokenizer({ tokenizer: spacedTokenizer(), config: {} })

test("bytes of tokens combine to the text, spaces included", () => {
  for (const tokenizer of [spacing(), new Tokenizer({ tokenizer: tinyTokenizer() as never, config: {} })]) {
    const text = "a a é 東 a"
    const tokens = tokenizer.encode(text, { special: false })
    const bytes = Buffer.from(tokens.flatMap((token) => tokenizer.bytesOf(token)!)).toString()
    expect(bytes.trimStart()).toBe(text)
  }
})

test("tokens of one text are told apart, or the most likely one is kept", () => {
  const tokenizer = spacing()
  const [a, spaced] = [tokenizer.idOf("a")!, tokenizer.idOf("▁a")!]
  expect(chatLogprobsOf(tokenizer, [pieceOf(spaced)])).toMatchObject({
    content: [{ token: " a", bytes: [0x20, 0x61] }],
  })
  const byte = tokenizer.idOf("<0x61>")!
  const top = [
    { token: spaced, logprob: -0.5 },
    { token: a, logprob: -2 },
    { token: byte, logprob: -3 },
  ]
  expect(textLogprobsOf(tokenizer, [pieceOf(byte, top)], [0])).toMatchObject({
    tokens: ["a"],
    top_logprobs: [{ " a": -0.5, a: -2 }],
  })
})

test("a part of a character is written as its bytes, and the chosen token is always among the top ones", () => {
  const tokenizer = spacing()
  const part = tokenizer.idOf("<0xE6>")!
  expect(chatLogprobsOf(tokenizer, [pieceOf(part)])).toMatchObject({
    content: [{ token: "\\xe6", bytes: [0xe6] }],
  })
  expect(textLogprobsOf(tokenizer, [pieceOf(part)], [0])).toMatchObject({
    tokens: ["bytes:\\xe6"],
    top_logprobs: [{ "bytes:\\xe6": -1 }],
  })
})
