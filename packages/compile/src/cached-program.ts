/**
 * A cached program: what one trace found, and what it takes for a call to use it. The cache is in program-cache.ts, the calls in replay.ts.
 */
import { Array, forEachLeaf, type Meta, type Stream } from "@lazuli/core/engine"
import type { Capture } from "./capture"
import type { Signature } from "./signature"
import { type ArrayLeaf, leafName } from "./state"

export interface CachedProgram {
  /** The key that finds it. */
  readonly key: string
  readonly signature: Signature
  /** That of the captured state. */
  readonly stateSignature: Signature
  readonly capture: Capture
  readonly params: { readonly program: Capture["graph"] }
  /** Where the captured inputs were at the last call that used it. */
  holders: readonly object[]
  keys: readonly (string | number)[]
  /** The captured inputs' shapes and dtypes at the trace. */
  readonly state: readonly Meta[]
  /** Keys and values, in turn, of what else was in the captured inputs. */
  readonly constants: readonly unknown[]
  /** True if the captured outputs are the captured inputs, one by one. */
  readonly inPlace: boolean
  /** True if a call does nothing but compute one array and give it. */
  readonly single: boolean
  /** The current stream when it was traced, which it serves alone; null where it names none and serves all. */
  readonly stream: Stream | null
  /** The stream that it runs on where that is another. */
  readonly elsewhere: Stream | null
  /** The other key that finds it: that of the captured outputs as it leaves them. */
  readonly alias: string
}

/** Remembers where the captured inputs are now. */
export function locate(cached: Pick<CachedProgram, "holders" | "keys">, inputs: readonly ArrayLeaf[]): void {
  cached.holders = inputs.map(({ holder }) => holder)
  cached.keys = inputs.map(({ key }) => key)
}

/** True if a trace found one array that the graph computes, and nothing else to leave. */
export const isSingle = ({ result, sources, left }: Capture): boolean =>
  result instanceof Array && sources.length === 1 && sources[0].from === "graph" && left.length === 0

/** The names of a program's inputs: arguments, captured state, and what the function read from outside. */
export function inputNames({ signature, stateSignature, capture: { outside } }: CachedProgram): string[] {
  const arrays = [...signature, ...stateSignature].filter(({ kind }) => kind === "array")
  return [...arrays.map(({ path }) => path), ...outside.map((_, i) => `constant ${i}`)]
}

/** The names of a program's outputs: parts of the result, and captured state. */
export function outputNames({ capture: { result, sources, outputPaths } }: CachedProgram): string[] {
  const paths: string[] = []
  forEachLeaf(result, (leaf, path) => {
    if (leaf instanceof Array) paths.push(path === "" ? "result" : `result.${path}`)
  })
  paths.push(...outputPaths.map(leafName))
  const names: string[] = []
  sources.forEach((source, i) => {
    if (source.from !== "graph") return
    const { index } = source
    names[index] = index in names ? `${names[index]}\n${paths[i]}` : paths[i]
  })
  return names
}
