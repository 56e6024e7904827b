/**
 * The tokens of a server's requests: those of long texts come from a thread, beside which the streams go on.
 */
import { BusyError } from "../generate/batch"
import type { Tokenizer } from "../text/tokenizer"
import { type Encodable, type Encoded, type Task, TokenizerThread, taskOf } from "../text/tokenizer-thread"
import { MergingQueue } from "./merging-queue"

/**
 * Characters up to which the server encodes a request itself. They take 10 ms in English and 100 at worst (spaces), and messages, which the
 * chat template reads, 15 µs.
 */
const LONG = 4096
/** Characters that a message counts beside its own. */
const MESSAGE = 16

const lengthOf = ({ text, pair = "", values }: Encodable): number =>
  pair.length +
  (values ? JSON.stringify(values).length : 0) +
  (typeof text === "string"
    ? text.length
    : text.reduce((sum, { content }) => sum + MESSAGE + content.length, 0))

export class Encoder {
  private readonly thread: TokenizerThread
  private readonly queue: MergingQueue<Task, Encoded | Error>

  /** @param maxWaiting - maximum number of requests that wait for the thread */
  constructor(
    private readonly tokenizer: Tokenizer,
    maxWaiting: number,
  ) {
    this.thread = new TokenizerThread(tokenizer)
    this.queue = new MergingQueue((tasks) => this.thread.encode(tasks), maxWaiting)
  }

  /**
   * Encodes a request's texts.
   * @throws ArgumentError if the chat template rejects a conversation; BusyError if too many requests wait
   */
  async encode(items: readonly Encodable[], signal: AbortSignal): Promise<Encoded[]> {
    if (items.reduce((sum, item) => sum + lengthOf(item), 0) <= LONG)
      return items.map(({ text, pair, values }) =>
        typeof text === "string" && pair !== undefined
          ? this.tokenizer.encodePair(text, pair)
          : { ids: this.tokenizer.tokensOf(text, { values }), types: [] },
      )
    // Before they wait: errors of one request are no others' that wait with it.
    const tasks = items.map((item) => taskOf(this.tokenizer, item))
    const results = await this.queue.run(tasks, signal)
    return results.map((result) => {
      if (result instanceof Error) throw result
      return result
    })
  }

  close(): Promise<void> {
    return this.thread.close(new BusyError("the server is closed"))
  }
}
