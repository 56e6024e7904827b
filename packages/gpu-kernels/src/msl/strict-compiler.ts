/**
 * The clang that reads Metal with real address spaces, as C++ for OpenCL: how it is found, what it is given, and what it says in the
 * words of Metal.
 */
import { spawnSync } from "node:child_process"
import { strictHeader } from "../prelude"
import type { Problem } from "./lint"

/** The flags for what `strictSource` makes of a source. */
export const strictFlags: readonly string[] = [
  ...["-x", "clcpp", "-cl-std=clc++2021", "--target=spir64-unknown-unknown", "-fsyntax-only", "-w"],
  ...["-include", strictHeader],
]

/** The oldest clang that knows C++ for OpenCL, and compute capability 9.0, well enough. */
const MIN_CLANG = 17

/** A compiler, and its version in a line. */
export interface Clang {
  readonly command: string
  readonly version: string
}

/** The newest clang that runs, from `LAZULI_CLANG` or by the names that distributions give it; null where there is none. */
export function findClang(): Clang | null {
  const names = [20, 19, 18, 17].map((version) => `clang++-${version}`)
  const candidates = process.env.LAZULI_CLANG ? [process.env.LAZULI_CLANG] : [...names, "clang++"]
  for (const command of candidates) {
    const { stdout } = spawnSync(command, ["--version"], { encoding: "utf8" })
    const version = (stdout ?? "").split("\n")[0]
    if (Number(/clang version (\d+)/.exec(version)?.[1] ?? 0) >= MIN_CLANG) return { command, version }
  }
  return null
}

const spaces: Record<string, string> = {
  __global: "device",
  __constant: "constant",
  __local: "threadgroup",
  __private: "thread",
}

/** A message in the words of Metal. Variables themselves are always in the thread's space, which goes without saying. */
export const metalWords = (message: string): string =>
  message
    .replace(/\*__private\b/g, "*")
    .replace(/__(global|constant|local|private)\b/g, (word) => spaces[word])
    .replace(/\blz_(atomic|memory)/g, "$1")
    .replace(/'[^']*\blz_type\d+[^']*' \(aka ('[^']*')\)/g, "$1")

/** Names that the declarations may lack: the compiler that makes the kernel knows better. */
const UNKNOWN =
  /undeclared identifier|unknown type name|no member named|no template named|no type named|expected namespace name|file not found/

const SPACES = /\b(device|constant|threadgroup|thread) \w/

/** The objections in clang's output to a file; none where it stumbles over a name that the declarations may lack. */
export function strictProblems(output: string, file: string): Problem[] {
  const problems: Problem[] = []
  for (const text of output.split("\n")) {
    const found = /^(.*?):(\d+):\d+: (?:fatal )?error: (.*)$/.exec(text)
    if (!found) continue
    if (UNKNOWN.test(found[3])) return []
    const message = metalWords(found[3])
    const hint = SPACES.test(message) ? ": a pointer has the address space of what it points to" : ""
    if (found[1] === file) problems.push({ line: Number(found[2]), message: message + hint })
  }
  return problems
}
