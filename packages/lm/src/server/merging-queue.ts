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
    while (this.requests.length > 0) {
      const parts = this.next()
      const owners = parts.map(({ request }) => request)
      try {
        const results = await this.compute(parts.flatMap(({ items }) => items))
        let at = 0
        for (const { request, items } of parts)
          for (let i = 0; i < items.length; i++) request.results.push(results[at++])
        for (const request of owners)
          if (request.results.length === request.items.length) request.resolve(request.results)
        this.requests = this.requests.filter((request) => request.results.length < request.items.length)
      } catch (reason) {
        for (const request of owners) request.reject(reason)
        this.requests = this.requests.filter((request) => !owners.includes(request))
      }
    }
    this.running = false
  }

  /** The next items: an equal share of each waiting request, the first ones first. */
  private next(): { readonly request: Request<T, R>; readonly items: readonly T[] }[] {
    const share = Math.max(1, Math.floor(ITEMS / this.requests.length))
    return this.requests.slice(0, ITEMS).map((request) => {
      const from = request.results.length
      return { request, items: request.items.slice(from, from + share) }
    })
  }
}
