/**
 * A thread that tokenizes: a megabyte of text takes seconds, in which everything else in the process would wait.
 */
import { once } from "node:events"
import { createRequire } from "node:module"
import { Worker } from "node:worker_threads"
import type { Message, Tokenizer } from "./tokenizer"

/** A text, with a second one for rerankers, or a conversation for the chat template. */
export interface Encodable {
  readonly text: string | readonly Message[]
  readonly pair?: string
  /** Further variables for the chat template. */
  readonly values?: Readonly<Record<string, unknown>>
}

/** The tokens of a text, and for pairs which of the two each is from. */
export interface Encoded {
  readonly ids: readonly number[]
  readonly types: readonly number[]
}

/** A task for the thread: a text, or the variables of the chat template. */
export interface Task {
  readonly text: string | object
  readonly pair: string | null
  readonly special: boolean
}

/** The task of a text. @throws the errors of `Tokenizer.prompt` for conversations without a valid template */
export const taskOf = (tokenizer: Tokenizer, { text, pair, values }: Encodable): Task =>
  typeof text === "string"
    ? { text, pair: pair ?? null, special: pair !== undefined || tokenizer.addsSpecial(text) }
    : { text: tokenizer.variablesOf(text, { values }), pair: null, special: false }

/** The thread's answer: tokens, or the reason why there are none, and whether the chat template gave it. */
type Answer = Encoded | { readonly reason: string; readonly isRejected: boolean }

/** The thread's program. It has no imports of its own: bundles have no file for it. */
const PROGRAM = `
const { parentPort, workerData } = require("node:worker_threads")
const { Tokenizer } = require(workerData.tokenizers)
const { Template } = require(workerData.jinja)
const tokenizer = new Tokenizer(workerData.tokenizer, workerData.config)
let template
const answer = ({ text, pair, special }) => {
  const options = { text_pair: pair, add_special_tokens: special, return_token_type_ids: true }
  let isRejected = typeof text !== "string"
  try {
    const all = isRejected ? (template ??= new Template(workerData.template)).render(text) : text
    isRejected = false
    const { ids, token_type_ids: types = [] } = tokenizer.encode(all, options)
    return { ids, types }
  } catch (error) {
    return { reason: error instanceof Error ? error.message : String(error), isRejected }
  }
}
parentPort.on("message", (tasks) => parentPort.postMessage(tasks.map(answer)))
`

const { resolve } = createRequire(import.meta.url)

/** Starts when it is first used. */
export class TokenizerThread {
  private worker: Worker | null = null
  private readonly closing = new AbortController()
  constructor(private readonly tokenizer: Tokenizer) {}

  /**
   * Runs tasks. Must not be called again before it has resolved. The results' order is that of the tasks; one that fails has an error as
   * its result, for conversations that the chat template rejects an ArgumentError.
   */
  async encode(tasks: readonly Task[]): Promise<(Encoded | Error)[]> {
    this.closing.signal.throwIfAborted()
    this.worker ??= this.started()
    try {
      this.worker.postMessage(tasks)
      const [answers] = (await once(this.worker, "message", { signal: this.closing.signal })) as [Answer[]]
      return answers.map((answer) => {
        if (!("reason" in answer)) return answer
        return answer.isRejected ? this.tokenizer.rejection(answer.reason) : new Error(answer.reason)
      })
    } catch (error) {
      this.worker = null
      throw this.closing.signal.aborted ? this.closing.signal.reason : error
    }
  }

  /** Ends the thread. Work in progress rejects with the reason. */
  async close(reason: unknown): Promise<void> {
    const { worker } = this
    this.closing.abort(reason)
    await worker?.terminate()
  }

  private started(): Worker {
    const { files, templateSource } = this.tokenizer
    const worker = new Worker(PROGRAM, {
      eval: true,
      workerData: {
        tokenizers: resolve("@huggingface/tokenizers"),
        jinja: resolve("@huggingface/jinja"),
        tokenizer: files.tokenizer,
        config: files.config,
        template: templateSource,
      },
    })
    // Servers live by their connections.
    worker.unref()
    return worker
  }
}
