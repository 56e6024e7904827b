// Formats the C, C++ and Metal sources with the pinned clang-format, or checks that they are formatted. The style of a file is that of the
// nearest `.clang-format`.
//
//   node tooling/format-native.mjs            formats
//   node tooling/format-native.mjs --check    names what would change, and fails

import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { format } from "@wasm-fmt/clang-format"

// Metal Shading Language is C++ to clang-format, which knows the language by the name of the file.
const SOURCES = /\.(c|cc|cpp|h|hpp|metal|mm)$/

/** The style that holds for a file, from the nearest `.clang-format` in its folder or above. */
function styleOf(file) {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const path = join(folder, ".clang-format")
    if (existsSync(path)) return readFileSync(path, "utf8")
    if (folder === ".") throw new Error(`${file} has no .clang-format above it`)
  }
}

/** Files under version control, and new ones that git does not ignore. */
function sources() {
  const { stdout } = spawnSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
    encoding: "utf8",
    maxBuffer: 1 << 26,
  })
  return stdout.split("\n").filter((file) => SOURCES.test(file) && existsSync(file))
}

const check = process.argv.includes("--check")
const files = sources()
const changed = files.filter((file) => {
  const text = readFileSync(file, "utf8")
  const formatted = format(text, file.replace(/\.metal$/, ".cc"), styleOf(file))
  if (formatted === text) return false
  if (!check) writeFileSync(file, formatted)
  return true
})
for (const file of changed) console.log(`${check ? "not formatted" : "formatted"}: ${file}`)
console.log(`native style: ${files.length} files, ${changed.length} ${check ? "problems" : "changed"}`)
process.exitCode = check && changed.length ? 1 : 0
