/**
 * Availability, number and properties of devices.
 */
import { backendFor, type DeviceFacts, isServed } from "../graph/backend"
import { currentStream, Device, type DeviceType } from "../graph/device"
import { ArgumentError, describe } from "../graph/errors"

function typeOf(op: string, device: unknown): DeviceType {
  if (device instanceof Device) return device.type
  if (device === "cpu" || device === "gpu") return device
  throw new ArgumentError(op, `expected a device (mx.cpu or mx.gpu), received ${describe(device)}`)
}

/** The number of devices of a type: at most one, and none where a backend was imported that finds no device. */
function countOf(type: DeviceType): number {
  if (!isServed(type)) return 0
  return Math.min(1, backendFor(new Device(type)).information?.devices?.().length ?? 1)
}

/**
 * True if a backend supports the device, and the device is there.
 * @throws ArgumentError if it is not a device
 * @example
 * mx.isAvailable(mx.cpu) // => true
 */
export function isAvailable(device: Device | DeviceType): boolean {
  return countOf(typeOf("isAvailable", device)) > (device instanceof Device ? device.index : 0)
}

/**
 * The number of devices of a type.
 * @throws ArgumentError if it is not a device
 * @example
 * mx.deviceCount('cpu') // => 1
 */
export function deviceCount(device: Device | DeviceType): number {
  return countOf(typeOf("deviceCount", device))
}

/**
 * Properties of a device (the default device if omitted): its name and architecture and, if the backend reports them, its memory in bytes
 * and the recommended maximum working set.
 * @throws DeviceError if no backend supports it; ArgumentError if it is not a device
 * @example
 * mx.deviceInfo().deviceName.length > 0 // => true
 */
export function deviceInfo(device?: Device | DeviceType | null): DeviceFacts {
  const { type } = currentStream().device
  const backend = backendFor(new Device(device == null ? type : typeOf("deviceInfo", device)))
  return { deviceName: backend.name, architecture: "unknown", ...backend.information?.facts?.() }
}
