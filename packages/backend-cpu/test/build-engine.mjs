// `node build-engine.mjs FOLDER`: bundles core and the CPU backend, from the sources, into FOLDER/engine.mjs. See engine-build.ts.
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "vite"

const root = fileURLToPath(new URL("../../../", import.meta.url))
const core = `${root}packages/core/src/`
await build({
  configFile: false,
  logLevel: "error",
  resolve: {
    alias: [
      { find: /^@lazuli\/core$/, replacement: `${core}index.ts` },
      { find: /^@lazuli\/core\/engine$/, replacement: `${core}backend-api.ts` },
    ],
  },
  build: {
    ssr: join(root, "packages/backend-cpu/test/bundle-entry.ts"),
    outDir: process.argv[2],
    minify: false,
    rolldownOptions: { output: { entryFileNames: "engine.mjs" } },
  },
})
