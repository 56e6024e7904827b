/** For tests and fuzzers: the engine as one file that threads and processes load, made of the sources. */
import { execFile } from "node:child_process"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { promisify } from "node:util"

const root = fileURLToPath(new URL("../../../", import.meta.url))
/** The native part that it loads. */
export const addon: string =
  process.env.LAZULI_CPU_ADDON ?? join(root, "packages/backend-cpu/build/lazuli_cpu.node")

/** Where {@link buildEngine} puts the file. */
export const engineUrl = (folder: string): string => pathToFileURL(join(folder, "engine.mjs")).href

/**
 * Bundles core and the CPU backend into a folder: in a process of its own, without the library that a sanitizer has every process load,
 * under which the bundler's threads had not ended after five minutes.
 */
export async function buildEngine(folder: string): Promise<void> {
  const { LD_PRELOAD: _, ...env } = process.env
  await promisify(execFile)(
    // The bundler is there for the processor of this machine.
    process.env.LAZULI_HOST_NODE ?? process.execPath,
    [join(root, "packages/backend-cpu/test/build-engine.mjs"), folder],
    {
      env,
    },
  )
}
