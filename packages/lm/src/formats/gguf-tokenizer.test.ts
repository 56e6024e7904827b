/** Byte-level tokenizers of GGUF files, by the names of their pre-tokenizers. */
import { expect, test } from "vitest"
import { Tokenizer } from "../text/tokenizer"
import { GgufMetadata } from "./gguf-metadata"
import { ggufTokenizer } from "./gguf-tokenizer"
import { tokenizerMetadata } from "./gguf-tokenizer-write"

const TOKENS = ["a", "b", "c", "1", "2", "ab", "abc", "12"]

function tokenizerOf(pre: string | null): Tokenizer {
  const values = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.merges": ["a b", "1 2"],
    ...(pre === null ? {} : { "tokenizer.ggml.pre": pre }),
  }
  return new Tokenizer(ggufTokenizer(new GgufMetadata(values, "x.gguf"), TOKENS))
}
const tokensOf = (pre: string | null, text: string): string[] => {
  const tokenizer = tokenizerOf(pre)
  return tokenizer.encode(text).map((token) => tokenizer.textOf(token))
}

test("names of pre-tokenizers that split alike are known", () => {
  for (const pre of ["llama-bpe", "llama3", "dbrx", "smaug-bpe", "gpt-2", "olmo", "default", null])
    expect([pre, tokensOf(pre, "12")]).toEqual([pre, ["12"]])
  // They separate digits.
  for (const pre of ["qwen2", "deepseek-r1-qwen", "stablelm2", "smollm", "starcoder", "tekken"])
    expect([pre, tokensOf(pre, "12")]).toEqual([pre, ["1", "2"]])
})

test("without a name, or by the default one, numbers are cut after three digits", () => {
  for (const pre of ["default", null])
    expect([pre, tokensOf(pre, "1212a")]).toEqual([pre, ["12", "1", "2", "a"]])
  expect(tokensOf("gpt-2", "1212a")).toEqual(["12", "12", "a"])
  const metadata = tokenizerMetadata(tokenizerOf(null), TOKENS.length)
  expect(metadata["tokenizer.ggml.pre"]).toBe("default")
})

test("Llama 3 and Mistral have tokens that no merge makes", () => {
  for (const pre of ["llama-bpe", "tekken"]) expect(tokensOf(pre, "abc")).toEqual(["abc"])
  expect(tokensOf("dbrx", "abc")).toEqual(["ab", "c"])
  expect(tokensOf("qwen2", "abc")).toEqual(["ab", "c"])
})

test("other pre-tokenizers are refused: their texts would be split in another way", () => {
  expect(() => tokenizerOf("gpt-4o")).toThrow('x.gguf: the pre-tokenizer "gpt-4o" is not supported')
})
