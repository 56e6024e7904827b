/**
 * The handlers of the API's endpoints.
 */
import { randomUUID } from "node:crypto"
import type { HttpBindings } from "@hono/node-server"
import type { Context } from "hono"
import { streamSSE } from "hono/streaming"
import type { LoadedModel } from "../formats/load"
import { type Batcher, BusyError } from "../generate/batch"
import { checkTexts, embed, reranker, scorePairs } from "../generate/embed"
import { checkTokens, type Prompt, promptTokens } from "../generate/prompts"
import type { FinishReason, Piece } from "../generate/writer"
import type { Message } from "../text/tokenizer"
import type { Encodable, Encoded } from "../text/tokenizer-thread"
import { contextOf } from "./context"
import { Encoder } from "./encoder"
import { about, asRequestError, isExpected } from "./errors"
import { chatLogprobsOf, textLogprobsOf } from "./log-probabilities"
import { MergingQueue } from "./merging-queue"
import type { Counts } from "./metrics"
import {
  type AskedTokens,
  askedTokens,
  type Body,
  chatLogprobs,
  checkKnown,
  checkName,
  encodingOf,
  generationOf,
  includesUsage,
  inputsOf,
  messagesOf,
  modelOf,
  promptOf,
  RequestError,
  rerankingOf,
  streams,
  templateValuesOf,
  textLogprobs,
} from "./requests"
import { type ServerOptions, stallOf } from "./server-options"

/** The response format of an endpoint. */
interface ResponseFormat {
  readonly id: string
  /** The values of `object` in a response and in a streamed chunk. */
  readonly object: readonly [response: string, chunk: string]
  choice(text: string, pieces: readonly Piece[], finish: FinishReason): object
  chunk(piece: Piece): object
}

interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
}

const disconnect = (controller: AbortController): void =>
  controller.abort(new BusyError("the client disconnected"))

/**
 * Aborts when a request's client disconnects. A function of its own, since its listener must not reach the request: Node's `Request` keeps
 * listeners of its signal until it is freed, which they would prevent.
 */
function untilDisconnected(client: AbortSignal): AbortController {
  const controller = new AbortController()
  if (client.aborted) disconnect(controller)
  client.addEventListener("abort", () => disconnect(controller), { once: true })
  return controller
}

const countOf = (lists: readonly (readonly number[])[]): number =>
  lists.reduce((sum, list) => sum + list.length, 0)

/** The error of a parameter with too many tokens. */
function tooLong(param: string, tokens: number, limit: string): RequestError {
  const verb = param.endsWith("s") ? "have" : "has"
  return new RequestError(400, `the ${param} ${verb} ${tokens} tokens${limit}`, {
    param,
    code: "context_length_exceeded",
  })
}

/** True for prompts to be tokenized. */
const isText = (prompt: Prompt): prompt is string | readonly Message[] =>
  typeof prompt === "string" || typeof prompt[0] === "object"

/** The prompt of a request: the parameter that has it, and variables for the chat template. */
interface AskedPrompt {
  readonly param: string
  of(body: Body): Prompt
  readonly values?: Encodable["values"]
}

/** Handles the requests of each endpoint. */
export class RequestHandler {
  private readonly embeddings: MergingQueue<readonly number[], Float32Array>
  private readonly scores: MergingQueue<Encoded, number>
  private readonly encoder: Encoder | null
  /** Maximum number of tokens of a sequence. */
  private readonly context: number
  /** The same of an embedded text. */
  private readonly embeddingContext: number
  /** True once the server is shutting down. */
  isClosing = false
  constructor(
    private readonly model: LoadedModel,
    private readonly batch: Batcher | null,
    private readonly name: string,
    private readonly options: ServerOptions,
    private readonly counts: Counts,
  ) {
    const { maxWaiting = 256, maxCacheBytes } = options
    this.embeddings = new MergingQueue((lists) => embed(model, lists, { maxCacheBytes }), maxWaiting)
    this.scores = new MergingQueue((pairs) => scorePairs(model, pairs), maxWaiting)
    this.context = contextOf(model, options)
    // Embeddings attend to all of a text, whatever maxContext is.
    this.embeddingContext = contextOf(model, { contextLength: options.contextLength })
    this.encoder = model.tokenizer && new Encoder(model.tokenizer, maxWaiting)
  }

  /** Ends work in progress. */
  async close(): Promise<void> {
    await this.encoder?.close()
  }

  /** The tokens of prompts. @throws ArgumentError for unknown ones */
  private async tokensOf(
    prompts: readonly Prompt[],
    signal: AbortSignal,
    values?: Encodable["values"],
  ): Promise<(readonly number[])[]> {
    const { encoder } = this
    if (!encoder) return prompts.map((prompt) => promptTokens(this.model, prompt))
    const encoded = await encoder.encode(
      prompts.filter(isText).map((text) => ({ text, values })),
      signal,
    )
    const lists = prompts.map((prompt) => (isText(prompt) ? encoded.shift()!.ids : prompt))
    for (const list of lists) checkTokens(this.model, list)
    return lists
  }

  /** The number of tokens. @throws RequestError if it is too large */
  private counted(param: string, lists: readonly (readonly number[])[]): number {
    const [total, max] = [countOf(lists), this.options.maxPromptTokens ?? 32_768]
    if (total > max) throw tooLong(param, total, `, the maximum is ${max}`)
    return total
  }

  /** The number of tokens to generate after a prompt. @throws RequestError if they do not fit the context with it */
  private tokensAfter(
    param: string,
    { length }: readonly number[],
    { key, asked, max }: AskedTokens,
  ): number {
    const { context } = this
    if (length + (asked ?? 1) <= context) return asked ?? Math.min(max, context - length)
    const more = asked === undefined ? "" : ` and ${key} is ${asked}`
    throw tooLong(param, length, `${more}, the context has ${context} for both`)
  }

  chat(c: Context, body: Body): Promise<Response> {
    checkKnown(body, "chat")
    const logprobs = chatLogprobs(body)
    const logprobsOf = (pieces: readonly Piece[]): object | null =>
      logprobs === undefined ? null : chatLogprobsOf(this.model.tokenizer!, pieces)
    const format: ResponseFormat = {
      id: `chatcmpl-${randomUUID()}`,
      object: ["chat.completion", "chat.completion.chunk"],
      choice: (content, pieces, finish) => ({
        index: 0,
        message: { role: "assistant", content, refusal: null },
        logprobs: logprobsOf(pieces),
        finish_reason: finish,
      }),
      chunk: (piece) => ({
        index: 0,
        delta: { content: piece.text },
        logprobs: logprobsOf([piece]),
        finish_reason: piece.finish,
      }),
    }
    const first = { index: 0, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }
    const prompt = { param: "messages", of: messagesOf, values: templateValuesOf(body) }
    return this.answer(c, body, prompt, logprobs, format, first)
  }

  complete(c: Context, body: Body): Promise<Response> {
    checkKnown(body, "completion")
    const logprobs = textLogprobs(body)
    let length = 0
    const logprobsOf = (pieces: readonly Piece[]): object | null => {
      if (logprobs === undefined) return null
      const offsets = pieces.map(({ text }) => {
        const from = length
        length += [...text].length
        return from
      })
      return textLogprobsOf(this.model.tokenizer!, pieces, offsets)
    }
    const format: ResponseFormat = {
      id: `cmpl-${randomUUID()}`,
      object: ["text_completion", "text_completion"],
      choice: (text, pieces, finish) => ({
        index: 0,
        text,
        logprobs: logprobsOf(pieces),
        finish_reason: finish,
      }),
      chunk: (piece) => ({
        index: 0,
        text: piece.text,
        logprobs: logprobsOf([piece]),
        finish_reason: piece.finish,
      }),
    }
    return this.answer(c, body, { param: "prompt", of: promptOf }, logprobs, format, null)
  }

  async embed(c: Context, body: Body): Promise<Response> {
    checkKnown(body, "embedding")
    this.checkModel(body)
    const inputs = inputsOf(body, 256)
    const encoding = encodingOf(body)
    const { signal } = untilDisconnected(c.req.raw.signal)
    const lists = await about("input", async () => {
      const tokens = await this.tokensOf(inputs, signal)
      checkTexts("embed", this.model.network, tokens, this.options.maxCacheBytes)
      return tokens
    })
    const longest = Math.max(...lists.map(({ length }) => length))
    const context = this.embeddingContext
    if (longest > context) throw tooLong("input", longest, `, the context has ${context}`)
    const total = this.counted("input", lists)
    const vectors = await this.embeddings.run(lists, signal)
    this.counts.requests++
    this.counts.promptTokens += total
    const data = vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: encoding === "float" ? [...vector] : Buffer.from(vector.buffer).toString("base64"),
    }))
    const usage = { prompt_tokens: total, total_tokens: total }
    return c.json({ object: "list", data, model: this.name, usage })
  }

  /** Documents sorted by score, in the format of Cohere's and Jina's servers. */
  async rerank(c: Context, body: Body): Promise<Response> {
    checkKnown(body, "rerank")
    this.checkModel(body)
    const { query, documents, topN, returnsDocuments } = rerankingOf(body, 256)
    const { network } = reranker(this.model)
    const { signal } = untilDisconnected(c.req.raw.signal)
    const pairs = await this.encoder!.encode(
      documents.map((pair) => ({ text: query, pair })),
      signal,
    )
    const lists = pairs.map(({ ids }) => ids)
    await about("documents", () => checkTexts("rerank", network, lists))
    const total = this.counted("documents", lists)
    const scores = await this.scores.run(pairs, signal)
    this.counts.requests++
    this.counts.promptTokens += total
    const results = documents
      .map((text, index) => ({
        index,
        relevance_score: scores[index],
        ...(returnsDocuments ? { document: { text } } : {}),
      }))
      .sort((a, b) => b.relevance_score - a.relevance_score)
      .slice(0, topN)
    const usage = { prompt_tokens: total, total_tokens: total }
    return c.json({ model: this.name, results, usage })
  }

  private checkModel(body: Body): void {
    const model = modelOf(body)
    if (model !== undefined) checkName(model, this.name)
  }

  private async answer(
    c: Context,
    body: Body,
    { param, of, values }: AskedPrompt,
    logprobs: number | undefined,
    format: ResponseFormat,
    first: object | null,
  ): Promise<Response> {
    this.checkModel(body)
    const { batch, model } = this
    if (!batch) throw new RequestError(400, "the model is an encoder, which does not generate text")
    if (!model.tokenizer)
      throw new RequestError(400, "the model has no tokenizer, without which there is no text")
    const options = generationOf(body, batch.vocabulary)
    const asked = askedTokens(body, this.options.maxTokens ?? 1024)
    const [isStreamed, countsTokens] = [streams(body), includesUsage(body)]
    const controller = untilDisconnected(c.req.raw.signal)
    const prompt = of(body)
    const [tokens] = await about(param, () => this.tokensOf([prompt], controller.signal, values))
    this.counted(param, [tokens])
    const maxTokens = this.tokensAfter(param, tokens, asked)
    const pieces = await about(param, () =>
      batch.stream(tokens, {
        ...options,
        maxTokens,
        logprobs,
        continues: param === "prompt",
        signal: controller.signal,
      }),
    )
    this.counts.requests++
    this.counts.promptTokens += tokens.length
    const usage = (written: number): Usage => ({
      prompt_tokens: tokens.length,
      completion_tokens: written,
      total_tokens: tokens.length + written,
    })
    const head = { id: format.id, created: Math.floor(Date.now() / 1000), model: this.name }
    if (!isStreamed) {
      const all: Piece[] = []
      for await (const piece of pieces) {
        all.push(piece)
        this.counts.generatedTokens++
      }
      const text = all.map((piece) => piece.text).join("")
      const choices = [format.choice(text, all, all[all.length - 1].finish ?? "stop")]
      return c.json({ ...head, object: format.object[0], choices, usage: usage(all.length) })
    }
    const shape = (choices: readonly object[], counted: Usage | null = null): object => ({
      ...head,
      object: format.object[1],
      choices,
      ...(countsTokens ? { usage: counted } : {}),
    })
    return streamSSE(c, async (out) => {
      let stalled: NodeJS.Timeout | undefined
      out.onAbort(() => {
        // A write to a client that has left never ends, and its timer would keep the request's memory.
        clearTimeout(stalled)
        disconnect(controller)
      })
      const send = async (data: object | string): Promise<void> => {
        if (out.aborted) return
        stalled = setTimeout(() => {
          disconnect(controller)
          ;(c.env as Partial<HttpBindings> | undefined)?.outgoing?.destroy()
        }, stallOf(this.options))
        try {
          await out.writeSSE({ data: typeof data === "string" ? data : JSON.stringify(data) })
        } finally {
          clearTimeout(stalled)
        }
      }
      try {
        if (first) await send(shape([first]))
        let written = 0
        for await (const piece of pieces) {
          written++
          this.counts.generatedTokens++
          if (piece.text !== "" || piece.finish !== null || logprobs !== undefined)
            await send(shape([format.chunk(piece)]))
        }
        if (countsTokens) await send(shape([], usage(written)))
        await send("[DONE]")
      } catch (error) {
        // An error that leaves this function would be written again, with its message.
        if (controller.signal.aborted) return
        if (!isExpected(error)) this.options.onError?.(error)
        const answer = asRequestError(error, this.isClosing)
        this.counts.addError(answer.status)
        await send(answer.body)
      }
    })
  }
}
