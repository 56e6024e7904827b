/**
 * Programs in TypeScript: Node runs them by itself from 22.18 on, with an option from 22.12 on, and not at all in 20, where tsx does it if
 * the program's project has it.
 */
import { createRequire } from "node:module"
import { extname, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { ArgumentError } from "@lazuli/core"

const STRIP = "--experimental-strip-types"
/** Tools that somebody may have named as Node's option already. */
const OTHERS = /\b(tsx|ts-node|@?swc-node|esbuild-register|jiti)\b/

/** The options that Node needs for a program. @throws ArgumentError for one that nothing here can run */
export function optionsFor(program: string): string[] {
  if (![".ts", ".mts", ".cts"].includes(extname(program))) return []
  const { typescript } = process.features as { typescript?: unknown }
  if (typescript || OTHERS.test([...process.execArgv, process.env.NODE_OPTIONS].join(" "))) return []
  if (process.allowedNodeEnvironmentFlags.has(STRIP)) return [STRIP]
  try {
    const tsx = createRequire(resolve(program)).resolve("tsx")
    return [`--import=${pathToFileURL(tsx)}`]
  } catch {
    throw new ArgumentError(
      "launch",
      `Node ${process.versions.node} cannot run "${program}", which is TypeScript`,
      {
        hint: "Run `npm install --save-dev tsx`, which is then used, or take Node 22.12 or newer",
      },
    )
  }
}
