/**
 * Devices and streams: where work runs and in what order. A stream is a queue of one device; nodes remember theirs.
 */
import { ArgumentError, describe } from "./errors"

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

/** What functions take as `stream`: a stream, or a device, which stands for its default stream. */
export type StreamLike = Stream | Device | DeviceType | null

/** The processor. */
export const cpu: Device = new Device("cpu")
/** The graphics processor. */
export const gpu: Device = new Device("gpu")

let count = 0
const defaults = new Map<DeviceType, Stream>()
let current: Stream

/** A new stream on a device. */
export function newStream(device: Device | DeviceType): Stream {
  return new Stream(asDevice("newStream", device), count++)
}

/** The stream that work on a device goes to when none is named. */
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

/** Sends later work to `device`, unless a stream is named. */
export function setDefaultDevice(device: Device | DeviceType): void {
  current = defaultStream(asDevice("setDefaultDevice", device))
}

/** Makes `stream` the default of its device, and its device the default device. */
export function setDefaultStream(stream: Stream): void {
  if (!(stream instanceof Stream))
    throw new ArgumentError("setDefaultStream", `expected a stream, received ${describe(stream)}`)
  defaults.set(stream.device.type, stream)
  current = stream
}

/** The stream that nodes made now belong to. */
export function currentStream(): Stream {
  return current
}

/** Runs `body` with another current stream. */
export function onStream<T>(stream: StreamLike, body: () => T): T {
  if (stream === null) return body()
  const before = current
  current = stream instanceof Stream ? stream : defaultStream(asDevice("stream", stream))
  try {
    return body()
  } finally {
    current = before
  }
}

function asDevice(op: string, value: unknown): Device {
  if (value instanceof Device) return value
  if (value === "cpu") return cpu
  if (value === "gpu") return gpu
  throw new ArgumentError(op, `expected a device (mx.cpu or mx.gpu) or a stream, received ${describe(value)}`)
}
