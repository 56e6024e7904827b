/**
 * Parsing and validation of requests in OpenAI's format: parameters that are not supported are errors, not ignored.
 */
import { isPlainObject } from "@lazuli/core/engine"
import type { GenerateOptions } from "../generate/options"
import { isTextPart, type Message } from "../text/tokenizer"

/** Fields of an error for programs. */
interface ErrorFields {
  readonly type?: string
  /** The parameter of the request that is wrong. */
  readonly param?: string | null
  readonly code?: string | null
}

/** An error response in OpenAI's format. */
export class RequestError extends Error {
  override readonly name = "RequestError"
  readonly fields: Required<ErrorFields>
  constructor(
    readonly status: 400 | 401 | 403 | 404 | 413 | 429 | 500 | 503,
    message: string,
    { type = "invalid_request_error", param = null, code = null }: ErrorFields = {},
  ) {
    super(message)
    this.fields = { type, param, code }
  }

  /** The response's body. */
  get body(): object {
    return { error: { message: this.message, ...this.fields } }
  }
}

/** The error of a request that would be one too many. */
export const tooMany = (message: string): RequestError =>
  new RequestError(429, message, { type: "rate_limit_error", code: "rate_limit_exceeded" })

/** The body of a request. */
export type Body = Readonly<Record<string, unknown>>

const invalid = (param: string, expected: string): RequestError =>
  new RequestError(400, `${param} must be ${expected}`, { param })

const unsupported = (name: string, param = name): RequestError =>
  new RequestError(400, `${name} is not supported`, { param })

/** A validated parameter; undefined if it is missing or null. */
function given<T>(
  body: Body,
  key: string,
  expected: string,
  accepts: (v: unknown) => boolean,
): T | undefined {
  const value = body[key]
  if (value === undefined || value === null) return undefined
  if (!accepts(value)) throw invalid(key, expected)
  return value as T
}

const isText = (v: unknown): boolean => typeof v === "string"
const isFlag = (v: unknown): boolean => typeof v === "boolean"
const between =
  (min: number, max: number) =>
  (v: unknown): boolean =>
    typeof v === "number" && v >= min && v <= max
const isCount = (v: unknown): boolean => Number.isSafeInteger(v) && (v as number) >= 1

/** The model that a request names, if it does. */
export const modelOf = (body: Body): string | undefined => given(body, "model", "a string", isText)

/** @throws RequestError unless the model that a request names is the server's */
export function checkName(asked: string, name: string): void {
  if (asked === name) return
  throw new RequestError(404, `the model ${JSON.stringify(asked)} does not exist; this server has ${name}`, {
    param: "model",
    code: "model_not_found",
  })
}

/** The request body. @throws RequestError if it is not an object */
export function bodyOf(value: unknown): Body {
  if (!isPlainObject(value)) throw new RequestError(400, "the request body must be a JSON object")
  return value as Body
}

const COMMON = [
  ...[
    "model",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "stop",
    "seed",
  ],
  ...[
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "n",
    "user",
    "metadata",
    "store",
  ],
]
/** Supported parameters; not all of their values are. */
const KNOWN = {
  chat: new Set([
    ...COMMON,
    "messages",
    "max_completion_tokens",
    "logprobs",
    "top_logprobs",
    "response_format",
    "chat_template_kwargs",
  ]),
  completion: new Set([...COMMON, "prompt", "logprobs", "echo", "best_of"]),
  embedding: new Set(["model", "input", "encoding_format", "user"]),
  rerank: new Set(["model", "query", "documents", "top_n", "return_documents"]),
}

/** Values of other parameters that change nothing here. */
const IDLE: Readonly<Record<string, (value: unknown) => boolean>> = {
  tool_choice: (v) => v === "none",
  function_call: (v) => v === "none",
  parallel_tool_calls: isFlag,
  service_tier: (v) => v === "auto" || v === "default",
  modalities: (v) => Array.isArray(v) && v.every((kind) => kind === "text"),
  safety_identifier: isText,
  prompt_cache_key: isText,
}

/** Rejects parameters that would be ignored. */
export function checkKnown(body: Body, kind: keyof typeof KNOWN): void {
  for (const [key, value] of Object.entries(body))
    if (!KNOWN[kind].has(key) && !isNothing(value) && !(Object.hasOwn(IDLE, key) && IDLE[key](value)))
      throw unsupported(key)
  if (body.n !== undefined && body.n !== null && body.n !== 1) throw invalid("n", "1")
  if (body.best_of !== undefined && body.best_of !== null && body.best_of !== 1) throw invalid("best_of", "1")
  if (body.echo) throw invalid("echo", "false")
  if (body.store) throw invalid("store", "false: nothing is stored")
  if (body.metadata && Object.keys(body.metadata).length > 0)
    throw invalid("metadata", "omitted: it is for stored answers, and nothing is stored")
  const format = body.response_format
  if (format !== undefined && format !== null && (!isPlainObject(format) || (format as Body).type !== "text"))
    throw invalid("response_format", 'of type "text"; others are not supported')
}

/** The number of tokens that a request asks for, if it does, its name, and the most that it may be. */
export interface AskedTokens {
  readonly key: string
  readonly asked: number | undefined
  readonly max: number
}

/** @throws RequestError for more than `max` */
export function askedTokens(body: Body, max: number): AskedTokens {
  const key = (body.max_completion_tokens ?? null) === null ? "max_tokens" : "max_completion_tokens"
  const asked = given<number>(body, key, "a positive integer", isCount)
  if (asked !== undefined && asked > max) throw invalid(key, `at most ${max}`)
  return { key, asked, max }
}

/** The generation options of a request, but for the number of tokens. */
export function generationOf(body: Body, vocabulary: number): GenerateOptions {
  return {
    temperature: given(body, "temperature", "a number from 0 to 2", between(0, 2)) ?? 1,
    topP: given(body, "top_p", "a number from 0 to 1", between(0, 1)),
    topK: topKOf(body),
    minP: given(body, "min_p", "a number from 0 to 1", between(0, 1)),
    presencePenalty: given(body, "presence_penalty", "a number from -2 to 2", between(-2, 2)),
    frequencyPenalty: given(body, "frequency_penalty", "a number from -2 to 2", between(-2, 2)),
    repetitionPenalty: given(body, "repetition_penalty", "a number from 0.01 to 10", between(0.01, 10)),
    seed: given(body, "seed", "an integer", Number.isSafeInteger),
    logitBias: given(
      body,
      "logit_bias",
      `an object of numbers by token, of ${vocabulary}`,
      isBias(vocabulary),
    ),
    stop: given<string | string[]>(body, "stop", "a string or at most 4 of them, none of them empty", isStop),
  }
}

/** The number of tokens to sample from; 0 and -1 are all of them: clients of vLLM send -1. */
function topKOf(body: Body): number | undefined {
  const isTop = (v: unknown): boolean => Number.isSafeInteger(v) && (v as number) >= -1
  const asked = given<number>(body, "top_k", "an integer of at least -1", isTop)
  return asked === -1 ? 0 : asked
}

const isStop = (v: unknown): boolean =>
  (Array.isArray(v) ? v : [v]).every((text) => isText(text) && text !== "") &&
  !(Array.isArray(v) && v.length > 4)
const isBias =
  (vocabulary: number) =>
  (v: unknown): boolean =>
    isPlainObject(v) &&
    Object.entries(v as Body).length <= 300 &&
    Object.entries(v as Body).every(
      ([key, bias]) => /^\d+$/.test(key) && Number(key) < vocabulary && between(-100, 100)(bias),
    )

/** True if the response is streamed. */
export const streams = (body: Body): boolean =>
  given<boolean>(body, "stream", "true or false", isFlag) ?? false
/** True if the last chunk includes token counts. */
export function includesUsage(body: Body): boolean {
  const options = given<Body>(body, "stream_options", "an object", isPlainObject)
  if (!options) return false
  if (!streams(body)) throw invalid("stream_options", "omitted unless stream is true")
  for (const [key, value] of Object.entries(options))
    if (key !== "include_usage" && value) throw unsupported(`stream_options.${key}`, "stream_options")
  return given<boolean>(options, "include_usage", "true or false", isFlag) ?? false
}

/** The number of top log-probabilities in a chat request; undefined for none. */
export function chatLogprobs(body: Body): number | undefined {
  const isTop = (v: unknown): boolean => Number.isSafeInteger(v) && between(0, 20)(v)
  const top = given<number>(body, "top_logprobs", "an integer from 0 to 20", isTop)
  if (given<boolean>(body, "logprobs", "true or false", isFlag)) return top ?? 0
  if (top) throw invalid("top_logprobs", "omitted unless logprobs is true")
  return undefined
}

/** The number of top log-probabilities in a completion request; undefined for none. */
export const textLogprobs = (body: Body): number | undefined =>
  given<number>(
    body,
    "logprobs",
    "an integer from 0 to 5",
    (v) => Number.isSafeInteger(v) && between(0, 5)(v),
  )

/** True for values that ask for nothing: clients send them along, and send back messages as they got them. */
const isNothing = (v: unknown): boolean =>
  v === undefined || v === null || (Array.isArray(v) && v.length === 0)

const ROLES = ["system", "developer", "user", "assistant"]

/** The messages of a chat request, with their text parts joined. */
export function messagesOf(body: Body): Message[] {
  const { messages } = body
  if (!Array.isArray(messages) || messages.length === 0) throw invalid("messages", "a list of messages")
  return messages.map((message: unknown, i) => {
    const { role, content, ...others } = isPlainObject(message) ? (message as Body) : {}
    for (const [key, value] of Object.entries(others))
      if (!isNothing(value)) throw unsupported(`messages[${i}].${key}`, "messages")
    if (!ROLES.includes(role as string)) throw invalid(`messages[${i}].role`, `one of ${ROLES.join(", ")}`)
    return {
      role: role === "developer" ? "system" : (role as string),
      content: contentOf(content, `messages[${i}].content`),
    }
  })
}

/** Variables of the chat template that requests have other parameters for, or that are not supported. */
const OWN_VARIABLES = ["messages", "tools", "add_generation_prompt"]

/** The variables for the chat template in a chat request: vLLM's parameter. */
export function templateValuesOf(body: Body): Readonly<Record<string, unknown>> | undefined {
  const values = given<Body>(body, "chat_template_kwargs", "an object", isPlainObject)
  for (const name of OWN_VARIABLES)
    if (values && Object.hasOwn(values, name))
      throw unsupported(`chat_template_kwargs.${name}`, "chat_template_kwargs")
  if (!isWithin(MAX_LEVELS, values))
    throw invalid("chat_template_kwargs", `an object of at most ${MAX_LEVELS} levels`)
  return values
}

/** Maximum number of levels of objects within each other. Code that walks them would run out of stack at thousands. */
const MAX_LEVELS = 64
/** True if a value has at most so many levels. */
const isWithin = (levels: number, value: unknown): boolean =>
  typeof value !== "object" ||
  value === null ||
  (levels > 0 && Object.values(value).every((each) => isWithin(levels - 1, each)))

function contentOf(content: unknown, at: string): string {
  if (typeof content === "string") return content
  if (!Array.isArray(content)) throw invalid(at, "a string or a list of parts")
  return content
    .map((part: unknown, i) => {
      if (!isTextPart(part)) throw invalid(`${at}[${i}]`, "a text part; others are not supported")
      return part.text
    })
    .join("")
}

/** The prompt of a completion request: a string or tokens. */
export function promptOf(body: Body): string | number[] {
  const list = body.prompt
  const prompt: unknown = Array.isArray(list) && list.length === 1 && !isTokens(list) ? list[0] : list
  if (typeof prompt === "string" || isTokens(prompt)) return prompt
  throw invalid("prompt", "one string, or a list of tokens")
}

const isTokens = (v: unknown): v is number[] =>
  Array.isArray(v) && v.length > 0 && v.every((t) => Number.isSafeInteger(t) && (t as number) >= 0)

/** The texts to embed. */
export function inputsOf(body: Body, max: number): (string | number[])[] {
  const { input } = body
  if (typeof input === "string") return [input]
  if (isTokens(input)) return [input]
  const isInput = (v: unknown): boolean => typeof v === "string" || isTokens(v)
  if (!Array.isArray(input) || input.length === 0 || !input.every(isInput))
    throw invalid("input", "a string, a list of strings, or tokens")
  if (input.length > max) throw invalid("input", `at most ${max} texts`)
  return input as (string | number[])[]
}

/** The format of embeddings: numbers, or base64 of float32, which OpenAI's client requests. */
export function encodingOf(body: Body): "float" | "base64" {
  const isForm = (v: unknown): boolean => v === "float" || v === "base64"
  return given(body, "encoding_format", '"float" or "base64"', isForm) ?? "float"
}

/** A reranking request. */
export interface RerankRequest {
  readonly query: string
  readonly documents: readonly string[]
  /** Maximum number of results. */
  readonly topN: number
  readonly returnsDocuments: boolean
}

/** Maximum number of characters of a query times its documents. */
const MOST_OF_QUERIES = 2 ** 20

/** The parameters of a reranking request. */
export function rerankingOf(body: Body, max: number): RerankRequest {
  const query = given<string>(body, "query", "a string", isText)
  if (query === undefined) throw invalid("query", "a string")
  const { documents } = body
  if (!Array.isArray(documents) || documents.length === 0) throw invalid("documents", "a list of texts")
  if (documents.length > max) throw invalid("documents", `at most ${max} texts`)
  // The model reads it once for each document.
  if (query.length * documents.length > MOST_OF_QUERIES)
    throw invalid(
      "query",
      `at most ${Math.floor(MOST_OF_QUERIES / documents.length)} characters with ${documents.length} documents`,
    )
  const texts = documents.map((each: unknown, i) => {
    const text = isPlainObject(each) ? (each as Body).text : each
    if (typeof text !== "string") throw invalid(`documents[${i}]`, "a string, or an object with a text")
    return text
  })
  return {
    query,
    documents: texts,
    topN: given<number>(body, "top_n", "a positive integer", isCount) ?? texts.length,
    returnsDocuments: given<boolean>(body, "return_documents", "true or false", isFlag) ?? false,
  }
}
