/**
 * Devices and streams: where work runs and in what order. A stream is a queue of one device; nodes remember theirs.
 */
import { markCopy } from "./copies"
import { ArgumentError, DeviceError, describe } from "./errors"

/** The kinds of devices. */
export type DeviceType = "cpu" | "gpu"

/** A device: `mx.cpu` or `mx.gpu`. */
export class Device {
  constructor(
    readonly type: DeviceType,
    readonly index = 0,
  ) {}
  toString(): string {
    return `Device(${this.type}, ${this.index})`
  }
}

/** A queue of work on one device; work of one stream runs in order. */
export class Stream {
  constructor(
    readonly device: Device,
    readonly index: number,
  ) {}
  toString(): string {
    return `Stream(${this.device}, ${this.index})`
  }
}

/** Stands for a stream of its own in each thread that uses it. A thread of JavaScript loads its own copy of this module. */
export class ThreadLocalStream {
  /** The stream that it is in this thread. Engine-internal. */
  readonly stream: Stream
  readonly device: Device
  constructor(device: Device | DeviceType) {
    this.stream = makeStream("ThreadLocalStream", device)
    this.device = this.stream.device
  }
  toString(): string {
    return `ThreadLocalStream(${this.device})`
  }
}

for (const { prototype } of [Device, Stream, ThreadLocalStream]) markCopy(prototype)

/** The type of `stream` arguments: a stream, or a device, which stands for its default stream. */
export type StreamLike = Stream | ThreadLocalStream | Device | DeviceType | null

/** The processor. */
export const cpu: Device = new Device("cpu")
/** The graphics processor. */
export const gpu: Device = new Device("gpu")

/** The kinds of devices that have a backend. The processor always gets one, and streams of it come first. */
const served = new Set<DeviceType>(["cpu"])

/** Lets streams of a kind of device be made: a backend serves it. */
export function markServed(type: DeviceType): void {
  served.add(type)
}

let count = 0
let named = 0
let areOnCpu = true
const defaults = new Map<DeviceType, Stream>()
let current: Stream

/** A new stream on a device. @throws DeviceError when no backend serves it */
export function newStream(device: Device | DeviceType): Stream {
  return makeStream("newStream", device)
}

/** The same, for a function of another name. */
export function makeStream(op: string, device: Device | DeviceType): Stream {
  const of = asDevice(op, device)
  if (of.type !== "cpu") areOnCpu = false
  return new Stream(of, count++)
}

/** True if there are streams of the processor alone: no work can be anywhere else. */
export const streamsAreOnCpu = (): boolean => areOnCpu

/** The stream that work on a device goes to when none is named. @throws DeviceError when no backend serves it */
export function defaultStream(device: Device | DeviceType): Stream {
  const { type } = asDevice("defaultStream", device)
  let stream = defaults.get(type)
  if (!stream) {
    stream = newStream(type === "cpu" ? cpu : gpu)
    defaults.set(type, stream)
  }
  return stream
}
current = defaultStream(cpu)

/** The device that work goes to when none is named. */
export function defaultDevice(): Device {
  return current.device
}

/** Sends later work to `device`, unless a stream is named. @throws DeviceError when no backend serves it */
export function setDefaultDevice(device: Device | DeviceType): void {
  current = defaultStream(asDevice("setDefaultDevice", device))
}

/** Makes `stream` the default of its device, and its device the default device. */
export function setDefaultStream(stream: Stream | ThreadLocalStream): void {
  if (!(stream instanceof Stream || stream instanceof ThreadLocalStream))
    throw new ArgumentError("setDefaultStream", `expected a stream, received ${describe(stream)}`)
  current = asStream("setDefaultStream", stream)
  defaults.set(current.device.type, current)
}

/** Forgets every default stream; the processor is the default device again. */
export function resetStreams(): void {
  defaults.clear()
  current = defaultStream(cpu)
}

/** Makes `stream` the current one, and gives the one before. */
export function enterStream(op: string, stream: StreamLike): Stream {
  const before = current
  if (stream !== null) {
    named++
    current = asStream(op, stream)
  }
  return before
}

/** The number of times work was sent to a stream by name. Where nothing names one, work follows the current stream. */
export const streamsNamed = (): number => named

/** The stream that nodes made now belong to. */
export function currentStream(): Stream {
  return current
}

/** Runs `body` with another current stream. */
export function onStream<T>(stream: StreamLike, body: () => T, op = "stream"): T {
  const before = enterStream(op, stream)
  try {
    return body()
  } finally {
    current = before
  }
}

/** The stream that a stream argument means. @throws ArgumentError */
export function asStream(op: string, stream: Exclude<StreamLike, null>): Stream {
  if (stream instanceof ThreadLocalStream) return stream.stream
  if (!(stream instanceof Stream)) return defaultStream(asDevice(op, stream))
  asDevice(op, stream.device)
  return stream
}

/** The device that an argument means. @throws DeviceError when there is none such */
function asDevice(op: string, value: unknown): Device {
  const device = value === "cpu" ? cpu : value === "gpu" ? gpu : value
  if (device instanceof Device) {
    if (!served.has(device.type))
      throw new DeviceError(op, `no backend serves ${device}`, {
        hint: 'Import a package that does, such as "@lazuli/backend-metal"',
      })
    if (device.index !== 0) throw new DeviceError(op, `there is one device of its kind, received ${device}`)
    return device
  }
  throw new ArgumentError(op, `expected a device (mx.cpu or mx.gpu) or a stream, received ${describe(value)}`)
}
