/**
 * `.metal` files of packages: the text with what it includes from its own folder, since a GPU's compiler is given text alone, and the lines
 * that its author knows.
 */
import { createHash } from "node:crypto"
import { existsSync, readFileSync } from "node:fs"
import { basename, dirname, join, relative } from "node:path"

/** A file's text for a compiler. */
export interface MetalFile {
  readonly path: string
  /** The name of the file, for messages. */
  readonly name: string
  readonly text: string
  /** A hash of the text. */
  readonly digest: string
  /** The name of a line of the text: the file and the line in it. */
  location(line: number): string
  /** The library compiled ahead of this very text, beside the file; null where there is none. */
  readonly compiled: string | null
}

const INCLUDE = /^[ \t]*#[ \t]*(?:include|import)[ \t]*"([^"]+)"/

/** Reads a file. @throws the file system's error where it, or what it includes, cannot be read */
export function readMetalFile(path: string): MetalFile {
  const folder = dirname(path)
  const lines: string[] = []
  const locations: string[] = []
  const known = new Set<string>()
  const add = (file: string): void => {
    // Once each, as #pragma once would have it.
    if (known.has(file)) return
    known.add(file)
    const name = file === path ? basename(path) : relative(folder, file)
    readFileSync(file, "utf8")
      .split("\n")
      .forEach((line, i) => {
        const included = INCLUDE.exec(line)?.[1]
        if (included !== undefined) {
          const target = join(dirname(file), included)
          if (!existsSync(target))
            throw new Error(`${name}:${i + 1} includes "${included}", but there is no ${target}`)
          add(target)
          return
        }
        lines.push(/^[ \t]*#[ \t]*pragma[ \t]+once\b/.test(line) ? "" : line)
        locations.push(`${name}:${i + 1}`)
      })
  }
  add(path)
  const text = lines.join("\n")
  const digest = createHash("sha256").update(text).digest("hex")
  const compiled = compiledPath(path, digest)
  return {
    path,
    name: basename(path),
    text,
    digest,
    location: (line) => locations[line - 1] ?? `line ${line} of ${basename(path)}`,
    compiled: existsSync(compiled) ? compiled : null,
  }
}

/** The library that is compiled ahead of a file: it names the text that it was made of, so that an old one is not taken for it. */
export const compiledPath = (path: string, digest: string): string =>
  `${path.replace(/\.metal$/, "")}-${digest.slice(0, 12)}.metallib`
