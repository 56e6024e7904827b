/** The tiny checkpoints' tokenizer: bytes, a few merges and special tokens, and a chat template. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { sentencePiece } from "../src/formats/gguf-tokenizer"
import type { JsonObject } from "../src/models/settings"

export const VOCABULARY = 288

/** The characters that represent bytes in byte-level tokenizers. */
function byteCharacters(): string[] {
  const visible = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
  let next = 256
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(visible(b) ? b : next++))
}

const MERGES = [
  ["t", "h"],
  ["th", "e"],
  ["Ġ", "the"],
  ["i", "n"],
  ["Ġ", "a"],
]
const SPECIAL = ["<|begin|>", "<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"]

/** A byte-level tokenizer with a few merges, and tokens to fill the vocabulary. */
export function tinyTokenizer(): Record<string, unknown> {
  const vocab: Record<string, number> = {}
  for (const [b, c] of byteCharacters().entries()) vocab[c] = b
  MERGES.forEach((pair, i) => {
    vocab[pair.join("")] = 256 + SPECIAL.length + i
  })
  for (let id = 256 + SPECIAL.length + MERGES.length; id < VOCABULARY; id++) vocab[`unused${id}`] = id
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: SPECIAL.map((content, i) => ({
      id: 256 + i,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab,
      merges: MERGES.map((pair) => pair.join(" ")),
    },
  }
}

/** The tokens of {@link spacedTokenizer}: bytes, and words with and without SentencePiece's mark of spaces. */
const WORDS = ["▁", "a", "▁a", "é", "H", "i", "Hi", "▁Hi"]

/** A SentencePiece tokenizer, which puts a space before texts and drops it again. */
export function spacedTokenizer(): JsonObject {
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`)
  const unused = Array.from({ length: VOCABULARY - 257 - WORDS.length }, (_, i) => `unused${i}`)
  const tokens = ["<unk>", ...bytes, ...WORDS, ...unused]
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]))
  const added_tokens: JsonObject[] = []
  return {
    ...{ version: "1.0", truncation: null, padding: null, post_processor: null, added_tokens },
    ...sentencePiece(vocab, ["▁ a", "H i", "▁ Hi"], "<unk>"),
  }
}

export const CHAT_TEMPLATE =
  "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + eos_token }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"

export const writeJson = (folder: string, name: string, value: unknown): void =>
  writeFileSync(join(folder, name), JSON.stringify(value, null, 2))

/** Writes the tokenizer's files. */
export function writeTokenizer(folder: string): void {
  writeJson(folder, "tokenizer.json", tinyTokenizer())
  writeJson(folder, "tokenizer_config.json", {
    tokenizer_class: "PreTrainedTokenizerFast",
    bos_token: "<|begin|>",
    eos_token: "<|end|>",
    pad_token: "<|pad|>",
    chat_template: CHAT_TEMPLATE,
    clean_up_tokenization_spaces: false,
  })
}
