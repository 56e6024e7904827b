/**
 * Queues: what is written for each stream, when it runs, and who waits for it. A queue's command buffers run in order, on this thread where
 * nothing of the queue is under way, else on the queue's own; queues run at once. What a queue reads from another one it waits for, by a
 * record.
 * It is long because all that runs work must know what waits for it.
 */
import {
  DeviceError,
  DistributedError,
  IndexError,
  isExchange,
  type Node,
  NumericError,
  Storage,
  type Stream,
} from "@lazuli/core/engine"
import { CommandBuffer } from "./command-buffer"
import { native } from "./native"

/** A command buffer longer than this runs before the graph is all encoded. */
const MAX_WORDS = 1 << 18
/** Streams beyond this many share queues: each queue may have a thread. */
const MAX_QUEUES = 16
/** So many command buffers of a queue may wait to run; then this thread waits for half of them. */
const MAX_WAITING = 128
/** The home of memory that was filled while queues were at work: no queue's command buffer makes it or gives it back. */
const HOST = -1

/** The command buffers of a stream. */
export class Queue {
  readonly commands: CommandBuffer
  /** The ticket that the command buffer gets that is being written. */
  open = 1
  /** The highest ticket that is known to be done. */
  done = 0
  /** By queue: the highest ticket that this one waits for already. */
  readonly awaited: number[] = []
  /** Buffer ids that later records may take: the command buffer frees them before. */
  readonly freeIds: number[] = []
  /** The number of those that came since {@link sortIds}. */
  freed = 0
  constructor(
    readonly id: number,
    words: number,
  ) {
    this.commands = new CommandBuffer(words)
    if (id >= 0) native.attachCommands(this.commands.buffer, id)
  }

  /** Room for a record. */
  reserve(words: number): void {
    if (this.id < 0) this.commands.reserve(words)
    else {
      if (this.commands.length > MAX_WORDS) pass(this)
      if (this.commands.reserve(words)) native.attachCommands(this.commands.buffer, this.id)
    }
  }

  /** Asks what is done, and says whether command buffers wait or run. */
  isBusy(): boolean {
    if (this.open - 1 <= this.done) return false
    const done = native.done(this.id)
    // A thread that sees that something is done must not read what it failed to make. A wait for it is over at once.
    if (done > this.done && native.wait(this.id, done)) collectFailures()
    this.done = done
    return this.open - 1 > done
  }
}

/** The queue of the default stream. */
export const main: Queue = new Queue(0, 1 << 14)
const queues: Queue[] = [main]
let lastStream: Stream | null = null
let lastQueue = main
/** True if work that is encoded shall not run on this thread. */
let handing = false

/** The queue of a stream. */
export const queueOf = (stream: Stream): Queue => (stream === lastStream ? lastQueue : findQueue(stream))

// In a function of its own, as what else is rare: V8 inlines callers of the short one whole.
function findQueue(stream: Stream): Queue {
  const id = stream.index < MAX_QUEUES ? stream.index : 1 + (stream.index % (MAX_QUEUES - 1))
  while (queues.length <= id) queues.push(new Queue(queues.length, 1 << 10))
  lastStream = stream
  lastQueue = queues[id]
  return lastQueue
}

/** The queue with a number; none for what no queue made. */
export const queueAt = (id: number): Queue | undefined => queues[id]

/** Storages by buffer id, for naming what failed. A free id keeps its storage, which has no references, for the next block. */
export const storages: Storage[] = []
const hostIds: number[] = []

function take(ids: number[], owner: Storage["memory"], nbytes: number): Storage {
  const id = ids.pop()
  if (id !== undefined) return storages[id].renew(nbytes)
  const storage = new Storage(owner, storages.length, nbytes)
  storages.push(storage)
  return storage
}

const UNIT = 64
const PAGE = 4096
const PAGED_FROM = 16384

/** The classes of native/runtime/memory.cc: multiples of 64 bytes up to 1 KB, then eight a doubling, whole pages from 16 KB on. */
export function blockBytes(nbytes: number): number {
  const units = Math.max(1, Math.ceil(nbytes / UNIT))
  if (units <= 16) return units * UNIT
  // Powers and logarithms take longer than the rest of this.
  const step =
    units <= 2 ** 31 ? 1 << (28 - Math.clz32(units - 1)) : 2 ** (Math.floor(Math.log2(units - 1)) - 3)
  const bytes = Math.ceil(units / step) * step * UNIT
  return bytes < PAGED_FROM ? bytes : Math.ceil(bytes / PAGE) * PAGE
}

/** So many ids that came back together, and a quarter of all, are worth a sort. */
const MANY_FREED = 1024

/**
 * Lets ids be taken in ascending order: thousands of arrays that died together come back in any, and their storages lie outside the caches.
 */
function sortIds(queue: Queue): void {
  const { freeIds } = queue
  const isFree = new Uint8Array(storages.length)
  for (let i = 0; i < freeIds.length; i++) isFree[freeIds[i]] = 1
  let left = freeIds.length
  for (let id = 0; left > 0; id++) if (isFree[id] === 1) freeIds[--left] = id
  queue.freed = 0
}

/** A storage whose memory the queue's command buffer takes. */
export function allocateOn(queue: Queue, owner: Storage["memory"], nbytes: number): Storage {
  if (queue.freed >= MANY_FREED && queue.freed * 4 >= storages.length) sortIds(queue)
  const storage = take(queue.freeIds, owner, nbytes)
  queue.reserve(3)
  queue.commands.alloc(storage.id, nbytes)
  storage.queue = queue.id
  storage.ticket = queue.open
  return storage
}

/** More bytes take longer to copy twice than to be written by a call of their own. */
const MOST_DATA = 1024

/**
 * A storage whose contents the command buffer brings along; null where many bytes would be copied twice, or a reader would wait for work
 * that has nothing to do with it.
 */
export function allocateFilled(owner: Storage["memory"], bytes: ArrayBufferView): Storage | null {
  const { byteLength } = bytes
  if (byteLength > MOST_DATA || queues.length > 1 || main.isBusy()) return null
  const storage = take(main.freeIds, owner, byteLength)
  main.reserve(3 + MOST_DATA / 8)
  main.commands.data(storage.id, bytes)
  storage.queue = main.id
  storage.ticket = main.open
  return storage
}

/**
 * A storage that has its memory now, whatever queues do: `fill` gives its id a buffer. @throws what `fill` throws, as an engine's error
 */
export function fillNow(owner: Storage["memory"], nbytes: number, fill: (id: number) => void): Storage {
  const storage = take(hostIds, owner, nbytes)
  storage.queue = HOST
  storage.ticket = 0
  try {
    fill(storage.id)
  } catch (error) {
    storage.refs = 0
    hostIds.push(storage.id)
    throw errorOf((error as Error).message)
  }
  return storage
}

/** Actions to take once command buffers are done: by queue the ticket it waits for. */
const later: { readonly tickets: readonly (number | undefined)[]; readonly act: () => void }[] = []

const isDone = (tickets: readonly (number | undefined)[]): boolean =>
  tickets.every((ticket, id) => ticket === undefined || ticket <= queues[id].done)

function catchUp(): void {
  for (const queue of queues) queue.isBusy()
  for (let i = 0; i < later.length; ) {
    if (!isDone(later[i].tickets)) {
      i++
      continue
    }
    const [entry] = later.splice(i, 1)
    entry.act()
  }
}

/** Gives memory back once whatever uses it has run; `done` is told when that is so. */
export function releaseLater(storage: Storage, done?: () => void): void {
  const { id, uses } = storage
  if (storage.queue !== HOST && uses === null) {
    const queue = queues[storage.queue]
    queue.reserve(2)
    queue.commands.free(id)
    queue.freeIds.push(id)
    queue.freed++
    if (done) later.push({ tickets: ticketsAt(queue), act: done })
    return
  }
  const act = (): void => {
    if (storage.queue === HOST) {
      native.free(id)
      hostIds.push(id)
    } else {
      const queue = queues[storage.queue]
      queue.reserve(2)
      queue.commands.free(id)
      queue.freeIds.push(id)
    }
    done?.()
  }
  const tickets = uses ?? []
  storage.uses = null
  if (isDone(tickets)) act()
  else later.push({ tickets, act })
}

function ticketsAt(queue: Queue): (number | undefined)[] {
  const tickets: (number | undefined)[] = []
  tickets[queue.id] = queue.open
  return tickets
}

/** Runs `act` when no queue is at work. */
export function whenIdle(act: () => void): void {
  const tickets = queues.map((queue) =>
    queue.commands.length > 0 ? queue.open : queue.isBusy() ? queue.open - 1 : undefined,
  )
  if (isDone(tickets)) act()
  else later.push({ tickets, act })
}

/** The words that {@link cross} may write. */
export const CROSSING = 3

/** Notes that the queue's command buffer, which has room, reads a storage of another queue, and lets the command buffer wait for it. */
export function cross(queue: Queue, storage: Storage): void {
  if (queue.id < 0) return
  storage.uses ??= []
  ;(storage.uses as number[])[queue.id] = queue.open
  if (storage.queue !== HOST) awaitTicket(queue, queues[storage.queue], storage.ticket)
}

function awaitTicket(queue: Queue, home: Queue, ticket: number): void {
  if (ticket <= home.done || (queue.awaited[home.id] ?? 0) >= ticket) return
  if (ticket === home.open) submit(home)
  queue.awaited[home.id] = ticket
  queue.commands.wait(home.id, ticket)
}

/** The queue and the ticket of the last exchange with other processes. */
let exchanging: { readonly queue: Queue; readonly ticket: number } | null = null

/** Lets a node that is written to a queue next, which has room, come behind the exchange before it, wherever that runs, if it is one. */
export function crossExchange(queue: Queue, node: Node): void {
  if (queue.id < 0 || !isExchange(node)) return
  if (exchanging !== null && exchanging.queue !== queue)
    awaitTicket(queue, exchanging.queue, exchanging.ticket)
  exchanging = { queue, ticket: queue.open }
}

/** True if queues know whom to call. */
let isListening = false

/**
 * Words of the main queue's open command buffer, if all of it is certain: work that cannot fail, and of which only readers of its results
 * can tell whether it has run. It may wait: a call for each tiny array takes longer than the work.
 */
let certain = 0
/** True if the open command buffer held nothing else when `isCertain` was last called. */
let mayWait = false

/** True if elementwise work is certain, once its output has memory. */
export function isCertain({ inputs, stream }: Node): boolean {
  if (queues.length > 1 || handing || queueOf(stream) !== main || main.isBusy()) return false
  mayWait = main.commands.length === certain
  const { done } = main
  for (let i = 0; i < inputs.length; i++) {
    const { storage } = inputs[i]
    if (storage === null) continue
    // JavaScript or another backend that sees the memory may write to it.
    if (storage.queue !== main.id || storage.isExposed || storage.lender !== null) return false
    if (storage.ticket > done && !mayWait) return false
  }
  return true
}

/** Runs what is written, unless all of it is certain: storages with parts bound how much can wait. */
export function runSoon(): void {
  if (mayWait) certain = main.commands.length
  else run(main)
}

/** Runs what waits, before others see memory that it reads. */
export function runWaiting(): void {
  if (certain > 0) run(main)
}

/** Gives a queue's command buffer to its thread. */
function submit(queue: Queue): void {
  const words = queue.commands.length
  if (words === 0) return
  queue.commands.length = 0
  if (queue === main) certain = 0
  // Queues call it whenever they are done, also where no promise waits yet.
  if (!isListening) {
    native.onDone(wake)
    isListening = true
  }
  native.submit(words, queue.id, 1)
  queue.open++
  if (queue.open - queue.done > MAX_WAITING) waitFor(queue, queue.open - MAX_WAITING / 2)
}

/** Runs a queue's command buffer here. */
function run(queue: Queue): void {
  const words = queue.commands.length
  if (words === 0) return
  queue.commands.length = 0
  if (queue === main) certain = 0
  const wasBusy = queue.open - 1 > queue.done
  const failures = queue === main ? native.run(words) : native.run(words, queue.id)
  queue.done = queue.open++
  if (failures > 0 || wasBusy) collectFailures()
  if (later.length > 0) catchUp()
}

const pass = (queue: Queue): void => (handing ? submit(queue) : run(queue))

function waitFor(queue: Queue, ticket: number): void {
  if (native.wait(queue.id, ticket)) collectFailures()
  if (ticket > queue.done) queue.done = ticket
}

/** Sees to it that a storage has its value, or its error. */
export function waitForStorage(storage: Storage): void {
  if (storage.queue === HOST) return
  const queue = queues[storage.queue]
  if (storage.ticket <= queue.done) return
  if (storage.ticket === queue.open) run(queue)
  else waitFor(queue, storage.ticket)
}

/** Runs what is written, and waits for it. Queues run at once, the last one on this thread. */
export function runAll(): void {
  if (queues.length === 1) run(main)
  else {
    let last: Queue | null = null
    const submitted: Queue[] = []
    for (const queue of queues) {
      if (queue.commands.length === 0) continue
      if (last !== null) {
        submit(last)
        submitted.push(last)
      }
      last = queue
    }
    if (last !== null) run(last)
    for (const queue of submitted) waitFor(queue, queue.open - 1)
  }
}

/** Runs what is written where that takes no waiting for other work. */
export function runIdle(): void {
  for (const queue of queues) if (queue.commands.length > 0 && !queue.isBusy()) run(queue)
}

/** Waits for all work of a stream. */
export function synchronize(stream: Stream): void {
  const queue = queueOf(stream)
  run(queue)
  waitFor(queue, queue.open - 1)
}

/** True if a stream's work runs on this thread as soon as somebody waits for it. */
export const isIdle = (stream: Stream): boolean => !handing && !queueOf(stream).isBusy()

/** Waits for all work of all streams. */
export function drain(): void {
  for (const queue of queues) {
    if (queue.commands.length > 0) run(queue)
    else if (queue.isBusy()) waitFor(queue, queue.open - 1)
  }
  if (later.length > 0) catchUp()
}

/** Encodes with `body`, so that nothing that is written runs on this thread. */
export function handingOver(body: () => void): void {
  handing = true
  try {
    body()
  } finally {
    handing = false
  }
}

const nothing = (): void => {}

/** A promise, what it waits for, and the buffers whose failures are its own. Storages may be given back, and become others, meanwhile. */
class Waiting {
  error: Error | null = null
  readonly tickets: (number | undefined)[] = []
  readonly ids: number[] = []
  readonly made: number[] = []
  resolve: () => void = nothing
  reject: (error: Error) => void = nothing
  readonly promise = new Promise<void>((resolve, reject) => {
    this.resolve = resolve
    this.reject = reject
  })

  /** True if it waits for what a command buffer writes there. */
  wants(id: number, queue: number, ticket: number): boolean {
    if ((this.tickets[queue] ?? 0) < ticket) return false
    return this.ids.some((wanted, i) => wanted === id && this.made[i] === ticket)
  }
  /** Handlers are called when the program yields, which may be never: only what is rejected gets one. */
  settle(): void {
    if (this.error) {
      this.promise.catch(nothing)
      this.reject(this.error)
    } else this.resolve()
  }
}
let waiting: Waiting[] = []
/** Where nothing lets promises be settled, in a loop that never yields, so many are kept before they are looked through. */
const MANY_PROMISES = 1024

/**
 * Gives what is written to the queues' threads. The promise is fulfilled when the storages have their values, or rejected with an error.
 */
export function submitAll(wanted: readonly Storage[]): Promise<void> {
  const entry = new Waiting()
  const { tickets } = entry
  for (const { queue, ticket, id } of wanted) {
    if (queue === HOST || ticket <= queues[queue].done) continue
    tickets[queue] = Math.max(tickets[queue] ?? 0, ticket)
    entry.ids.push(id)
    entry.made.push(ticket)
  }
  for (const queue of queues) submit(queue)
  if (isDone(tickets)) {
    for (const { failure } of wanted) entry.error ??= failure
    entry.settle()
    return entry.promise
  }
  if (waiting.length === 0) native.hold(1)
  waiting.push(entry)
  if (waiting.length % MANY_PROMISES === 0) wake()
  return entry.promise
}

/** Called when a queue's thread has done a command buffer. */
function wake(): void {
  catchUp()
  collectFailures()
  if (waiting.length === 0) return
  const done = waiting.filter(({ tickets }) => isDone(tickets))
  if (done.length === 0) return
  waiting = waiting.filter(({ tickets }) => !isDone(tickets))
  for (const entry of done) entry.settle()
  if (waiting.length === 0) native.hold(0)
}

/** Errors by the native side's number for what went wrong: arrays that depend on one failure share its error. */
const errors = new Map<number, Error>()
const MAX_ERRORS = 1000

/** Puts errors on the storages that have no value for them. */
function collectFailures(): void {
  for (const { id, queue, ticket, cause, message } of native.poisoned()) {
    let error = errors.get(cause)
    if (!error) {
      error = errorOf(message)
      errors.set(cause, error)
      if (errors.size > MAX_ERRORS) errors.delete(errors.keys().next().value as number)
    }
    for (const entry of waiting) if (entry.wants(id, queue, ticket)) entry.error ??= error
    const storage = storages[id]
    // It may have been given back since, or have become another array's.
    // Memory lent by another backend has no queue of its own, but the ticket of what last wrote it.
    const home = storage.queue === HOST ? queue : storage.queue
    if (storage.refs === 0 || home !== queue || storage.ticket !== ticket) continue
    storage.failure ??= error
  }
}

/** An error that reads `[op] fact`, of the class that the fact asks for. */
export function errorOf(message: string): Error {
  const [, op = "eval", fact = message] = /^\[([^\]]+)\] (.*)$/s.exec(message) ?? []
  if (/out of bounds|^offsets must/.test(fact)) return new IndexError(op, fact)
  if (/singular|positive definite|not converge/.test(fact)) return new NumericError(op, fact)
  if (/^rank \d+ /.test(fact)) return new DistributedError(op, fact)
  return new DeviceError(op, fact)
}
