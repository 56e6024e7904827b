/** Tokenizers of GGUF files: byte-level ones by the names of their pre-tokenizers, special tokens, and what is written. */
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import type { JsonObject } from "../models/settings"
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

/** A tokenizer of Llama 2's kind, with the ids of its special tokens in the metadata. */
const sentencePiece = (tokens: readonly string[], metadata: Record<string, mx.Array>): Tokenizer => {
  const values = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.scores": mx.zeros([tokens.length]),
    "tokenizer.ggml.eos_token_id": mx.array(0, mx.uint32),
    ...metadata,
  }
  return new Tokenizer(ggufTokenizer(new GgufMetadata(values, "x.gguf"), tokens))
}
const id = (value: number): mx.Array => mx.array(value, mx.uint32)

test("end tokens of chats are known by their texts, and are special", () => {
  const tokens = ["<|endoftext|>", "a", "<|end|>", "<end_of_turn>", "<|user|>", "</s>"]
  const types = mx.array(Int32Array.from([3, 1, 1, 4, 3, 1]))
  const tokenizer = sentencePiece(tokens, { "tokenizer.ggml.token_type": types })
  expect([...tokenizer.eosIds].sort()).toEqual([0, 2, 3])
  expect(tokenizer.decode([1, 2, 3, 1])).toBe("aa")
})

test("Llama 3 and Mistral begin texts with the BOS token, unless the file says otherwise", () => {
  const encode = (pre: string, metadata: Record<string, mx.Array>): number[] => {
    const values = {
      ...{ "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": [], "tokenizer.ggml.pre": pre },
      ...{ "tokenizer.ggml.bos_token_id": id(3), "tokenizer.ggml.eos_token_id": id(4), ...metadata },
    }
    return new Tokenizer(ggufTokenizer(new GgufMetadata(values, "x.gguf"), TOKENS)).encode("a")
  }
  for (const pre of ["llama-bpe", "llama3", "llama-v3", "tekken"]) expect(encode(pre, {})).toEqual([3, 0])
  for (const pre of ["qwen2", "gpt-2", "dbrx"]) expect(encode(pre, {})).toEqual([0])
  expect(encode("llama-bpe", { "tokenizer.ggml.add_bos_token": mx.array(false) })).toEqual([0])
  expect(encode("qwen2", { "tokenizer.ggml.add_eos_token": mx.array(true) })).toEqual([0, 4])
})

describe("written metadata", () => {
  const special = (content: string, id: number): JsonObject => ({ id, content, special: true })
  const around = (first: string, last?: string): JsonObject => {
    const named = [first, ...(last ? [last] : [])]
    const token = (id: string): JsonObject => ({ SpecialToken: { id, type_id: 0 } })
    const ids = Object.fromEntries(
      named.map((name) => [name, { id: name, ids: [name === first ? 0 : 1], tokens: [name] }]),
    )
    const single = [token(first), { Sequence: { id: "A", type_id: 0 } }, ...(last ? [token(last)] : [])]
    return { type: "TemplateProcessing", single, pair: single, special_tokens: ids }
  }
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true }
  const base = { version: "1.0", truncation: null, padding: null }
  const byteLevel = (post_processor: JsonObject | null): JsonObject => ({
    ...{ ...base, post_processor, normalizer: null, pre_tokenizer: bytes, decoder: bytes },
    added_tokens: ["<|begin|>", "<|stop|>", "<|call|>", "<|other|>", "<|end|>"].map(special),
    model: { type: "BPE", vocab: { a: 5, b: 6 }, merges: [] },
  })
  const named = { bos_token: "<|begin|>", eos_token: "<|stop|>" }
  const readBack = (tokenizer: Tokenizer, count: number): Tokenizer => {
    const metadata = tokenizerMetadata(tokenizer, count)
    const tokens = metadata["tokenizer.ggml.tokens"] as string[]
    return new Tokenizer(ggufTokenizer(new GgufMetadata(metadata, "x.gguf"), tokens))
  }

  test("has the tokens around texts, wherever the post-processor has them", () => {
    const processors = (template: JsonObject): JsonObject => ({
      type: "Sequence",
      processors: [bytes, template],
    })
    for (const post of [
      null,
      around("<|begin|>"),
      processors(around("<|begin|>")),
      around("<|begin|>", "<|stop|>"),
    ]) {
      const tokenizer = new Tokenizer({ tokenizer: byteLevel(post), config: named })
      expect(readBack(tokenizer, 7).encode("ab")).toEqual(tokenizer.encode("ab"))
    }
    const other = new Tokenizer({ tokenizer: byteLevel(around("<|call|>")), config: named })
    expect(() => tokenizerMetadata(other, 7)).toThrow(/puts texts between "<\|call\|>" and ""/)
  })

  test("has up to three end tokens, and more if readers know them by their texts", () => {
    const of = (...eosIds: number[]): Tokenizer =>
      new Tokenizer({ tokenizer: byteLevel(null), config: named, eosIds })
    for (const ends of [[1], [2], [4, 2, 3]])
      expect([...readBack(of(...ends), 7).eosIds].sort()).toEqual([...new Set([1, ...ends, 4])].sort())
    expect(() => tokenizerMetadata(of(2, 3, 5), 7)).toThrow(/no place for 4 end-of-text tokens/)
  })

  test("has the end token of generation_config.json if the tokenizer has none", () => {
    const tokenizer = new Tokenizer({ tokenizer: byteLevel(null), config: {}, eosIds: [1] })
    expect(readBack(tokenizer, 7).eosToken).toBe("<|stop|>")
  })

  test("has several chat templates by their names", () => {
    const chat_template = [
      { name: "tool_use", template: "x" },
      { name: "default", template: "y" },
    ]
    const tokenizer = new Tokenizer({ tokenizer: byteLevel(null), config: { ...named, chat_template } })
    expect(tokenizerMetadata(tokenizer, 7)).toMatchObject({
      "tokenizer.chat_template": "y",
      "tokenizer.chat_template.tool_use": "x",
      "tokenizer.chat_templates": ["tool_use"],
    })
    expect(Object.fromEntries(readBack(tokenizer, 7).templates)).toEqual({ default: "y", tool_use: "x" })
  })

  test.each(["always", "first", "never"])(
    "has SentencePiece's space before texts, of Metaspace: %s",
    (scheme) => {
      const tokens = ["<unk>", "<s>", "</s>", "▁", "a", "▁a"]
      const tokenizer = new Tokenizer({
        tokenizer: {
          ...{
            ...base,
            normalizer: null,
            post_processor: null,
            added_tokens: tokens.slice(0, 3).map(special),
          },
          pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: scheme, split: false },
          decoder: { type: "Metaspace", replacement: "▁", prepend_scheme: scheme, split: false },
          model: {
            ...{ type: "BPE", unk_token: "<unk>", fuse_unk: true, byte_fallback: true },
            vocab: Object.fromEntries(tokens.map((token, at) => [token, at])),
            merges: ["▁ a"],
          },
        },
        config: { bos_token: "<s>", eos_token: "</s>" },
      })
      const again = readBack(tokenizer, tokens.length)
      for (const text of ["a", "a a"]) expect(again.encode(text)).toEqual(tokenizer.encode(text))
    },
  )

  test("has BERT's tokens around texts, of BertProcessing", () => {
    const words = ["[CLS]", "[SEP]", "[UNK]", "the", "end"]
    const tokenizer = new Tokenizer({
      tokenizer: {
        ...{ ...base, added_tokens: words.slice(0, 3).map(special) },
        normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, lowercase: true },
        pre_tokenizer: { type: "BertPreTokenizer" },
        post_processor: { type: "BertProcessing", sep: ["[SEP]", 1], cls: ["[CLS]", 0] },
        decoder: { type: "WordPiece", prefix: "##", cleanup: true },
        model: {
          ...{
            type: "WordPiece",
            unk_token: "[UNK]",
            continuing_subword_prefix: "##",
            max_input_chars_per_word: 9,
          },
          vocab: Object.fromEntries(words.map((word, at) => [word, at])),
        },
      },
      config: {},
    })
    expect(readBack(tokenizer, words.length).encode("the end")).toEqual([0, 3, 4, 1])
    expect(tokenizer.encode("the end")).toEqual([0, 3, 4, 1])
  })
})
