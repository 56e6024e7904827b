// Builds the native part of the package in the current folder: native/CMakeLists.txt into build/, with plain CMake
// and the Node-API headers from npm. Nothing is downloaded. CC, CXX and CMAKE_* from the environment hold as usual;
// further arguments go to CMake's configure step (`pnpm run build:native -DCMAKE_BUILD_TYPE=Debug`). LAZULI_BUILD_FOLDER is another
// folder than build/.

import { spawnSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { availableParallelism } from "node:os"
import { dirname, join, resolve } from "node:path"
import { OLDEST_GLIBC, symbolProblems } from "./release/binary.mjs"

const source = resolve("native")
const build = resolve(process.env.LAZULI_BUILD_FOLDER ?? "build")

if (!existsSync(join(source, "CMakeLists.txt"))) {
  console.log(`notice: ${source} has no CMakeLists.txt, so there is no native part to build`)
  process.exit(0)
}

// Resolved from the package, whose devDependencies name the headers and, where its bindings are written with it, node-addon-api.
const require = createRequire(join(process.cwd(), "package.json"))
const headers = require("node-api-headers").include_dir
const { devDependencies } = JSON.parse(readFileSync("package.json", "utf8"))
const addonApi = devDependencies["node-addon-api"] && dirname(require.resolve("node-addon-api/package.json"))

const generator = process.env.CMAKE_GENERATOR ?? (runs("ninja") ? "Ninja" : "Unix Makefiles")
discardForeignCache(generator)

cmake([
  ...["-S", source, "-B", build, "-G", generator],
  `-DCMAKE_BUILD_TYPE=${process.env.CMAKE_BUILD_TYPE ?? "Release"}`,
  "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
  `-DNODE_API_HEADERS=${headers}`,
  ...(addonApi ? [`-DNODE_ADDON_API=${addonApi}`] : []),
  ...process.argv.slice(2),
])
cmake([
  "--build",
  build,
  "--parallel",
  process.env.CMAKE_BUILD_PARALLEL_LEVEL ?? String(availableParallelism()),
])
checkSymbols()

function cmake(args) {
  const { status, error } = spawnSync("cmake", args, { stdio: "inherit" })
  if (error) {
    console.error(`cannot run cmake (${error.code}); README.md lists what a build from source needs`)
    process.exit(1)
  }
  if (status !== 0) process.exit(status ?? 1)
}

function runs(program) {
  return spawnSync(program, ["--version"], { stdio: "ignore" }).status === 0
}

/** CMake refuses a build folder made by another generator or in another folder: a copied or moved checkout has one. */
function discardForeignCache(generator) {
  const cache = join(build, "CMakeCache.txt")
  if (!existsSync(cache)) return
  const text = readFileSync(cache, "utf8")
  const made = (key) => new RegExp(`^${key}:\\w+=(.*)$`, "m").exec(text)?.[1]
  if (made("CMAKE_GENERATOR") === generator && made("CMAKE_HOME_DIRECTORY") === source) return
  rmSync(build, { recursive: true, force: true })
}

/** A function of libc that tooling/glibc/symbols.txt does not name links all the same, and is missed when the addon is loaded. */
function checkSymbols() {
  if (!/^LAZULI_PORTABLE:BOOL=ON$/m.test(readFileSync(join(build, "CMakeCache.txt"), "utf8"))) return
  for (const file of readdirSync(build).filter((name) => name.endsWith(".node"))) {
    const problems = symbolProblems(join(build, file))
    if (problems.length === 0) continue
    console.error(
      `${file} would not load with glibc ${OLDEST_GLIBC}:\n  ${problems.join("\n  ")}\n` +
        "Name what glibc has had since then in tooling/glibc/symbols.txt, and define anything newer in tooling/glibc/newer.cc",
    )
    process.exit(1)
  }
}
