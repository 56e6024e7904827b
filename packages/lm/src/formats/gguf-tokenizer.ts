/**
 * The tokenizer in a GGUF file's metadata, as a tokenizer.json: byte-level ones ("gpt2"), and those of SentencePiece ("llama"), whose
 * scores become merges.
 */
import type { JsonObject } from "../models/settings"
import type { TokenizerFiles } from "../text/tokenizer"
import type { GgufMetadata } from "./gguf-metadata"

/** The numbers by which GGUF says what a token is. */
const CONTROL = 3
const USER_DEFINED = 4

const SPLITS: Readonly<Record<string, string>> = {
  "llama-bpe":
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  qwen2:
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
}

/** The files of a tokenizer, from metadata. */
export function ggufTokenizer(metadata: GgufMetadata, tokens: readonly string[]): TokenizerFiles {
  const kind = metadata.text("tokenizer.ggml.model")
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]))
  const types = metadata.numbers("tokenizer.ggml.token_type") ?? []
  const added = tokens.flatMap((content, id) => {
    const special = types[id] === CONTROL
    if (!special && types[id] !== USER_DEFINED) return []
    return [{ id, content, special, single_word: false, lstrip: false, rstrip: false, normalized: false }]
  })
  const id = (name: string): number | null => metadata.number(`tokenizer.ggml.${name}_token_id`)
  const [bos, eos] = [id("bos"), id("eos")]
  const adds = metadata.flag("tokenizer.ggml.add_bos_token") ?? kind === "llama"
  const common: JsonObject = { version: "1.0", truncation: null, padding: null, added_tokens: added }
  const post_processor = adds && bos !== null ? beginWith(tokens[bos], bos) : null
  const template = metadata.text("tokenizer.chat_template")
  const config: Record<string, JsonObject[string]> = {}
  if (bos !== null) config.bos_token = tokens[bos]
  if (eos !== null) config.eos_token = tokens[eos]
  if (template !== null) config.chat_template = template
  const ends = [eos, id("eot"), id("eom")].filter((n) => n !== null)
  if (kind === "gpt2") {
    const merges = metadata.texts("tokenizer.ggml.merges")
    if (!merges) throw metadata.error("lacks tokenizer.ggml.merges")
    const split = SPLITS[metadata.text("tokenizer.ggml.pre") ?? ""]
    return {
      tokenizer: { ...common, post_processor, ...byteLevel(vocab, merges, split) },
      config,
      eosIds: ends,
    }
  }
  if (kind === "llama") {
    const scores = metadata.numbers("tokenizer.ggml.scores")
    if (!scores) throw metadata.error("lacks tokenizer.ggml.scores")
    const unknown = tokens[id("unknown") ?? 0]
    const prefix = metadata.flag("tokenizer.ggml.add_space_prefix") ?? true
    const parts = sentencePiece(vocab, mergesOf(tokens, scores, vocab), unknown, prefix)
    return { tokenizer: { ...common, post_processor, ...parts }, config, eosIds: ends }
  }
  throw metadata.error(`has a tokenizer of the unknown kind ${JSON.stringify(kind)}`)
}

const beginWith = (token: string, id: number): JsonObject => ({
  type: "TemplateProcessing",
  single: [{ SpecialToken: { id: token, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
  pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }],
  special_tokens: { [token]: { id: token, ids: [id], tokens: [token] } },
})

const model = (vocab: JsonObject, merges: readonly string[], unknown: string | null): JsonObject => ({
  type: "BPE",
  dropout: null,
  unk_token: unknown,
  continuing_subword_prefix: null,
  end_of_word_suffix: null,
  fuse_unk: unknown !== null,
  byte_fallback: unknown !== null,
  vocab,
  merges,
})

function byteLevel(vocab: JsonObject, merges: readonly string[], split: string | undefined): JsonObject {
  const bytes = {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: split === undefined,
  }
  const pattern = { type: "Split", pattern: { Regex: split ?? "" }, behavior: "Isolated", invert: false }
  return {
    normalizer: null,
    pre_tokenizer: split === undefined ? bytes : { type: "Sequence", pretokenizers: [pattern, bytes] },
    decoder: { ...bytes, use_regex: true },
    model: model(vocab, merges, null),
  }
}

function sentencePiece(
  vocab: JsonObject,
  merges: readonly string[],
  unknown: string,
  prefix: boolean,
): JsonObject {
  const space = { type: "Replace", pattern: { String: " " }, content: "▁" }
  const strip = { type: "Strip", content: " ", start: 1, stop: 0 }
  return {
    normalizer: {
      type: "Sequence",
      normalizers: [...(prefix ? [{ type: "Prepend", prepend: "▁" }] : []), space],
    },
    pre_tokenizer: null,
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: "▁" }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
        ...(prefix ? [strip] : []),
      ],
    },
    model: model(vocab, merges, unknown),
  }
}

/** All ways to join two tokens to a third, those of better scores first. */
function mergesOf(tokens: readonly string[], scores: readonly number[], vocab: JsonObject): string[] {
  const found: { readonly pair: string; readonly score: number; readonly order: number }[] = []
  tokens.forEach((token, id) => {
    for (let at = 1; at < token.length; at++) {
      const [left, right] = [token.slice(0, at), token.slice(at)]
      const both = Object.hasOwn(vocab, left) && Object.hasOwn(vocab, right)
      if (both) found.push({ pair: `${left} ${right}`, score: scores[id], order: Number(vocab[left]) })
    }
  })
  return found.sort((a, b) => b.score - a.score || a.order - b.order).map(({ pair }) => pair)
}
