// The build of every package: ESM only, its entries read from its own `exports`, types beside them.

import { existsSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { defineConfig } from "tsup"
import { minifySync } from "vite"

// TypeScript 6 warns about an option that tsup sets by itself. Types of other packages come from their builds, as a
// user will get them, and not from the sources that the editor sees.
const dts = { compilerOptions: { ignoreDeprecations: "6.0", paths: {}, noEmit: false } }

const shared = {
  format: "esm",
  target: "node20",
  platform: "node",
  clean: true,
  silent: true,
} as const

const esbuild = createRequire(createRequire(import.meta.url).resolve("tsup"))("esbuild")

/**
 * Short names for what is local to a function, and no white space: a quarter less to fetch and to parse. Functions, classes and what
 * modules declare keep their names, which errors, printed modules and stack traces show. Lines end all the same, since Node prints the
 * whole line where an error was thrown that nobody caught.
 */
const minified = {
  name: "minified",
  renderChunk(code: string, { path }: { path: string }) {
    const mangle = { toplevel: false, keepNames: true }
    const { code: short, errors } = minifySync(path, code, { module: true, compress: false, mangle })
    if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`)
    const { code: printed } = esbuild.transformSync(short, {
      format: "esm",
      target: shared.target,
      minifyWhitespace: true,
      minifySyntax: true,
      lineLimit: 1000,
    })
    return { code: printed }
  },
}

/** A published package: one bundle for each entry of `exports`; `./dist/x.js` is made of `src/x.ts` or `src/x/index.ts`.
 * A package's own entry named in `external` (`'./mx.js'`) stays an import of that file. */
export function library({ external = [] }: { external?: string[] } = {}) {
  const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as { exports: Record<string, unknown> }
  const entry: Record<string, string> = {}
  for (const target of Object.values(exports)) {
    const file = typeof target === "string" ? target : (target as { default: string }).default
    const name = /^\.\/dist\/(.+)\.js$/.exec(file)?.[1]
    if (!name) continue
    const candidates = [`src/${name}.ts`, `src/${name}/index.ts`]
    const source = candidates.find(existsSync)
    if (!source) throw new Error(`package.json exports ${file}, but none of ${candidates.join(", ")} exists`)
    entry[name] = source
  }
  return defineConfig({ ...shared, entry, external, dts, splitting: true, plugins: [minified] })
}

/** A program that is run and not imported: an example, the benchmarks. */
export function program(...names: string[]) {
  return defineConfig({
    ...shared,
    sourcemap: true,
    entry: Object.fromEntries(names.map((name) => [name, `src/${name}.ts`])),
  })
}
