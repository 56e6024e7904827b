#!/usr/bin/env node
/**
 * `lazuli-metallib FILE.metal …`: compiles the kernels of a package ahead, by Apple's tools. It has not been run on Apple hardware.
 */
import { spawnSync } from "node:child_process"
import { realpathSync, rmSync } from "node:fs"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { compiledPath, readMetalFile } from "@lazuli/gpu-kernels"

/** As sources are compiled at run time: each operation rounds by itself, NaN and infinities are kept. */
const FLAGS = ["-std=metal3.1", "-O2", "-fno-fast-math", "-ffp-contract=off"]

/** Compiles a file. Gives the path of the library beside it. @throws Error with what the tools said */
export function compileMetalFile(path: string): string {
  const { text, digest } = readMetalFile(resolve(path))
  const target = compiledPath(resolve(path), digest)
  const object = `${target}.air`
  const run = (tool: string, args: readonly string[], input?: string): void => {
    const { status, error, stderr } = spawnSync("xcrun", ["-sdk", "macosx", tool, ...args], {
      input,
      encoding: "utf8",
    })
    if (error)
      throw new Error(`xcrun does not run: ${error.message}. Apple's tools come with Xcode, on macOS alone`)
    if (status !== 0) throw new Error(`${tool} refuses ${path}:\n${stderr}`)
  }
  try {
    run("metal", ["-x", "metal", ...FLAGS, "-c", "-", "-o", object], text)
    run("metallib", [object, "-o", target])
  } finally {
    rmSync(object, { force: true })
  }
  return target
}

/** The command. Gives its exit status. */
export function main(paths: readonly string[]): number {
  if (paths.length === 0) {
    console.error("usage: lazuli-metallib FILE.metal …")
    return 2
  }
  for (const path of paths) {
    try {
      console.log(compileMetalFile(path))
    } catch (error) {
      console.error((error as Error).message)
      return 1
    }
  }
  return 0
}

// npx runs it by a link.
if (process.argv[1] && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href)
  process.exitCode = main(process.argv.slice(2))
