/**
 * Lanes: what is written for each stream, when it runs, and who waits for it. A lane's tapes run in order, on this thread where nothing
 * of the lane is under way, else on the lane's own; lanes run at once. What a lane reads from another one it waits for, by a record.
 */
import { DeviceError, IndexError, NumericError, Storage, type Stream } from "@lazuli/core/engine"
import { native } from "./native"
import { Tape } from "./tape"

/** A tape longer than this runs before the graph is all encoded. */
const MAX_WORDS = 1 << 18
/** Streams beyond this many share lanes: each lane may have a thread. */
const MAX_LANES = 16
/** So many tapes of a lane may wait to run; then this thread waits for half of them. */
const MAX_WAITING = 128
/** The home of memory that was filled while lanes were at work: no lane's tape makes it or gives it back. */
const HOST = -1

/** The tapes of a stream. */
export class Lane {
  readonly tape: Tape
  /** The ticket that the tape gets that is being written. */
  open = 1
  /** The highest ticket that is known to be done. */
  done = 0
  /** By lane: the highest ticket that this one waits for already. */
  readonly awaited: number[] = []
  /** Slots that later records may take: the tape frees them before. */
  readonly freeSlots: number[] = []
  constructor(
    readonly id: number,
    words: number,
  ) {
    this.tape = new Tape(words)
    if (id >= 0) native.attachTape(this.tape.buffer, id)
  }

  /** Room for a record. */
  reserve(words: number): void {
    if (this.id < 0) this.tape.reserve(words)
    else {
      if (this.tape.length > MAX_WORDS) pass(this)
      if (this.tape.reserve(words)) native.attachTape(this.tape.buffer, this.id)
    }
  }

  /** Asks what is done, and says whether tapes wait or run. */
  isBusy(): boolean {
    if (this.open - 1 <= this.done) return false
    const done = native.done(this.id)
    // Whoever sees that something is done must not read what it failed to make. A wait for it is over at once.
    if (done > this.done && native.wait(this.id, done)) collectFailures()
    this.done = done
    return this.open - 1 > done
  }
}

/** The lane of the default stream. */
export const main: Lane = new Lane(0, 1 << 14)
const lanes: Lane[] = [main]
let lastStream: Stream | null = null
let lastLane = main
/** Whether work that is encoded shall not run on this thread. */
let handing = false

/** The lane of a stream. */
export function laneOf(stream: Stream): Lane {
  if (stream === lastStream) return lastLane
  const id = stream.index < MAX_LANES ? stream.index : 1 + (stream.index % (MAX_LANES - 1))
  while (lanes.length <= id) lanes.push(new Lane(lanes.length, 1 << 10))
  lastStream = stream
  lastLane = lanes[id]
  return lastLane
}

/** The lane with a number; none for what no lane made. */
export const laneAt = (id: number): Lane | undefined => lanes[id]

/** Storages by slot, for naming what failed. A free slot keeps its storage, which has no references, for the next block. */
export const storages: Storage[] = []
const hostSlots: number[] = []

function take(slots: number[], owner: Storage["memory"], nbytes: number): Storage {
  const slot = slots.pop()
  if (slot !== undefined) return storages[slot].renew(nbytes)
  const storage = new Storage(owner, storages.length, nbytes)
  storages.push(storage)
  return storage
}

/** A storage whose memory the lane's tape takes. */
export function allocateOn(lane: Lane, owner: Storage["memory"], nbytes: number): Storage {
  const storage = take(lane.freeSlots, owner, nbytes)
  lane.reserve(3)
  lane.tape.alloc(storage.slot, nbytes)
  storage.lane = lane.id
  storage.ticket = lane.open
  return storage
}

/** A storage that has its memory now, whatever lanes do: `fill` gives its slot a buffer. @throws what `fill` throws, as an engine's error */
export function fillNow(owner: Storage["memory"], nbytes: number, fill: (slot: number) => void): Storage {
  const storage = take(hostSlots, owner, nbytes)
  storage.lane = HOST
  storage.ticket = 0
  try {
    fill(storage.slot)
  } catch (error) {
    storage.refs = 0
    hostSlots.push(storage.slot)
    throw errorOf((error as Error).message)
  }
  return storage
}

/** What is done once tapes are: by lane the ticket it waits for. */
const later: { readonly tickets: readonly (number | undefined)[]; readonly act: () => void }[] = []

const isDone = (tickets: readonly (number | undefined)[]): boolean =>
  tickets.every((ticket, id) => ticket === undefined || ticket <= lanes[id].done)

function catchUp(): void {
  for (const lane of lanes) lane.isBusy()
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
  const { slot, uses } = storage
  if (storage.lane !== HOST && uses === null) {
    const lane = lanes[storage.lane]
    lane.reserve(2)
    lane.tape.free(slot)
    lane.freeSlots.push(slot)
    if (done) later.push({ tickets: ticketsAt(lane), act: done })
    return
  }
  const act = (): void => {
    if (storage.lane === HOST) {
      native.free(slot)
      hostSlots.push(slot)
    } else {
      const lane = lanes[storage.lane]
      lane.reserve(2)
      lane.tape.free(slot)
      lane.freeSlots.push(slot)
    }
    done?.()
  }
  const tickets = uses ?? []
  storage.uses = null
  if (isDone(tickets)) act()
  else later.push({ tickets, act })
}

function ticketsAt(lane: Lane): (number | undefined)[] {
  const tickets: (number | undefined)[] = []
  tickets[lane.id] = lane.open
  return tickets
}

/** Runs `act` when no lane is at work. */
export function whenIdle(act: () => void): void {
  const tickets = lanes.map((lane) =>
    lane.tape.length > 0 ? lane.open : lane.isBusy() ? lane.open - 1 : undefined,
  )
  if (isDone(tickets)) act()
  else later.push({ tickets, act })
}

/** The words that {@link cross} may write. */
export const CROSSING = 3

/** Notes that the lane's tape, which has room, reads a storage of another lane, and lets the tape wait for it. */
export function cross(lane: Lane, storage: Storage): void {
  if (lane.id < 0) return
  storage.uses ??= []
  ;(storage.uses as number[])[lane.id] = lane.open
  if (storage.lane === HOST) return
  const home = lanes[storage.lane]
  const { ticket } = storage
  if (ticket <= home.done || (lane.awaited[home.id] ?? 0) >= ticket) return
  if (ticket === home.open) submit(home)
  lane.awaited[home.id] = ticket
  lane.tape.wait(home.id, ticket)
}

/** Whether lanes know whom to call. */
let isListening = false

/** Gives a lane's tape to its thread. */
function submit(lane: Lane): void {
  const words = lane.tape.length
  if (words === 0) return
  lane.tape.length = 0
  // Lanes call it whenever they are done, also where no promise waits yet.
  if (!isListening) {
    native.onDone(wake)
    isListening = true
  }
  native.submit(words, lane.id, 1)
  lane.open++
  if (lane.open - lane.done > MAX_WAITING) waitFor(lane, lane.open - MAX_WAITING / 2)
}

/** Runs a lane's tape here. */
function run(lane: Lane): void {
  const words = lane.tape.length
  if (words === 0) return
  lane.tape.length = 0
  const wasBusy = lane.open - 1 > lane.done
  const failures = native.run(words, lane.id)
  lane.done = lane.open++
  if (failures > 0 || wasBusy) collectFailures()
  if (later.length > 0) catchUp()
}

const pass = (lane: Lane): void => (handing ? submit(lane) : run(lane))

function waitFor(lane: Lane, ticket: number): void {
  if (native.wait(lane.id, ticket)) collectFailures()
  if (ticket > lane.done) lane.done = ticket
}

/** Sees to it that a storage has its value, or its error. */
export function settle(storage: Storage): void {
  if (storage.lane === HOST) return
  const lane = lanes[storage.lane]
  if (storage.ticket <= lane.done) return
  if (storage.ticket === lane.open) run(lane)
  else waitFor(lane, storage.ticket)
}

/** Runs what is written, and waits for it. Lanes run at once, the last one on this thread. */
export function runAll(): void {
  if (lanes.length === 1) run(main)
  else {
    let last: Lane | null = null
    const submitted: Lane[] = []
    for (const lane of lanes) {
      if (lane.tape.length === 0) continue
      if (last !== null) {
        submit(last)
        submitted.push(last)
      }
      last = lane
    }
    if (last !== null) run(last)
    for (const lane of submitted) waitFor(lane, lane.open - 1)
  }
}

/** Runs what is written where that takes no waiting for other work. */
export function runIdle(): void {
  for (const lane of lanes) if (lane.tape.length > 0 && !lane.isBusy()) run(lane)
}

/** Waits for all work of a stream. */
export function synchronize(stream: Stream): void {
  const lane = laneOf(stream)
  run(lane)
  waitFor(lane, lane.open - 1)
}

/** Waits for all work of all streams. */
export function drain(): void {
  for (const lane of lanes) {
    if (lane.tape.length > 0) run(lane)
    else if (lane.isBusy()) waitFor(lane, lane.open - 1)
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

/** A promise, what it waits for, and the slots whose failures are its own. Storages may be given back, and become others, meanwhile. */
class Waiting {
  error: Error | null = null
  readonly tickets: (number | undefined)[] = []
  readonly slots: number[] = []
  readonly made: number[] = []
  resolve: () => void = nothing
  reject: (error: Error) => void = nothing
  readonly promise = new Promise<void>((resolve, reject) => {
    this.resolve = resolve
    this.reject = reject
  })

  /** Whether it waits for a tape's slot. */
  wants(slot: number, lane: number, ticket: number): boolean {
    if ((this.tickets[lane] ?? 0) < ticket) return false
    return this.slots.some((wanted, i) => wanted === slot && this.made[i] === ticket)
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

/** Gives what is written to the lanes' threads. The promise is fulfilled when the storages have their values, or rejected with an error. */
export function submitAll(wanted: readonly Storage[]): Promise<void> {
  const entry = new Waiting()
  const { tickets } = entry
  for (const { lane, ticket, slot } of wanted) {
    if (lane === HOST || ticket <= lanes[lane].done) continue
    tickets[lane] = Math.max(tickets[lane] ?? 0, ticket)
    entry.slots.push(slot)
    entry.made.push(ticket)
  }
  for (const lane of lanes) submit(lane)
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

/** Called when a lane's thread has done a tape. */
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
  for (const { slot, lane, ticket, cause, message } of native.poisoned()) {
    let error = errors.get(cause)
    if (!error) {
      error = errorOf(message)
      errors.set(cause, error)
      if (errors.size > MAX_ERRORS) errors.delete(errors.keys().next().value as number)
    }
    for (const entry of waiting) if (entry.wants(slot, lane, ticket)) entry.error ??= error
    const storage = storages[slot]
    // It may have been given back since, or have become another array's.
    // Memory lent by another backend has no lane of its own, but the ticket of what last wrote it.
    const home = storage.lane === HOST ? lane : storage.lane
    if (storage.refs === 0 || home !== lane || storage.ticket !== ticket) continue
    storage.failure ??= error
  }
}

/** An error that reads `[op] fact`, of the class that the fact asks for. */
export function errorOf(message: string): Error {
  const [, op = "eval", fact = message] = /^\[([^\]]+)\] (.*)$/s.exec(message) ?? []
  if (/out of bounds/.test(fact)) return new IndexError(op, fact)
  if (/singular|positive definite|not converge/.test(fact)) return new NumericError(op, fact)
  return new DeviceError(op, fact)
}
