/** The sources written for other compilers: the text, once a source. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect, test } from "vitest"
import { dumpSource } from "./source-dump"

test("sources are written by name and content", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-dump-"))
  try {
    const inner = join(folder, "sources")
    for (const source of ["kernel void f() {}", "kernel void f() {}", "kernel void f() { }"])
      dumpSource("f", source, inner)
    const files = readdirSync(inner)
    expect(files).toHaveLength(2)
    expect(files.every((file) => /^f-[0-9a-f]{16}\.metal$/.test(file))).toBe(true)
    expect(readFileSync(join(inner, files[0]), "utf8")).toContain("kernel void f()")
    dumpSource("g", "", "")
    expect(readdirSync(inner)).toHaveLength(2)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
