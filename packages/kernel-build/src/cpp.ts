/**
 * The C++ kernels: one shared library for each platform, by the compiler itself or by CMake.
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { type Compiler, findCompiler, OWN_PLATFORM, wanted } from "./compilers"
import type { KernelPackage } from "./manifest"

/** src/ and dist/ are both one below the package. */
const CMAKE = fileURLToPath(new URL("../cmake", import.meta.url))

/** The folder of `lazuli/kernel.h`, of the @lazuli/core that the package uses. @throws Error with the cure */
export function headers(folder: string): string {
  try {
    const core = createRequire(resolve(folder, "package.json")).resolve("@lazuli/core/package.json")
    return join(dirname(core), "include")
  } catch (cause) {
    throw new Error(
      `@lazuli/core is not installed in ${resolve(folder)}: npm install --save-dev @lazuli/core`,
      { cause },
    )
  }
}

/** The library's path for a platform, from the package's folder on. */
export const libraryPath = ({ stem }: KernelPackage, platform: string): string =>
  `build/${stem}-${platform}.${platform.startsWith("win32") ? "dll" : "so"}`

/** Results are the same bits with and without a kernel only where nothing is contracted to a fused multiply-add. */
const FLAGS = [
  ...["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra"],
  // The structures of lazuli/kernel.h grow at their ends.
  "-Wno-missing-field-initializers",
]

function linking(platform: string): string[] {
  if (platform.startsWith("darwin")) return ["-dynamiclib", "-undefined", "dynamic_lookup"]
  // The runtime of C++ is that of Node itself, which loads it everywhere: libgcc linked in would ask for a newer glibc.
  return ["-shared"]
}

/** The command that builds a package's library for a platform. */
export function command(of: KernelPackage, platform: string, compiler: Compiler, target: string): string[] {
  const { flags = [], libraries = [] } = of.options
  return [
    compiler.command,
    ...compiler.words,
    ...FLAGS,
    ...flags,
    `-I${headers(of.folder)}`,
    "-Inative",
    ...linking(platform),
    ...of.cpp,
    ...libraries,
    "-o",
    target,
  ]
}

/** True if a library is there and newer than everything it is made of. */
export function isFresh(of: KernelPackage, platform: string): boolean {
  const path = join(of.folder, libraryPath(of, platform))
  if (!existsSync(path)) return false
  const made = statSync(path).mtimeMs
  const native = (readdirSync(join(of.folder, "native"), { recursive: true }) as string[]).filter(
    (file) => !/\.(metal|cu)$/.test(file),
  )
  const parts = [
    ...native.map((file) => join(of.folder, "native", file)),
    ...of.cpp.map((file) => join(of.folder, file)),
    join(of.folder, "package.json"),
    join(headers(of.folder), "lazuli/kernel.h"),
  ]
  return parts.every((file) => statSync(file).mtimeMs <= made)
}

/** Builds the library for a platform, and tells its path behind what the compiler warned of. @throws Error with what the compiler said */
export function buildLibrary(of: KernelPackage, platform: string, tell: (line: string) => void): void {
  const compiler = findCompiler(platform)
  if (!compiler)
    throw new Error(
      `there is no C++ compiler for ${platform}; looked for ${wanted(platform)}${platform === OWN_PLATFORM && process.platform === "linux" ? " (on Debian or Ubuntu: apt-get install g++)" : ""}`,
    )
  const path = libraryPath(of, platform)
  mkdirSync(join(of.folder, "build"), { recursive: true })
  const byCmake = compiler.kind === "cmake" || existsSync(join(of.folder, "native/CMakeLists.txt"))
  if (byCmake) {
    buildByCmake(of, platform, compiler, path)
    tell(path)
    return
  }
  // Beside its place first: a process may have the old one open.
  const beside = `${path}.${process.pid}`
  const [program, ...words] = command(of, platform, compiler, beside)
  try {
    const { stderr } = execute(program, words, of.folder)
    if (stderr) tell(stderr.trimEnd())
    renameSync(join(of.folder, beside), join(of.folder, path))
  } finally {
    rmSync(join(of.folder, beside), { force: true })
  }
  tell(path)
}

/** The package's own native/CMakeLists.txt, or one for its sources. */
function buildByCmake(of: KernelPackage, platform: string, compiler: Compiler, path: string): void {
  const own = existsSync(join(of.folder, "native/CMakeLists.txt"))
  const build = `build/cmake-${platform}`
  const list = (words: readonly string[]): string => words.join(";")
  const settings: Record<string, string> = {
    CMAKE_BUILD_TYPE: "Release",
    Lazuli_DIR: CMAKE,
    LAZULI_INCLUDE: headers(of.folder),
    LAZULI_LIBRARY: resolve(of.folder, path),
    LAZULI_SOURCES: list(of.cpp.map((file) => resolve(of.folder, file))),
    LAZULI_FLAGS: list(of.options.flags ?? []),
    LAZULI_LIBRARIES: list(of.options.libraries ?? []),
  }
  if (compiler.kind === "direct") settings.CMAKE_CXX_COMPILER = list([compiler.command, ...compiler.words])
  const [, arch] = platform.split("-")
  if (platform !== OWN_PLATFORM) {
    settings.CMAKE_SYSTEM_NAME = platform.startsWith("darwin") ? "Darwin" : "Linux"
    settings.CMAKE_SYSTEM_PROCESSOR = arch === "arm64" ? "aarch64" : "x86_64"
  }
  const words = Object.entries(settings).map(([key, value]) => `-D${key}=${value}`)
  execute("cmake", ["-S", own ? "native" : CMAKE, "-B", build, ...words], of.folder)
  execute("cmake", ["--build", build, "--config", "Release"], of.folder)
  if (!existsSync(join(of.folder, path)))
    throw new Error(
      `native/CMakeLists.txt did not make ${path}: it must find_package(Lazuli) and call lazuli_kernels(NAME SOURCE…)`,
    )
}

/** Runs a program; gives what it said. @throws Error with it */
function execute(program: string, words: readonly string[], cwd: string): { stdout: string; stderr: string } {
  const { status, stdout, stderr, error } = spawnSync(program, words, {
    cwd,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  })
  if (status === 0) return { stdout, stderr }
  throw new Error(
    error ? `cannot run ${program}: ${error.message}` : `${program} failed:\n${stderr}${stdout}`,
  )
}
