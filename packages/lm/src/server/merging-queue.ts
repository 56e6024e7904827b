/**
 * Work outside the batch, such as embeddings: the items of waiting requests are computed together.
 */
import { BusyError } from "../generate/batch"

interface Request<T, R> {
  readonly items: readonly T[]
  readonly results: R[]
  resolve(results: R[]): void
  reject(reason: unknown): void
}

/** Some items of a request. */
interface Part<T, R> {
  readonly request: Request<T, R>
  readonly items: readonly T[]
}

/** Maximum number of items computed at a time, so that a large request does not delay the ones after it by more. */
const ITEMS = 64

export class MergingQueue<T, R> {
  private requests: Request<T, R>[] = []
  private running = false

  /**
   * @param compute - returns a result for each item
   * @param maxWaiting - maximum number of requests in the queue, besides the first one
   */
  constructor(
    private readonly compute: (items: readonly T[]) => Promise<readonly R[]>,
    private readonly maxWaiting: number,
  ) {}

  /** The results of a request's items. @throws BusyError if the queue is full; the signal's reason if it is aborted */
  async run(items: readonly T[], signal?: AbortSignal): Promise<R[]> {
    signal?.throwIfAborted()
    if (items.length === 0) return []
    if (this.requests.length > this.maxWaiting) throw new BusyError("the queue is full")
    return new Promise<R[]>((resolve, reject) => {
      const request: Request<T, R> = { items, results: [], resolve, reject }
      this.requests.push(request)
      signal?.addEventListener(
        "abort",
        () => {
          this.requests = this.requests.filter((other) => other !== request)
          reject(signal.reason)
        },
        { once: true },
      )
      void this.work()
    })
  }

  private async work(): Promise<void> {
    if (this.running) return
    this.running = true
    while (this.requests.length > 0) await this.answer(this.next())
    this.running = false
  }

  /** Computes parts of requests together; one at a time if that fails, so that a request fails by its own items alone. */
  private async answer(parts: readonly Part<T, R>[]): Promise<void> {
    try {
      const results = await this.compute(parts.flatMap(({ items }) => items))
      let at = 0
      for (const { request, items } of parts) {
        request.results.push(...results.slice(at, (at += items.length)))
        if (request.results.length === request.items.length) this.end(request).resolve(request.results)
      }
    } catch (reason) {
      const [{ request }] = parts
      if (parts.length === 1) return this.end(request).reject(reason)
      for (const part of parts) if (this.requests.includes(part.request)) await this.answer([part])
    }
  }

  private end(request: Request<T, R>): Request<T, R> {
    this.requests = this.requests.filter((other) => other !== request)
    return request
  }

  /** The next items: an equal share of each waiting request, the first ones first. */
  private next(): Part<T, R>[] {
    const share = Math.max(1, Math.floor(ITEMS / this.requests.length))
    return this.requests.slice(0, ITEMS).map((request) => {
      const from = request.results.length
      return { request, items: request.items.slice(from, from + share) }
    })
  }
}
