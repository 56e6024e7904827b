/**
 * The command `lazuli-kernel`.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { parseArgs } from "node:util"
import { buildKernels, watchKernels } from "./build"
import { readPackage } from "./manifest"

const USAGE = `usage, in the folder of a package with kernels in native/:

  lazuli-kernel build                        everything, for this platform, into build/, and the load code src/libraries.ts
  lazuli-kernel build --in-place             only what changed, while you work
  lazuli-kernel build --watch                that again after each change
  lazuli-kernel build --platforms A,B        for other platforms, such as linux-x64,linux-arm64
  lazuli-kernel params MODULE [--check]      native/params.h, by which C++ reads the parameters of the primitives that MODULE defines`

/** Runs the command; gives its exit status. */
export async function main(words: readonly string[]): Promise<number> {
  try {
    const { values, positionals } = parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        "in-place": { type: "boolean" },
        watch: { type: "boolean" },
        platforms: { type: "string" },
        check: { type: "boolean" },
      },
    })
    const [command, module, ...more] = positionals
    const platforms = values.platforms?.split(",")
    if (command === "build" && module === undefined && !values.check) {
      if (platforms && (values["in-place"] || values.watch))
        throw new Error("--in-place and --watch build for this platform alone, without --platforms")
      if (values.watch) await watchKernels()
      else await buildKernels({ inPlace: values["in-place"], platforms })
      return 0
    }
    if (command === "params" && module && more.length === 0)
      return await params(module, values.check ?? false)
    console.error(USAGE)
    return 2
  } catch (error) {
    console.error((error as Error).message)
    return 1
  }
}

async function params(module: string, check: boolean): Promise<number> {
  const { name } = readPackage(".")
  const header = join("native", "params.h")
  await import(/* @vite-ignore */ pathToFileURL(resolve(module)).href)
  // Imports @lazuli/core, which a build does without.
  const { paramsHeader } = await import("./params-header")
  const text = paramsHeader({ source: name })
  if (!check) writeFileSync(header, text)
  else if (readFileSync(header, "utf8") !== text)
    throw new Error(
      `${header} differs from what \`lazuli-kernel params\` writes for the primitives of ${name}: run it again`,
    )
  return 0
}
