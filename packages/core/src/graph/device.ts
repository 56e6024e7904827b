/**
 * Devices and streams: where and in what order work runs. Each node has a stream, a queue of one device.
 */
import { markCopy } from "./copies"
import { ArgumentError, DeviceError, describe } from "./errors"

/** The types of devices. */
export type DeviceType = "cpu" | "gpu"

/** The remedy where no backend serves a type of devices. */
export const importHint = (type: DeviceType): string =>
  `Import a package that does, such as ${type === "gpu" ? '"@lazuli/backend-cuda" or "@lazuli/backend-metal"' : '"@lazuli/backend-cpu"'}`

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

/** A queue of work on a device. Work in one stream runs in order. */
export class Stream {
  constructor(
    readonly device: Device,
    readonly index: number,
  ) {}
  toString(): string {
    return `Stream(${this.device}, ${this.index})`
  }
}

/** A separate stream in each thread that uses it. Each JavaScript thread loads its own copy of this module. */
export class ThreadLocalStream {
  /** Its stream in this thread. Engine-internal. */
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

/** The type of `stream` arguments: a stream, or a device, meaning its default stream. */
export type StreamLike = Stream | ThreadLocalStream | Device | DeviceType | null

/** The CPU. */
export const cpu: Device = new Device("cpu")
/** The GPU. */
export const gpu: Device = new Device("gpu")

/** The types of devices with a backend. The CPU always gets one, and its default stream exists before that. */
const supported = new Set<DeviceType>(["cpu"])

/** Allows streams on a type of device, once it has a backend. */
export function markServed(type: DeviceType): void {
  supported.add(type)
}

let count = 0
let named = 0
let areOnCpu = true
const defaults = new Map<DeviceType, Stream>()
let current: Stream

/** Creates a stream on a device. @throws DeviceError if no backend supports it */
export function newStream(device: Device | DeviceType): Stream {
  return makeStream("newStream", device)
}

/** The same, with errors under another function's name. */
export function makeStream(op: string, device: Device | DeviceType): Stream {
  const of = asDevice(op, device)
  if (of.type !== "cpu") areOnCpu = false
  return new Stream(of, count++)
}

/** True if all streams are on the CPU, so that no work can be elsewhere. */
export const streamsAreOnCpu = (): boolean => areOnCpu

/** The default stream of a device. @throws DeviceError if no backend supports it */
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

/** The device on which operations run by default. */
export function defaultDevice(): Device {
  return current.device
}

/** Sets the device on which subsequent operations run by default. @throws DeviceError if no backend supports it */
export function setDefaultDevice(device: Device | DeviceType): void {
  current = defaultStream(asDevice("setDefaultDevice", device))
}

/** Sets the default stream of its device, and makes that the default device. */
export function setDefaultStream(stream: Stream | ThreadLocalStream): void {
  if (!(stream instanceof Stream || stream instanceof ThreadLocalStream))
    throw new ArgumentError("setDefaultStream", `expected a stream, received ${describe(stream)}`)
  current = asStream("setDefaultStream", stream)
  defaults.set(current.device.type, current)
}

/** Resets all default streams and makes the CPU the default device. */
export function resetStreams(): void {
  defaults.clear()
  current = defaultStream(cpu)
}

/** Makes `stream` current and returns the previous stream. */
export function enterStream(op: string, stream: StreamLike): Stream {
  const before = current
  if (stream !== null) {
    named++
    current = asStream(op, stream)
  }
  return before
}

/** The number of times a stream was specified explicitly. */
export const streamsNamed = (): number => named

/** The stream of newly created nodes. */
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

/** Resolves a stream argument. @throws ArgumentError */
export function asStream(op: string, stream: Exclude<StreamLike, null>): Stream {
  if (stream instanceof ThreadLocalStream) return stream.stream
  if (!(stream instanceof Stream)) return defaultStream(asDevice(op, stream))
  asDevice(op, stream.device)
  return stream
}

/** Resolves a device argument. @throws DeviceError if there is no such device */
function asDevice(op: string, value: unknown): Device {
  const device = value === "cpu" ? cpu : value === "gpu" ? gpu : value
  if (device instanceof Device) {
    if (!supported.has(device.type))
      throw new DeviceError(op, `no backend serves ${device}`, {
        hint: importHint(device.type),
      })
    if (device.index !== 0) throw new DeviceError(op, `only device index 0 exists, received ${device}`)
    return device
  }
  throw new ArgumentError(op, `expected a device (mx.cpu or mx.gpu) or a stream, received ${describe(value)}`)
}
