/**
 * Reads the tokenizer of a GGUF file as tokenizer.json: byte-level BPE ("gpt2"), SentencePiece ("llama"), whose scores become merges, and
 * WordPiece ("bert").
 */
import type { JsonObject } from "../models/settings"
import type { TokenizerFiles } from "../text/tokenizer"
import type { GgufMetadata } from "./gguf-metadata"

/** GGUF's token types. */
export const TOKEN_TYPES = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const
/** The mark of spaces in SentencePiece's vocabularies, and of beginnings of words in BERT's. */
export const WORD = "▁"

/** Patterns of byte-level pre-tokenizers, by llama.cpp's names. Each splits the pieces that the ones before it left. */
export const SPLITS: Readonly<Record<string, readonly string[]>> = {
  "llama-bpe": [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
  qwen2: [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
  tekken: [
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
  // Also where a file has no name.
  default: [
    "[\\p{P}$+<=>^~|]+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
    "\\p{N}+",
    "[0-9]{3}",
  ],
}

/** Other names of pre-tokenizers, with those that split in the same way: "gpt-2", "smollm" and the names of {@link SPLITS}. */
const SAME: Readonly<Record<string, string>> = {
  "phi-2": "gpt-2",
  olmo: "gpt-2",
  mpt: "gpt-2",
  jais: "gpt-2",
  starcoder: "smollm",
  refact: "smollm",
  "command-r": "smollm",
  llama3: "llama-bpe",
  "llama-v3": "llama-bpe",
  dbrx: "llama-bpe",
  "smaug-bpe": "llama-bpe",
  "deepseek-r1-qwen": "qwen2",
  stablelm2: "qwen2",
}

/**
 * Pre-tokenizers of Llama 3 and Mistral: a word that is in the vocabulary is a token, whatever the merges, and texts begin with the BOS
 * token unless the file says otherwise.
 */
const LATER = ["llama-bpe", "llama3", "llama-v3", "tekken"]

/**
 * Tokens that end a generation, whatever the metadata says: converters write only one of a model's end tokens, and llama.cpp finds the
 * others by their texts. `</s>` is not among them: Gemma writes it in HTML.
 */
export const ENDS: ReadonlySet<string> = new Set([
  ...[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|end|>",
    "<end_of_turn>",
  ],
  ...["<EOT>", "▁<EOT>", "<end_of_utterance>", "<｜end▁of▁sentence｜>"],
  // Of code, between files.
  ...["<|fim_pad|>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<reponame>", "<|file_sep|>"],
])

/** The tokenizer's files. */
export function ggufTokenizer(metadata: GgufMetadata, tokens: readonly string[]): TokenizerFiles {
  const kind = metadata.text("tokenizer.ggml.model")
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]))
  const types = metadata.numbers("tokenizer.ggml.token_type") ?? []
  const added = tokens.flatMap((content, id) => {
    const special = types[id] === TOKEN_TYPES.control || ENDS.has(content)
    if (!special && types[id] !== TOKEN_TYPES.userDefined) return []
    return [{ id, content, special, single_word: false, lstrip: false, rstrip: false, normalized: false }]
  })
  const id = (name: string): number | null => metadata.number(`tokenizer.ggml.${name}_token_id`)
  const [bos, eos, pad] = [id("bos"), id("eos"), id("padding")]
  const pre = metadata.text("tokenizer.ggml.pre") ?? "default"
  const begins = metadata.flag("tokenizer.ggml.add_bos_token") ?? (kind === "llama" || LATER.includes(pre))
  const ends = metadata.flag("tokenizer.ggml.add_eos_token") ?? false
  const common: JsonObject = { version: "1.0", truncation: null, padding: null, added_tokens: added }
  const named = (add: boolean, token: number | null): Named | null =>
    add && token !== null ? [tokens[token], token] : null
  const post_processor = between(named(begins, bos), named(ends, eos))
  const templates = templatesOf(metadata)
  const config: Record<string, JsonObject[string]> = {}
  if (bos !== null) config.bos_token = tokens[bos]
  if (eos !== null) config.eos_token = tokens[eos]
  if (pad !== null) config.pad_token = tokens[pad]
  if (templates.length > 0) config.chat_template = templates
  const found = tokens.flatMap((token, n) => (ENDS.has(token) ? [n] : []))
  const eosIds = [...new Set([eos, id("eot"), id("eom"), ...found].filter((n) => n !== null))]
  if (kind === "gpt2") {
    const merges = metadata.texts("tokenizer.ggml.merges")
    if (!merges) throw metadata.error("tokenizer.ggml.merges is missing")
    const parts = byteLevel(vocab, merges, SAME[pre] ?? pre, LATER.includes(pre))
    if (!parts) throw metadata.error(`the pre-tokenizer ${JSON.stringify(pre)} is not supported`)
    return { tokenizer: { ...common, post_processor, ...parts }, config, eosIds }
  }
  if (kind === "llama") {
    const scores = metadata.numbers("tokenizer.ggml.scores")
    if (!scores) throw metadata.error("tokenizer.ggml.scores is missing")
    const unknown = tokens[id("unknown") ?? 0]
    const prefix = metadata.flag("tokenizer.ggml.add_space_prefix") ?? true
    const parts = sentencePiece(vocab, mergesOf(tokens, scores, vocab), unknown, prefix)
    return { tokenizer: { ...common, post_processor, ...parts }, config, eosIds }
  }
  if (kind === "bert") {
    const [cls, sep] = [id("cls") ?? bos, id("seperator") ?? eos]
    if (cls === null || sep === null) throw metadata.error("the CLS or SEP token is missing")
    const lowercase = metadata.flag("tokenizer.ggml.normalizer.lowercase") ?? true
    const parts = wordPieces(tokens, types, tokens[id("unknown") ?? 100] ?? "[UNK]", lowercase)
    const around = between([tokens[cls], cls], [tokens[sep], sep])
    return { tokenizer: { ...common, post_processor: around, ...parts }, config, eosIds }
  }
  throw metadata.error(`the tokenizer type ${JSON.stringify(kind)} is not supported`)
}

/** The key of the default chat template, and the beginning of the keys of others. */
export const TEMPLATE = "tokenizer.chat_template"

/** The chat templates, as in tokenizer_config.json. */
function templatesOf(metadata: GgufMetadata): JsonObject[] {
  return Object.keys(metadata.values).flatMap((key) => {
    const name =
      key === TEMPLATE ? "default" : key.startsWith(`${TEMPLATE}.`) ? key.slice(TEMPLATE.length + 1) : ""
    const template = metadata.text(key)
    return name === "" || template === null ? [] : [{ name, template }]
  })
}

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

/** A token's text and id. */
type Named = readonly [text: string, id: number]

/** A post-processor that puts texts between two tokens, such as [CLS] A [SEP] B [SEP]; null without tokens. */
function between(first: Named | null, last: Named | null): JsonObject | null {
  const tokens = [first, last].filter((token) => token !== null)
  if (tokens.length === 0) return null
  const token = (named: Named | null, type_id: number): JsonObject[] =>
    named ? [{ SpecialToken: { id: named[0], type_id } }] : []
  const text = (id: string, type_id: number): JsonObject => ({ Sequence: { id, type_id } })
  const single = [...token(first, 0), text("A", 0), ...token(last, 0)]
  return {
    type: "TemplateProcessing",
    single,
    pair: [...single, text("B", 1), ...token(last, 1)],
    special_tokens: Object.fromEntries(
      tokens.map(([name, id]) => [name, { id: name, ids: [id], tokens: [name] }]),
    ),
  }
}

function wordPieces(
  tokens: readonly string[],
  types: readonly number[],
  unknown: string,
  lowercase: boolean,
): JsonObject {
  const textOf = (token: string, id: number): string => {
    if (types[id] === TOKEN_TYPES.control || types[id] === TOKEN_TYPES.unknown || /^\[.*\]$/.test(token))
      return token
    return token.startsWith(WORD) ? token.slice(WORD.length) : `##${token}`
  }
  return {
    normalizer: {
      type: "BertNormalizer",
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase,
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    model: {
      type: "WordPiece",
      unk_token: unknown,
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(tokens.map((token, id) => [textOf(token, id), id])),
    },
  }
}

/** A byte-level tokenizer; null for an unknown name of a pre-tokenizer. */
function byteLevel(
  vocab: JsonObject,
  merges: readonly string[],
  pre: string,
  ignoresMerges: boolean,
): JsonObject | null {
  const splits = SPLITS[pre]
  const digits = pre === "smollm"
  if (splits === undefined && !digits && pre !== "gpt-2") return null
  const bytes = {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: splits === undefined,
  }
  const parts: JsonObject[] = digits
    ? [{ type: "Digits", individual_digits: true }]
    : (splits ?? []).map((Regex) => ({
        type: "Split",
        pattern: { Regex },
        behavior: "Isolated",
        invert: false,
      }))
  return {
    normalizer: null,
    pre_tokenizer: parts.length === 0 ? bytes : { type: "Sequence", pretokenizers: [...parts, bytes] },
    decoder: { ...bytes, use_regex: true },
    model: { ...model(vocab, merges, null), ignore_merges: ignoresMerges },
  }
}

/** @param prefix - a space before texts, which the decoder drops */
export function sentencePiece(
  vocab: JsonObject,
  merges: readonly string[],
  unknown: string,
  prefix = true,
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

/** All pairs of tokens that form another token, by descending score. */
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
