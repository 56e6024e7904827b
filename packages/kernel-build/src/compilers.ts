/**
 * C++ compilers: which one builds for a platform. A platform is Node's `process.platform` and `process.arch`, such as linux-x64.
 */
import { spawnSync } from "node:child_process"

/** The platform of this process. */
export const OWN_PLATFORM = `${process.platform}-${process.arch}`

/** A compiler that was found, with the words that choose the platform; cmake stands for whichever it finds. */
export interface Compiler {
  readonly kind: "direct" | "cmake"
  readonly command: string
  readonly words: readonly string[]
}

const ZIG: Readonly<Record<string, string>> = {
  "linux-x64": "x86_64-linux-gnu.2.28",
  "linux-arm64": "aarch64-linux-gnu.2.28",
  "darwin-x64": "x86_64-macos",
  "darwin-arm64": "aarch64-macos",
}
const APPLE: Readonly<Record<string, string>> = { x64: "x86_64", arm64: "arm64" }
const GNU: Readonly<Record<string, string>> = { x64: "x86_64", arm64: "aarch64" }

const runs = (command: string, ...words: string[]): boolean =>
  spawnSync(command, words, { stdio: "ignore" }).status === 0

/** The compilers that could build for a platform, best first: the command, the words before all others. */
function candidates(platform: string): (readonly [string, ...string[]])[] {
  const [os, arch] = platform.split("-")
  const named = process.env[`CXX_${platform.replace("-", "_")}`]
  if (named) return [[named]]
  const zig = ZIG[platform] ? [["zig", "c++", "-target", ZIG[platform]] as const] : []
  if (platform === OWN_PLATFORM) {
    if (process.env.CXX) return [[process.env.CXX]]
    const own =
      process.platform === "win32" ? [] : (["g++", "clang++", "c++"] as const).map((name) => [name] as const)
    return [...own, ...zig]
  }
  if (os === "darwin" && process.platform === "darwin") return [["clang++", "-arch", APPLE[arch]]]
  const gnu = os === "linux" && GNU[arch] ? [[`${GNU[arch]}-linux-gnu-g++`] as const] : []
  return [...gnu, ...zig]
}

/** The compiler for a platform; null where there is none. */
export function findCompiler(
  platform: string,
  has: (command: string, ...words: string[]) => boolean = runs,
): Compiler | null {
  for (const [command, ...words] of candidates(platform))
    if (has(command, ...(command === "zig" ? ["version"] : ["--version"])))
      return { kind: "direct", command, words }
  if (platform === OWN_PLATFORM && has("cmake", "--version"))
    return { kind: "cmake", command: "cmake", words: [] }
  return null
}

/** The names of what would have compiled, for an error. */
export function wanted(platform: string): string {
  const list = candidates(platform).map(([command]) => command)
  if (platform === OWN_PLATFORM) list.push("cmake")
  return [...new Set(list)].join(", ") || "a compiler on that system"
}
