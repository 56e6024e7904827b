/** The backends on which the package's tests run, and the choice of one for each test of a group. */
import "@lazuli/backend-cpu"
import "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import { afterEach, beforeEach } from "vitest"

export const backends = process.platform === "linux" ? ["reference", "cpu", "metal"] : ["reference", "cpu"]

/** Runs the tests of the calling `describe` on a backend, and the ones after it on the default again. */
export function useBackend(name: string): void {
  beforeEach(() => {
    if (name === "metal") return mx.setDefaultDevice(mx.gpu)
    mx.setDefaultDevice(mx.cpu)
    mx.setBackend(name, "cpu")
  })
  afterEach(() => {
    mx.setDefaultDevice(mx.cpu)
    mx.setBackend(null, "cpu")
  })
}
