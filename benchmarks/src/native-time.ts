/**
 * Preloaded before a contestant (`node --import`): counts the time in the calls of the addon that run command buffers, kernels and all,
 * which serve.ts leaves out. What is left is JavaScript's, with two looks at the clock a call.
 */
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
import { inAddon } from "./in-addon"

type Run = (...args: number[]) => unknown

const require = createRequire(import.meta.url)
const built = new URL("../../packages/backend-cpu/build/lazuli_cpu.node", import.meta.url)
const file = require.resolve(process.env.LAZULI_CPU_ADDON ?? fileURLToPath(built))
const addon = require(file) as Record<"run" | "wait", Run>

const timed =
  (run: Run): Run =>
  (...args) => {
    const start = performance.now()
    const result = run(...args)
    inAddon.ms += performance.now() - start
    return result
  }

const loaded = require.cache[file]
if (loaded) loaded.exports = { ...addon, run: timed(addon.run), wait: timed(addon.wait) }
