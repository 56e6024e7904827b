// docs/ops.md: every primitive and every public function of mx, from the sources. `npm run generate` writes it.

import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { type OpFacts, opFacts } from "./op-facts"

/** Public functions that MLX does not have. */
const BEYOND_MLX = new Set(["nonzero", "s", "roundToInteger", "random.bits"])

const NAMESPACES = ["", "fast", "fft", "linalg", "random"] as const

const ALL_DTYPES = 14
const GROUPS: [label: string, names: string[]][] = [
  ["bool", ["bool"]],
  ["integers", "uint8 uint16 uint32 uint64 int8 int16 int32 int64".split(" ")],
  ["floats", "float16 bfloat16 float32 float64".split(" ")],
  ["complex64", ["complex64"]],
]
/** `floats, complex64`, or names where a group is not whole. */
function dtypesOf({ dtypes }: OpFacts): string {
  if (dtypes.length === ALL_DTYPES) return "all"
  const has = (name: string): boolean => dtypes.includes(name) || dtypes.includes(`${name}_`)
  const parts = GROUPS.flatMap(([label, names]) => (names.every(has) ? [label] : names.filter(has)))
  return parts.join(", ") || "–"
}

const snake = (name: string): string =>
  name
    .replace(/^atleast/, "atleast_")
    .replace(/([a-z0-9])([A-Z])/g, (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`)

/** The file that exports each function, read from the sources. */
function homes(root: string, space: string): Map<string, string> {
  const found = new Map<string, string>()
  const read = (path: string): void => {
    const text = readFileSync(join(root, path), "utf8")
    for (const [, name] of text.matchAll(/^export (?:async )?(?:function|const) (\w+)/gm))
      if (!found.has(name)) found.set(name, path)
  }
  const visit = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = `${folder}/${entry.name}`
      if (entry.isDirectory()) visit(path)
      else if (/\.ts$/.test(entry.name) && !/\.test(-d)?\.ts$/.test(entry.name)) read(path)
    }
  }
  if (space === "linalg") visit("packages/core/src/ops/linalg")
  if (space === "fft") read("packages/core/src/api/fft.ts")
  if (space === "random")
    for (const name of ["random-keys", "random"]) read(`packages/core/src/api/${name}.ts`)
  visit("packages/core/src/ops")
  visit("packages/core/src")
  return found
}

function functionRows(root: string): string[] {
  return NAMESPACES.flatMap((space) => {
    const files = homes(root, space)
    const home = (space === "" ? mx : (mx as unknown as Record<string, object>)[space]) as Record<
      string,
      unknown
    >
    const byFunction = new Map<unknown, string[]>()
    for (const [name, value] of Object.entries(home)) {
      // Classes, dtypes and constants are no ops.
      if (
        typeof value !== "function" ||
        /^[A-Z]/.test(name) ||
        /^(bool|u?int|b?float|complex)\d*_?$/.test(name)
      )
        continue
      byFunction.set(value, [...(byFunction.get(value) ?? []), name])
    }
    const prefix = space === "" ? "" : `${space}.`
    return [...byFunction.values()].flatMap((names) => {
      const file = names.map((name) => files.get(name)).find((path) => path !== undefined)
      // Trees, devices and the like are no ops.
      if (!file || !/\/(ops\/.*|random|random-keys|fft|linalg)\.ts$|\/ops\//.test(file)) return []
      const ours = names.map((name) => `\`mx.${prefix}${name}\``).join(", ")
      const theirs = names
        .filter((name) => !BEYOND_MLX.has(prefix + name))
        .map((name) => `\`${prefix}${snake(name)}\``)
        .join(", ")
      return [`| ${ours} | ${theirs || "–"} | [${file.replace(/^packages\/core\/src\//, "")}](../${file}) |`]
    })
  })
}

/** The page's text. */
export function opsPage(root: string): string {
  const facts = opFacts(root)
  const count = (key: "cpu" | "metal"): number => facts.filter((op) => op[key]).length
  const mark = (has: boolean): string => (has ? "yes" : "–")
  /** Where there is no kernel for Metal: why. */
  const onMetal = ({ metal, cpu, semantics, definition }: OpFacts): string =>
    metal
      ? "yes"
      : semantics === "view"
        ? "view"
        : semantics === "decompose" && !cpu
          ? "composed"
          : definition.includes("/linalg/")
            ? "by the CPU, as in MLX"
            : semantics === "scalar"
              ? "argument"
              : "–"
  return `# Every op

Written by \`npm run generate\`. A **primitive** is one definition: its name, what it promises of shapes and dtypes, its semantics, its
derivatives and its batching rule. Every function of \`mx\` is made of primitives. What a backend has no kernel for runs by the
primitive's decomposition or by its reference implementation; \`mx.backendStats()\` tells.

## Primitives

${facts.length} primitives; ${count("cpu")} have kernels on the CPU, ${count("metal")} on Metal. *Scalar* ones are programs over elements: every
backend runs them, fused with their neighbours where a function is compiled. *Views* rearrange memory and need no kernel. The dtypes are
those of the main inputs; functions convert to them. *Composed* ones run as the primitives they are made of; a constant is a kernel's argument.

| primitive | semantics | dtypes | defined in | CPU | Metal |
|---|---|---|---|---|---|
${facts
  .map(
    (op) =>
      `| \`${op.name}\` | ${op.semantics} | ${dtypesOf(op)} | [${op.definition.replace(/^packages\//, "")}](../${op.definition}) | ${mark(op.cpu)} | ${onMetal(op)} |`,
  )
  .join("\n")}

## Functions

| function | in MLX | defined in |
|---|---|---|
${functionRows(root).join("\n")}
`
}
