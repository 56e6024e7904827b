/** Multi-byte characters, which are split by tokens of one byte. */
import { expect, test } from "vitest"
import { spacedTokenizer, tinyTokenizer } from "../../test/tokenizer"
import { Detokenizer } from "./detokenizer"
import { StopFinder } from "./stops"
import { Tokenizer } from "./tokenizer"

const tokenizer = new Tokenizer({ tokenizer: tinyTokenizer() as never, config: {} })

test("no character is ever split", () => {
  const text = "in the 東京 café 👩‍👩‍👧 the end"
  const detokenizer = new Detokenizer(tokenizer)
  const pieces = tokenizer.encode(text).map((token) => detokenizer.push(token))
  pieces.push(detokenizer.finish())
  expect(pieces.join("")).toBe(text)
  for (const piece of pieces) expect(piece).not.toContain("\uFFFD")
})

test("no character is split by tokens that end one and begin the next", () => {
  const text = "東京都庁舎前駅".repeat(3)
  const bytes = Buffer.from(text)
  const parts = [bytes.subarray(0, 2)]
  for (let at = 2; at < bytes.length; at += 3) parts.push(bytes.subarray(at, at + 3))
  const decode = (tokens: readonly number[]): string =>
    new TextDecoder().decode(Buffer.concat(tokens.map((token) => parts[token])))
  const detokenizer = new Detokenizer({ decode } as Tokenizer)
  const pieces = [...parts.keys()].map((token) => detokenizer.push(token))
  expect(pieces).toEqual(["", ...text])
  expect(detokenizer.finish()).toBe("")
})

test("invalid bytes are output after some delay", () => {
  const detokenizer = new Detokenizer(tokenizer)
  const [, , half] = tokenizer.encode("ab東")
  expect(detokenizer.push(half)).toBe("")
  expect(detokenizer.push(97)).not.toBe("")
  const end = new Detokenizer(tokenizer)
  end.push(half)
  expect(end.finish()).toBe("\uFFFD")
})

test("a text that continues another begins with its space, and others without", () => {
  const spaced = new Tokenizer({ tokenizer: spacedTokenizer(), config: {} })
  const [before, tokens] = ["a Hi", " a é東"].map((text) => spaced.encode(text))
  // The space before texts is one more, which is not a text's own.
  tokens.shift()
  const written = (context?: readonly number[]): string => {
    const text = new Detokenizer(spaced, context)
    return tokens.map((token) => text.push(token)).join("") + text.finish()
  }
  expect(written(before)).toBe(" a é東")
  for (const context of [undefined, []]) expect(written(context)).toBe("a é東")
  const long = Array.from({ length: 50 }, () => before).flat()
  expect(written(long)).toBe(" a é東")
})

test("a context that ends with U+FFFD itself is not repeated", () => {
  const context = tokenizer.encode("a\uFFFD")
  const text = new Detokenizer(tokenizer, context)
  expect(
    tokenizer
      .encode("the")
      .map((token) => text.push(token))
      .join(""),
  ).toBe("the")
})

test("a character that was begun before is in the text that completes it", () => {
  const tokens = tokenizer.encode("a東b")
  const text = new Detokenizer(tokenizer, tokens.slice(0, 2))
  expect(tokens.slice(2).map((token) => text.push(token))).toEqual(["", "東", "b"])
})

test("stop strings are found across pieces, and text that only begins like one is output", () => {
  const finder = new StopFinder(["STOP", "TOPAZ"])
  expect(finder.push("a ST")).toEqual({ text: "a ", stopped: false })
  expect(finder.push("x S")).toEqual({ text: "STx ", stopped: false })
  expect(finder.push("TO")).toEqual({ text: "", stopped: false })
  expect(finder.push("P and more")).toEqual({ text: "", stopped: true })
  const other = new StopFinder(["ab"])
  other.push("a")
  expect(other.finish()).toBe("a")
})
