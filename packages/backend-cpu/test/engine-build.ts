/** For tests and fuzzers: the engine as one file that threads and processes load, made of the sources. */
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { build } from "vite"

const root = fileURLToPath(new URL("../../../", import.meta.url))
/** The native part that it loads. */
export const addon: string =
  process.env.LAZULI_CPU_ADDON ?? join(root, "packages/backend-cpu/build/lazuli_cpu.node")

/** Where {@link buildEngine} puts the file. */
export const engineUrl = (folder: string): string => pathToFileURL(join(folder, "engine.mjs")).href

/** Bundles core and the CPU backend into a folder. */
export async function buildEngine(folder: string): Promise<void> {
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
      outDir: folder,
      minify: false,
      rolldownOptions: { output: { entryFileNames: "engine.mjs" } },
    },
  })
}
