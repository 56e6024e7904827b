/**
 * The backend "apple": the kernels on the Apple runtime, with the fake Metal under it. Importing it registers it, below the backend that
 * serves `mx.gpu`.
 */
import { registerBackend } from "@lazuli/core/engine"
import { createMetalBackend } from "../src/backend"
import { AppleOnFake } from "./fake-metal"

export const appleRuntime = new AppleOnFake()
export const appleBackend = createMetalBackend(appleRuntime, "apple", 1)
registerBackend(appleBackend)
