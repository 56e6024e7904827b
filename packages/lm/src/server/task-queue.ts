/**
 * Limits concurrent work outside the batch: tasks run one after another.
 */
import { BusyError } from "../generate/batch"

export class TaskQueue {
  private last: Promise<unknown> = Promise.resolve()
  private size = 0

  /** @param maxWaiting - maximum number of tasks in the queue, besides the running one */
  constructor(private readonly maxWaiting: number) {}

  /** Runs a task after those before it. @throws BusyError if the queue is full */
  async run<T>(task: () => Promise<T>): Promise<T> {
    if (this.size > this.maxWaiting) throw new BusyError("the queue is full")
    this.size++
    const result = this.last.then(task)
    this.last = result.catch(() => {})
    try {
      return await result
    } finally {
      this.size--
    }
  }
}
