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

/** A kernel behind its definitions. */
export const nativeSource = (name: string, definitions: string): string =>
  `${definitions}\n${nativeText(name)}`
