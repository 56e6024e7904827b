/** The package where neither its addon nor that of its platform's package is installed. */
import * as mx from "@lazuli/core"
import { expect, test, vi } from "vitest"

test("a job without the addon says which package lacks it and the cure", async () => {
  const fs = process.getBuiltinModule("node:fs")
  const module = process.getBuiltinModule("node:module")
  const { existsSync } = fs
  const { createRequire } = module
  fs.existsSync = (path) => !String(path).endsWith("lazuli_distributed.node") && existsSync(path)
  module.createRequire = (path) => {
    const require = createRequire(path)
    return Object.assign((name: string) => require(name), require, {
      resolve: Object.assign((name: string) => {
        if (name.startsWith("@lazuli/distributed-")) throw new Error(`Cannot find module '${name}'`)
        return require.resolve(name)
      }, require.resolve),
    })
  }
  vi.stubEnv("LAZULI_DISTRIBUTED_ADDON", "")
  vi.stubEnv("LAZULI_RANK", "1")
  vi.stubEnv("LAZULI_SIZE", "2")
  vi.stubEnv("LAZULI_ADDRESS", "127.0.0.1:1")
  try {
    await import("./index")
    expect(mx.distributed.isAvailable()).toBe(false)
    expect(() => mx.distributed.init()).toThrow(
      /@lazuli\/distributed has no native addon for .*npm run build/,
    )
    // Nobody builds an addon for a backend that there is not.
    vi.stubEnv("LAZULI_BACKEND", "carrier pigeon")
    expect(() => mx.distributed.init()).toThrow('there is no backend "carrier pigeon"')
  } finally {
    fs.existsSync = existsSync
    module.createRequire = createRequire
    vi.unstubAllEnvs()
  }
})
