/**
 * The package's own kernels in CUDA's language: kernels/, read once.
 */
import { readFileSync } from "node:fs"

const texts = new Map<string, string>()

/** A file of kernels/. */
export function nativeText(name: string): string {
  let text = texts.get(name)
  if (text === undefined) {
    // src/ and dist/ are both one below the package.
    text = readFileSync(new URL(`../kernels/${name}`, import.meta.url), "utf8")
    texts.set(name, text)
  }
  return text
}

/** Element types of native kernels by dtype, each with its definition. */
export const TYPE_DEFINITIONS: Readonly<Record<string, string>> = {
  float16: "",
  bfloat16: "#define LZ_BRAIN",
  float32: "#define LZ_WIDE",
}

/** A kernel behind its definitions. */
export const nativeSource = (name: string, definitions: string): string =>
  `${definitions}\n${nativeText(name)}`
