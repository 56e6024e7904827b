/**
 * The load code: a TypeScript file of the package that says where its kernels are, in the sources and in what is built of them alike.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import type { KernelPackage } from "./manifest"

const HEAD = "// Written by `lazuli-kernel build`; edits are lost."

/** Where it stands, from the package's folder on. */
export const loadCodePath = ({ options }: KernelPackage): string => options.loadCode ?? "src/libraries.ts"

/** A file's name as a name in code. */
const key = (file: string): string =>
  basename(file)
    .replace(/\.\w+$/, "")
    .replace(/\W+(\w?)/g, (_, next: string) => next.toUpperCase())

/** A constant for one file, an object for several. */
function urls(what: string, name: string, files: readonly string[]): string[] {
  if (files.length === 0) return []
  const url = (file: string): string => `new URL("../${file}", import.meta.url)`
  if (files.length === 1)
    return ["", `/** The ${what} kernels. */`, `export const ${name}Library: URL = ${url(files[0])}`]
  return [
    "",
    `/** The ${what} kernels, by their files. */`,
    `export const ${name}Libraries = {`,
    ...files.map((file) => `  ${key(file)}: ${url(file)},`),
    "}",
  ]
}

/** The text of a package's load code. */
export function loadCode(of: Pick<KernelPackage, "name" | "stem" | "cpp" | "metal" | "cuda">): string {
  const { name, stem, cpp, metal, cuda } = of
  const native = [
    "",
    "// src/ and dist/ are both one below the package.",
    'const suffix = process.platform === "win32" ? "dll" : "so"',
    `const native = \`../build/${stem}-\${process.platform}-\${process.arch}.\${suffix}\``,
    "const path = fileURLToPath(new URL(native, import.meta.url))",
    "",
    "/** The library of native kernels; null on a platform that nobody built it for. */",
    "export const nativeLibrary: string | null = existsSync(path) ? path : null",
  ]
  return [
    HEAD,
    ...(cpp.length
      ? ['import { existsSync } from "node:fs"', 'import { fileURLToPath } from "node:url"']
      : []),
    ...(cpp.length ? [""] : []),
    "/** The package that brings the kernels. */",
    `export const PACKAGE = "${name}"`,
    ...(cpp.length ? native : []),
    ...urls("Metal", "metal", metal),
    ...urls("CUDA", "cuda", cuda),
    "",
  ].join("\n")
}

/** Writes it where it differs; true if it did. @throws Error where the file is somebody's own */
export function writeLoadCode(of: KernelPackage): boolean {
  const path = join(of.folder, loadCodePath(of))
  const text = loadCode(of)
  const before = existsSync(path) ? readFileSync(path, "utf8") : null
  if (before === text) return false
  if (before !== null && !before.startsWith(HEAD))
    throw new Error(
      `${loadCodePath(of)} was not written by lazuli-kernel; name another file in package.json: "lazuliKernels": { "loadCode": … }`,
    )
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
  return true
}
