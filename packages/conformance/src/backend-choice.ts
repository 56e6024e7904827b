/**
 * Running code on a backend chosen by name, whatever device it serves.
 */
import { Device, defaultDevice, setDefaultDevice } from "@lazuli/core"
import { type Backend, backendFor, listBackends, setBackend } from "@lazuli/core/engine"

/** The registered backend of that name. @throws Error naming those that are registered */
export function backendNamed(name: string): Backend {
  const found = listBackends().find((b) => b.name === name)
  if (found) return found
  const names = listBackends().map((b) => b.name)
  throw new Error(`no backend is named "${name}"; registered: ${names.join(", ")}. Import its package first`)
}

/** Runs `body` with the backend of that name serving its device, and that device as the default. */
export function onBackendNamed<T>(name: string, body: () => T): T {
  const { device } = backendNamed(name)
  const [before, server] = [defaultDevice(), backendFor(new Device(device)).name]
  setBackend(name, device)
  setDefaultDevice(device)
  try {
    return body()
  } finally {
    setBackend(server, device)
    setDefaultDevice(before)
  }
}
