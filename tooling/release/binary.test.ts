import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, test } from "vitest"
import { libraryProblems, processor, symbolProblems } from "./binary.mjs"

const ADDONS = [
  "packages/backend-cpu/build/lazuli_cpu.node",
  "packages/backend-metal/build/lazuli_metal_host.node",
  "packages/backend-cuda/build/lazuli_cuda.node",
]

// Elsewhere the addons are not ELF files, or not linked for glibc.
const glibc =
  process.platform === "linux" &&
  "glibcVersionRuntime" in (process.report.getReport() as { header: object }).header

describe.runIf(glibc)("addons", () => {
  test.each(ADDONS)("%s loads on any system with glibc 2.28", (file) => {
    expect(processor(file)).toBe(process.arch)
    expect([...symbolProblems(file), ...libraryProblems(file)]).toEqual([])
  })

  test("with a newer symbol, an unknown one, a library of its own and a path are found out", () => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-binary-"))
    try {
      const [source, file] = [join(folder, "x.cc"), join(folder, "x.so")]
      writeFileSync(
        source,
        'extern "C" unsigned nowhere();\n' +
          "#include <string>\n#include <cstdio>\n" +
          "unsigned f(std::string s) { puts(s.c_str()); return nowhere() + (s + s).size(); }\n",
      )
      execFileSync("g++", ["-shared", "-fPIC", "-Wl,-rpath,/opt/lib", source, "-o", file])
      const symbols = symbolProblems(file, "2.1")
      expect(symbols).toContain("nowhere comes from no library")
      expect(symbols.join("\n")).toMatch(/puts is that of glibc 2\.\d/)
      expect(symbols.join("\n")).toMatch(/comes from GLIBCXX_[\d.]+, which is not glibc's/)
      expect(symbolProblems(file).join("\n")).not.toContain("puts")
      const libraries = libraryProblems(file)
      expect(libraries).toContain("it loads libstdc++.so.6, which the system need not have")
      expect(libraries).toContain("it looks for libraries in /opt/lib, a folder of the system that built it")
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

test("what is no ELF file has no processor", () => {
  expect(processor("package.json")).toBe(null)
})
