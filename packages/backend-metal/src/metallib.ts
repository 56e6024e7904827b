#!/usr/bin/env node
/**
 * `lazuli-metallib FILE.metal …`: compiles the kernels of a package ahead, by Apple's tools. It has not been run on Apple hardware.
 */
import { spawnSync } from "node:child_process"
import { realpathSync, rmSync } from "node:fs"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { DeviceError } from "@lazuli/core/engine"
import { compiledPath, readMetalFile } from "@lazuli/gpu-kernels"
import { HostRuntime } from "./host-runtime"

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
      throw new Error(`xcrun does not run: ${error.message}. Apple's tools come with Xcode, on macOS only`)
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

/**
 * Compiles a file for the CPU, as the host runtime does when it is first needed, and finds it on disk then.
 *
 * @returns null, or why it could not be tried
 * @throws DeviceError for a file that does not compile, by file and line
 */
export function checkMetalFile(path: string): string | null {
  if (process.platform !== "linux") return "the runtime that compiles Metal for the CPU is for Linux"
  const { text, name, location } = readMetalFile(resolve(path))
  const runtime = new HostRuntime({ checked: false })
  try {
    const library = runtime.newLibrary(text, {
      file: name,
      wording: { name, location, buffer: () => undefined, namesKernels: true },
    })
    // One with function constants is compiled for values of them.
    if (library.kernels.length > 0) runtime.newPipeline(library, library.kernels[0])
    return null
  } catch (error) {
    if (error instanceof DeviceError && /needs a C\+\+ compiler/.test(error.message))
      return "there is no C++ compiler"
    throw error
  }
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
