/**
 * `import '@lazuli/backend-cpu'` registers the CPU backend: from then on it serves `mx.cpu`.
 */
import { registerBackend } from "@lazuli/core/engine"
import { cpuBackend } from "./backend"

registerBackend(cpuBackend)

export { cpuBackend }
