/**
 * Writes tokenizer.json as metadata of a GGUF file, the reverse of gguf-tokenizer.ts.
 */
import * as mx from "@lazuli/core"
import { FormatError, isPlainObject } from "@lazuli/core/engine"
import type { Json, JsonObject } from "../models/settings"
import type { Tokenizer } from "../text/tokenizer"
import { ENDS, SPLITS, TEMPLATE, TOKEN_TYPES, WORD } from "./gguf-tokenizer"

type Metadata = Record<string, mx.Array | string | string[]>

const part = (value: Json | undefined): JsonObject => (isPlainObject(value) ? (value as JsonObject) : {})
const list = (value: Json | undefined): readonly Json[] => (Array.isArray(value) ? value : [])

/**
 * The metadata of a tokenizer.
 * @param vocabulary - number of embeddings; the tokenizer may have fewer tokens
 * @throws FormatError for a tokenizer that llama.cpp does not support
 */
export function tokenizerMetadata(tokenizer: Tokenizer, vocabulary: number): Metadata {
  const { tokenizer: json, config } = tokenizer.files
  const model = part(json.model)
  const kind = kindOf(json, model)
  const { tokens, types } = tokensOf(json, model, vocabulary)
  const texts = kind === "bert" ? tokens.map((text, id) => wordOf(text, types[id])) : tokens
  const out: Metadata = {
    "tokenizer.ggml.model": kind,
    "tokenizer.ggml.tokens": texts,
    "tokenizer.ggml.token_type": mx.array(Int32Array.from(types)),
  }
  if (kind === "gpt2") {
    out["tokenizer.ggml.pre"] = splitOf(part(json.pre_tokenizer))
    out["tokenizer.ggml.merges"] = mergesOf(model)
  } else if (kind === "llama") {
    out["tokenizer.ggml.scores"] = mx.array(scoresOf(model, vocabulary))
    out["tokenizer.ggml.add_space_prefix"] = mx.array(prefixes(tokenizer))
  }
  const { bos, eos, begins, ends } = boundsOf(tokenizer, kind)
  const put = (name: string, id: number | undefined): void => {
    if (id !== undefined) out[`tokenizer.ggml.${name}_token_id`] = mx.array(id, mx.uint32)
  }
  put("bos", bos)
  put("eos", eos)
  put("unknown", idOf(tokenizer, model.unk_token))
  put("padding", idOf(tokenizer, config.pad_token))
  if (kind === "bert") {
    put("cls", bos)
    put("seperator", eos)
    const lowercase = part(json.normalizer).lowercase
    out["tokenizer.ggml.normalizer.lowercase"] = mx.array(lowercase !== false)
    out["tokenizer.ggml.token_type_count"] = mx.array(2, mx.uint32)
  } else {
    out["tokenizer.ggml.add_bos_token"] = mx.array(begins)
    out["tokenizer.ggml.add_eos_token"] = mx.array(ends)
  }
  // Those that readers do not find by their texts come first.
  const known = (id: number): number => (ENDS.has(tokens[id]) ? 1 : 0)
  const others = [...tokenizer.eosIds].filter((id) => id !== eos).sort((a, b) => known(a) - known(b))
  if (others.slice(2).some((id) => !known(id)))
    throw new FormatError("save", `GGUF files have no place for ${others.length + 1} end-of-text tokens`)
  put("eot", others[0])
  put("eom", others[1])
  return { ...out, ...templateMetadata(tokenizer) }
}

/** The default chat template, and others by their names. */
function templateMetadata({ templates, templateSource }: Tokenizer): Metadata {
  const others = templates.size === 1 ? [] : [...templates].filter(([name]) => name !== "default")
  return {
    ...(templateSource === null ? {} : { [TEMPLATE]: templateSource }),
    ...Object.fromEntries(others.map(([name, source]) => [`${TEMPLATE}.${name}`, source])),
    ...(others.length === 0 ? {} : { "tokenizer.chat_templates": others.map(([name]) => name) }),
  }
}

/** The id of a token of the files, which is a text or an object. */
function idOf(tokenizer: Tokenizer, token: Json | undefined): number | undefined {
  const content = isPlainObject(token) ? (token as JsonObject).content : token
  return typeof content === "string" ? tokenizer.idOf(content) : undefined
}

/** True for a SentencePiece tokenizer that puts a space before texts. */
const prefixes = (tokenizer: Tokenizer): boolean =>
  tokenizer.textOf(tokenizer.encode("a", { special: false })[0]).startsWith(WORD)

/** The first and the last token of texts; `begins` and `ends` are false where they are not added to texts. */
interface Bounds {
  readonly bos: number | undefined
  readonly eos: number | undefined
  readonly begins: boolean
  readonly ends: boolean
}

/**
 * The tokens that a tokenizer puts around texts, by the tokens of one, because there are many kinds of post-processors.
 * @throws FormatError for others than GGUF files can have
 */
function boundsOf(tokenizer: Tokenizer, kind: "gpt2" | "llama" | "bert"): Bounds {
  const { config } = tokenizer.files
  const [plain, all] = [false, true].map((special) => tokenizer.encode("a", { special }))
  const at = all.findIndex((_, from) => plain.every((id, i) => all[from + i] === id))
  const [before, after] = [all.slice(0, at), all.slice(at + plain.length)]
  const isBert = kind === "bert"
  const bos = isBert ? before[0] : (idOf(tokenizer, config.bos_token) ?? before[0])
  const eos = isBert ? after[0] : (idOf(tokenizer, config.eos_token) ?? after[0] ?? [...tokenizer.eosIds][0])
  const fits = (found: readonly number[], token: number | undefined): boolean =>
    found.length === 0 ? !isBert : found.length === 1 && found[0] === token
  if (at < 0 || !fits(before, bos) || !fits(after, eos)) {
    const text = (ids: readonly number[]): string => ids.map((id) => tokenizer.textOf(id)).join(" ")
    throw new FormatError(
      "save",
      `the tokenizer puts texts between ${JSON.stringify(text(before))} and ${JSON.stringify(text(after))}, which GGUF files do not support`,
    )
  }
  return { bos, eos, begins: before.length > 0, ends: after.length > 0 }
}

function kindOf(json: JsonObject, model: JsonObject): "gpt2" | "llama" | "bert" {
  if (model.type === "WordPiece") return "bert"
  const pre = JSON.stringify(json.pre_tokenizer ?? null)
  if (model.type === "BPE" && model.byte_fallback === true) return "llama"
  if (model.type === "BPE" && pre.includes('"ByteLevel"')) return "gpt2"
  throw new FormatError("save", `GGUF files do not support the tokenizer type ${JSON.stringify(model.type)}`)
}

/** All tokens by id, and their types. */
function tokensOf(
  json: JsonObject,
  model: JsonObject,
  vocabulary: number,
): { tokens: string[]; types: number[] } {
  const tokens: string[] = Array.from({ length: vocabulary }, (_, id) => `[PAD${id}]`)
  const types: number[] = tokens.map(() => TOKEN_TYPES.unused)
  const put = (text: string, id: number, type: number): void => {
    if (id >= vocabulary)
      throw new FormatError("save", `the token ${id} has no embedding, there are ${vocabulary}`)
    tokens[id] = text
    types[id] = type
  }
  for (const [text, id] of Object.entries(part(model.vocab)))
    put(text, Number(id), /^<0x[0-9A-F]{2}>$/.test(text) ? TOKEN_TYPES.byte : TOKEN_TYPES.normal)
  for (const added of list(json.added_tokens).map(part))
    put(
      String(added.content),
      Number(added.id),
      added.special ? TOKEN_TYPES.control : TOKEN_TYPES.userDefined,
    )
  const unknown = tokens.indexOf(String(model.unk_token))
  if (unknown >= 0) types[unknown] = TOKEN_TYPES.unknown
  return { tokens, types }
}

/** A WordPiece token in GGUF's form: `##` is dropped, and beginnings of words are marked. */
function wordOf(text: string, type: number): string {
  if (type !== TOKEN_TYPES.normal || /^\[.*\]$/.test(text)) return text
  return text.startsWith("##") ? text.slice(2) : `${WORD}${text}`
}

const mergesOf = (model: JsonObject): string[] =>
  list(model.merges).map((merge) => (Array.isArray(merge) ? merge.join(" ") : String(merge)))

/** Scores that result in the order of the merges. */
function scoresOf(model: JsonObject, vocabulary: number): Float32Array {
  const vocab = part(model.vocab)
  const scores = new Float32Array(vocabulary).fill(-1e9)
  mergesOf(model).forEach((merge, rank) => {
    const id = Number(vocab[merge.replace(" ", "")])
    scores[id] = Math.max(scores[id], -rank)
  })
  return scores
}

/** llama.cpp's name of the pre-tokenizer. */
function splitOf(pre: JsonObject): string {
  const parts = pre.type === "Sequence" ? list(pre.pretokenizers).map(part) : [pre]
  const [first] = parts
  if (parts.length === 1 && first.use_regex !== false) return "gpt-2"
  if (first?.type === "Digits" && first.individual_digits === true) return "smollm"
  const patterns = parts.slice(0, -1).map(({ pattern }) => part(pattern).Regex)
  const found = Object.entries(SPLITS).find(([, splits]) => String(splits) === String(patterns))
  if (found) return found[0]
  throw new FormatError("save", "llama.cpp has no name for the tokenizer's pre-tokenizer")
}
