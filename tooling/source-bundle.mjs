// Bundles a TypeScript file of this repository with the sources that it imports: packages resolve to each other's sources, as in the
// tests. Unlike modules translated one by one (run-source.mjs) it starts at once and runs as fast as what is published; but its
// namespaces list their members in another order.

import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { basename, join, resolve } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { build, loadConfigFromFile } from "vite"

const root = fileURLToPath(new URL("..", import.meta.url))

/**
 * Gives the path of the bundle, which is there until this process ends.
 * @param {string} file
 */
export async function bundle(file) {
  // Inside the repository: what is not bundled is found from there.
  const cache = join(root, "node_modules/.cache")
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(join(cache, "sources-"))
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
  const config = await loadConfigFromFile({ command: "build", mode: "test" }, join(root, "vitest.config.ts"))
  const name = `${basename(file, ".ts")}.mjs`
  await build({
    configFile: false,
    logLevel: "error",
    resolve: config?.config.resolve,
    plugins: [{ name: "own-urls", transform: withOwnUrl }],
    build: {
      ssr: resolve(file),
      outDir: folder,
      minify: false,
      target: "node20",
      rolldownOptions: { output: { entryFileNames: name, keepNames: true } },
    },
  })
  return join(folder, name)
}

/**
 * A module still finds what lies beside its source.
 * @param {string} code
 * @param {string} id
 */
function withOwnUrl(code, id) {
  if (id.includes("node_modules")) return null
  return {
    code: code.replaceAll(/\bimport\.meta\.url\b/g, JSON.stringify(pathToFileURL(id).href)),
    map: null,
  }
}
