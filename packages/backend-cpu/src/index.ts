/**
 * `import '@lazuli/backend-cpu'` registers the CPU backend: from then on it serves `mx.cpu`.
 */
import { loadFailure } from "./native"

if (loadFailure !== null) throw loadFailure

export { cpuBackend } from "./backend"
