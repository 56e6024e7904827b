/**
 * `import '@lazuli/backend-cpu'` registers the CPU backend: from then on it serves `mx.cpu`.
 */
export { cpuBackend } from "./backend"
