// An addon for Linux as a user's system meets it: the processor it is for, the libraries that it loads, and the versions of the symbols
// that it asks of them. `node tooling/release/binary.mjs FILE…` prints what keeps a file from loading elsewhere.

import { spawnSync } from "node:child_process"
import { closeSync, openSync, readSync } from "node:fs"
import { pathToFileURL } from "node:url"

/** The oldest glibc that packages load with: Debian 10, Ubuntu 18.10, RHEL 8, and what Node's own binaries need. */
export const OLDEST_GLIBC = "2.28"

/** The libraries that every system with glibc has. */
const SYSTEM =
  /^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux-[\w-]+\.so\.\d)$/

/** Numbers of processors in the head of an ELF file. */
const MACHINES = { 62: "x64", 183: "arm64" }

/** The processor that a file is for: `x64`, `arm64`, or null where it is no ELF file. */
export function processor(file) {
  const head = Buffer.alloc(20)
  const handle = openSync(file, "r")
  readSync(handle, head, 0, head.length, 0)
  closeSync(handle)
  if (head.toString("latin1", 0, 4) !== "\x7fELF") return null
  const machine = head.readUInt16LE(18)
  return MACHINES[machine] ?? `processor ${machine}`
}

/** Symbols that glibc of this version does not have, and symbols that no library was named for. */
export function symbolProblems(file, oldest = OLDEST_GLIBC) {
  const problems = []
  for (const line of readelf("--dyn-syms", file).split("\n")) {
    // Num: Value Size Type Bind Vis Ndx Name[@VERSION (n)]
    const [, , , , bind, , section, symbol] = line.trim().split(/\s+/)
    if (section !== "UND" || !symbol || bind === "WEAK") continue
    const [name, version] = symbol.split(/@+/)
    if (name.startsWith("napi_") || name.startsWith("node_api_")) continue
    const [, family, number] = /^([A-Z]+)_([\d.]+)$/.exec(version ?? "") ?? []
    if (version === undefined) problems.push(`${name} comes from no library`)
    else if (family !== "GLIBC") problems.push(`${name} comes from ${version}, which is not glibc's`)
    else if (newer(number, oldest)) problems.push(`${name} is that of glibc ${number}`)
  }
  return problems
}

/** Libraries that a system need not have, and paths of the system that built it. */
export function libraryProblems(file) {
  const dynamic = readelf("-d", file)
  const problems = []
  for (const [, library] of dynamic.matchAll(/\(NEEDED\).*\[(.+)\]/g))
    if (!SYSTEM.test(library)) problems.push(`it loads ${library}, which the system need not have`)
  for (const [, path] of dynamic.matchAll(/\((?:RPATH|RUNPATH)\).*\[(.+)\]/g))
    problems.push(`it looks for libraries in ${path}, a folder of the system that built it`)
  return problems
}

function newer(version, than) {
  const [a, b] = [version, than].map((text) => text.split(".").map(Number))
  for (let i = 0; i < Math.max(a.length, b.length); i++)
    if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) > (b[i] ?? 0)
  return false
}

function readelf(option, file) {
  const env = { ...process.env, LC_ALL: "C" }
  const { status, stdout, stderr, error } = spawnSync("readelf", [option, "--wide", file], {
    encoding: "utf8",
    env,
    maxBuffer: 1 << 26,
  })
  if (status !== 0) throw new Error(`readelf ${option} ${file}: ${error?.message ?? stderr}`)
  return stdout
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  for (const file of process.argv.slice(2)) {
    for (const problem of [...symbolProblems(file), ...libraryProblems(file)]) {
      console.log(`${file}: ${problem}`)
      process.exitCode = 1
    }
  }
}
