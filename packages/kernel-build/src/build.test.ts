/**
 * Packages of a few lines, built by the compiler, by CMake and for another processor; what is missing or wrong, and the error for it.
 */
import { execFileSync, spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { afterAll, expect, test } from "vitest"
import { buildKernels, watchKernels } from "./build"
import { findCompiler } from "./compilers"

const root = resolve(import.meta.dirname, "../../..")
const scratch = mkdtempSync(join(tmpdir(), "lazuli-kernel-build-"))
afterAll(() => rmSync(scratch, { recursive: true }))

const KERNEL = `#include <lazuli/kernel.h>
static lz_status run(const lz_call*) { return LZ_OK; }
static const lz_kernel_entry entries[] = {{"@me/ops/one", run}, {nullptr, nullptr}};
const lz_kernel_table lazuli_kernels = {LZ_KERNEL_ABI, entries};
`
let count = 0
/** A package with these files. */
function makePackage(files: Readonly<Record<string, string>>, more: object = {}): string {
  const folder = join(scratch, `p${count++}`)
  mkdirSync(join(folder, "native"), { recursive: true })
  mkdirSync(join(folder, "node_modules/@lazuli"), { recursive: true })
  symlinkSync(join(root, "packages/core"), join(folder, "node_modules/@lazuli/core"))
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "@me/ops", version: "1.2.3", ...more }))
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text)
  return folder
}
async function build(
  folder: string,
  options: { inPlace?: boolean; platforms?: string[] } = {},
): Promise<string[]> {
  const said: string[] = []
  await buildKernels({ folder, tell: (line) => said.push(line), ...options })
  return said
}
const own = `build/ops-${process.platform}-${process.arch}.so`
const symbols = (folder: string, file: string): string =>
  execFileSync("readelf", ["--dyn-syms", "--wide", join(folder, file)], { encoding: "utf8" })
const linux = process.platform === "linux"

test("a library, and code that finds it", async () => {
  const folder = makePackage({ "native/ops.cc": KERNEL })
  expect(await build(folder)).toEqual(["src/libraries.ts: written", own])
  if (linux) expect(symbols(folder, own)).toMatch(/GLOBAL DEFAULT\s+\d+ lazuli_kernels/)
  expect(readFileSync(join(folder, "src/libraries.ts"), "utf8")).toContain('export const PACKAGE = "@me/ops"')
  expect(await build(folder, { inPlace: true })).toEqual([`${own}: unchanged`])
  const later = new Date(Date.now() + 10_000)
  utimesSync(join(folder, "native/ops.cc"), later, later)
  expect(await build(folder, { inPlace: true })).toEqual([own])
})

test("a package's own CMakeLists.txt", async () => {
  const folder = makePackage({
    "native/ops.cc": KERNEL,
    "native/CMakeLists.txt":
      "cmake_minimum_required(VERSION 3.20)\nproject(ops LANGUAGES CXX)\nfind_package(Lazuli REQUIRED)\nlazuli_kernels(ops ops.cc)\n",
  })
  expect(await build(folder)).toContain(own)
  if (linux) expect(symbols(folder, own)).toContain("lazuli_kernels")
})

test("CMake builds where it alone knows a compiler", () => {
  const compiler = findCompiler(`${process.platform}-${process.arch}`, (command) => command === "cmake")
  expect(compiler?.kind).toBe("cmake")
})

test("what a compiler refuses or warns of is shown", async () => {
  const folder = makePackage({ "native/ops.cc": "int broken(" })
  await expect(build(folder)).rejects.toThrow(/failed:\n.*native\/ops\.cc:1/s)
  writeFileSync(join(folder, "native/ops.cc"), `${KERNEL}static int unused() { return 0; }\n`)
  expect((await build(folder)).join("\n")).toMatch(/native\/ops\.cc:5.*unused/)
})

const cross = spawnSync("aarch64-linux-gnu-g++", ["--version"]).status === 0
test.runIf(linux && process.arch === "x64" && cross)("another processor's library", async () => {
  const folder = makePackage({ "native/ops.cc": KERNEL })
  await build(folder, { platforms: ["linux-x64", "linux-arm64"] })
  const head = execFileSync("readelf", ["-h", join(folder, "build/ops-linux-arm64.so")], { encoding: "utf8" })
  expect(head).toContain("AArch64")
})

test("what is missing is named with its cure", async () => {
  await expect(build(makePackage({}))).rejects.toThrow(
    "has no kernels: expected .cc, .metal or .cu files in native/",
  )
  const folder = makePackage({ "native/ops.cc": KERNEL })
  await expect(build(folder, { platforms: ["amiga-68k"] })).rejects.toThrow('"amiga-68k" is not a platform')
  await expect(build(folder, { platforms: ["win32-x64"] })).rejects.toThrow(
    "there is no C++ compiler for win32-x64",
  )
  await build(folder)
  writeFileSync(join(folder, "src/libraries.ts"), "mine")
  await expect(build(folder)).rejects.toThrow("src/libraries.ts was not written by lazuli-kernel")
  await expect(
    build(makePackage({ "native/ops.cc": KERNEL }, { lazuliKernels: { flag: [] } })),
  ).rejects.toThrow('lazuliKernels has no "flag"; there are sources, flags, libraries, loadCode')
})

test("a watched package is built again when a source changes", async () => {
  const folder = makePackage({ "native/ops.cc": "int broken(" })
  const said: string[] = []
  const stop = new AbortController()
  const watching = watchKernels({ folder, tell: (line) => said.push(line) }, stop.signal)
  await expect.poll(() => said.join("\n"), { timeout: 20_000 }).toContain("native/ops.cc:1")
  writeFileSync(join(folder, "native/ops.cc"), KERNEL)
  await expect.poll(() => said, { timeout: 20_000 }).toContain(own)
  stop.abort()
  await watching
})
