// Runs a TypeScript file of this repository from its sources, without a build: `node tooling/run-source.mjs FILE [arguments]`.
// Packages resolve to each other's sources, as in the tests.

import { resolve } from "node:path"
import { loadConfigFromFile, runnerImport } from "vite"

const [file, ...args] = process.argv.slice(2)
process.argv.splice(1, process.argv.length, resolve(file), ...args)
const loaded = await loadConfigFromFile({ command: "serve", mode: "test" }, "vitest.config.ts")
await runnerImport(resolve(file), {
  configFile: false,
  logLevel: "warn",
  resolve: loaded.config.resolve,
})
