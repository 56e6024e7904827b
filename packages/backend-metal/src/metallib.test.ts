/** Libraries compiled ahead, by stand-ins for Apple's tools: which command lines run, and which library a runtime is given. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { readMetalFile } from "@lazuli/gpu-kernels"
import { afterAll, expect, it, vi } from "vitest"
import { compileMetalFile, main } from "./metallib"

const folder = mkdtempSync(join(tmpdir(), "lazuli-metallib-"))
const path = join(folder, "kernels.metal")
writeFileSync(join(folder, "part.h"), "#pragma once\ninline float two() { return 2; }\n")
writeFileSync(path, '#include "part.h"\nkernel void k(device float* y [[buffer(0)]]) { y[0] = two(); }\n')
const before = process.env.PATH
afterAll(() => {
  process.env.PATH = before
  rmSync(folder, { recursive: true, force: true })
})

it("says where Apple's tools come from", () => {
  process.env.PATH = folder
  expect(() => compileMetalFile(path)).toThrow("Apple's tools come with Xcode, on macOS only")
  process.env.PATH = before
})

it("gives the tools the text with what it includes, and is found until the text changes", () => {
  const tools = join(folder, "bin")
  mkdirSync(tools)
  // Keeps the command lines and the text; makes the file behind -o.
  writeFileSync(
    join(tools, "xcrun"),
    `#!/bin/sh
echo "$@" >> ${folder}/commands
case "$3" in metal) cat > ${folder}/text;; esac
for last; do :; done
echo library > "$last"
`,
  )
  chmodSync(join(tools, "xcrun"), 0o755)
  process.env.PATH = `${tools}:${before}`
  expect(readMetalFile(path).compiled).toBeNull()
  const made = compileMetalFile(path)
  expect(readFileSync(join(folder, "text"), "utf8")).toBe(readMetalFile(path).text)
  const commands = readFileSync(join(folder, "commands"), "utf8").replaceAll(made, "LIBRARY")
  expect(commands).toMatchInlineSnapshot(`
    "-sdk macosx metal -x metal -std=metal3.1 -O2 -fno-fast-math -ffp-contract=off -c - -o LIBRARY.air
    -sdk macosx metallib LIBRARY.air -o LIBRARY
    "
  `)
  expect(existsSync(made)).toBe(true)
  expect(readMetalFile(path).compiled).toBe(made)
  writeFileSync(path, `${readFileSync(path, "utf8")}\n`)
  expect(readMetalFile(path).compiled).toBeNull()
  process.env.PATH = before
})

it("is a command with a status", () => {
  const said = vi.spyOn(console, "error").mockImplementation(() => {})
  expect(main([])).toBe(2)
  expect(main([join(folder, "missing.metal")])).toBe(1)
  expect(said).toHaveBeenCalledTimes(2)
  said.mockRestore()
})
