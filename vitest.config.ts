// One run over the whole repository. Packages resolve to each other's sources, so tests need no build (the native
// addon excepted: `npm run build` makes it).

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { configDefaults, defineConfig } from "vitest/config"

const root = fileURLToPath(new URL(".", import.meta.url))

type Manifest = { name: string; exports?: Record<string, { default?: string } | string> }

/** `@lazuli/nn/optimizers` → `packages/nn/src/optimizers/index.ts`, for every entry of every package's `exports`. */
function sourceAliases() {
  const aliases: { find: RegExp; replacement: string }[] = []
  for (const dir of readdirSync(`${root}packages`)) {
    const folder = `${root}packages/${dir}`
    if (!existsSync(`${folder}/package.json`)) continue
    const manifest = JSON.parse(readFileSync(`${folder}/package.json`, "utf8")) as Manifest
    for (const [subpath, target] of Object.entries(manifest.exports ?? {})) {
      const file = typeof target === "string" ? target : target.default
      const stem = /^\.\/dist\/(.+)\.js$/.exec(file ?? "")?.[1]
      if (!stem) continue
      const source = [`${folder}/src/${stem}.ts`, `${folder}/src/${stem}/index.ts`].find(existsSync)
      if (source) aliases.push({ find: exactly(manifest.name + subpath.slice(1)), replacement: source })
    }
  }
  return aliases
}

function exactly(name: string) {
  return new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`)
}

/** The runtimes that run GPU kernels on the CPU are for Linux, and there is none for Apple's GPUs yet: elsewhere these are left out. */
const needMetal =
  process.platform === "linux"
    ? []
    : [
        "packages/{backend-metal,backend-cuda}/src/**",
        "packages/conformance/src/{backend-suite-metal,golden/metal}.test.ts",
        "packages/lazuli/src/{metal,metal-complex,shared-memory,shared-memory-apple}.test.ts",
        "tooling/kernel-compilers.test.ts",
      ]

export default defineConfig({
  resolve: { alias: sourceAliases() },
  test: {
    include: [
      "{packages,examples}/*/src/**/*.test.ts",
      "benchmarks/src/**/*.test.ts",
      "tooling/**/*.test.ts",
    ],
    exclude: [...configDefaults.exclude, ...needMetal],
    // A process per worker: a native fault then fails one file and names it, and the addon's process-wide state
    // (allocator, thread pool) is each worker's own.
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    passWithNoTests: true,
  },
})
