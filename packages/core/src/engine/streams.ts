/**
 * Choosing streams for a part of a program, and waiting for their work. What a stream is stands in device.ts.
 */
import { backendFor } from "../graph/backend"
import { under } from "../graph/boundary"
import {
  asStream,
  currentStream,
  type Device,
  type DeviceType,
  enterStream,
  makeStream,
  resetStreams,
  type Stream,
  type StreamLike,
  ThreadLocalStream,
} from "../graph/device"
import { ArgumentError, describe } from "../graph/errors"

import { evaluateAsync, rejected } from "./evaluate"
import { nodesIn } from "./readback"

/** Makes a stream, or a device's default stream, the default until it is disposed: what `mx.stream(s)` gives. */
export class StreamContext implements Disposable {
  private readonly before: Stream
  constructor(s: Exclude<StreamLike, null>) {
    // Null is no stream here.
    this.before = enterStream("StreamContext", asStream("StreamContext", s))
  }
  [Symbol.dispose](): void {
    enterStream("stream", this.before)
  }
}

/**
 * Sends the work of `body` to a stream, or to a device's default stream, and gives what it returns; or, without a body, of the rest of the
 * block: `using _ = mx.stream(s)`. Of an async body it is the part before the first `await`.
 * @throws ArgumentError unless it is given a stream or a device
 * @example
 * const s = mx.newStream(mx.cpu)
 * mx.stream(s, () => mx.ones([2]).add(1)).tolist() // => [2, 2]
 */
export function stream(s: Exclude<StreamLike, null>): StreamContext
export function stream<T>(s: Exclude<StreamLike, null>, body: () => T): T
export function stream<T>(s: Exclude<StreamLike, null>, body?: () => T): T | StreamContext {
  if (body !== undefined && typeof body !== "function")
    throw new ArgumentError("stream", `the body must be a function, received ${describe(body)}`)
  const context = under("stream", () => new StreamContext(s))
  if (body === undefined) return context
  try {
    return body()
  } finally {
    context[Symbol.dispose]()
  }
}

/**
 * Waits until all work that was given to a stream is done; to the default stream when none is named. An error of that work stays on
 * the arrays that lack their value for it.
 * @throws ArgumentError unless it is given a stream or a device
 * @example
 * mx.synchronize() // => undefined
 */
export function synchronize(stream: StreamLike = null): void {
  const chosen = stream === null ? currentStream() : asStream("synchronize", stream)
  const { queue } = backendFor(chosen.device)
  if (queue.synchronize) queue.synchronize(chosen)
  else queue.flush()
}

/** A stream of its own in each thread that uses it. */
export function newThreadLocalStream(device: Device | DeviceType): ThreadLocalStream {
  return under("newThreadLocalStream", () => new ThreadLocalStream(device))
}

/** A new stream, as {@link newStream} makes one: each thread of JavaScript has its own streams, so none is used by two. */
export function newThreadUnsafeStream(device: Device | DeviceType): Stream {
  return makeStream("newThreadUnsafeStream", device)
}

/** Waits for all work of the default device, and starts anew with its default streams. */
export function clearStreams(): void {
  synchronize()
  resetStreams()
}

/**
 * Lets the arrays of the given trees be computed on other threads, stream by stream in order, and gives a promise that is fulfilled once
 * they have their values. The program goes on meanwhile: it may build on these arrays, hand more work over, or read what is done; only
 * what needs a value waits for it. The promise need not be awaited: an error rejects it, stays on the arrays that lack their value for it,
 * and is never an unhandled rejection. Where a device cannot work beside the program, the work is done before the call returns.
 * @example
 * const x = mx.ones([2]).add(1)
 * await mx.asyncEval(x)
 * x.tolist() // => [2, 2]
 */
export function asyncEval(...trees: unknown[]): Promise<void> {
  try {
    return evaluateAsync(nodesIn("asyncEval", trees))
  } catch (error) {
    return rejected(error)
  }
}
