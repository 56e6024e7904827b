// Facts of every primitive: its semantics, the dtypes it takes, where it is defined, which backends have a kernel. The page
// docs/ops.md and the table packages/conformance/coverage.json are made of it.

import { readdirSync, readFileSync } from "node:fs"
import { join, relative } from "node:path"
import "@lazuli/backend-metal"
import {
  type Application,
  applicationsOf,
  discreteSamples,
  functionOf,
  onBackendNamed,
  samples,
} from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { dtypes, isInexact, listBackends, type Primitive, primitiveByName } from "@lazuli/core/engine"
import { nnSamples, UNREACHABLE } from "./nn-samples"

/** The packages whose primitives are told of. */
const SOURCES = ["@lazuli/core", "@lazuli/transforms", "@lazuli/compile", "@lazuli/nn"]

/** One primitive. */
export interface OpFacts {
  readonly name: string
  readonly semantics: string
  /** Names of the dtypes in which a sample of it works. */
  readonly dtypes: string[]
  /** The file that defines it. */
  readonly definition: string
  readonly cpu: boolean
  readonly metal: boolean
  readonly applications: readonly Application[]
}

function filesBelow(folder: string, ending: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return filesBelow(path, ending)
    return entry.name.endsWith(ending) && !entry.name.endsWith(".test.ts") ? [path] : []
  })
}

/** The sources below a folder that define primitives, each folder read once. */
function textsBelow(root: string, folder: string): { file: string; text: string }[] {
  const known = sources.get(folder)
  if (known) return known
  const texts = filesBelow(folder, ".ts")
    .map((file) => ({ file: relative(root, file), text: readFileSync(file, "utf8") }))
    .filter(({ text }) => text.includes("definePrimitive"))
  sources.set(folder, texts)
  return texts
}
const sources = new Map<string, { file: string; text: string }[]>()

/** File by primitive, read from the sources; a name that is made of parts is found by its whole text. */
function definitions(root: string): Map<string, string> {
  const found = new Map<string, string>()
  for (const { name, source } of mx.listPrimitives()) {
    const folder = join(root, "packages", source.replace("@lazuli/", ""), "src")
    const texts = SOURCES.includes(source) ? textsBelow(root, folder) : []
    const literal = new RegExp(`name: ["'\`]${name}["'\`]|= \\w+\\(\\s*"${name}"`)
    const quoted = [`"${name}"`, `"${name.slice(name.lastIndexOf("/") + 1)}"`]
    const home =
      texts.find(({ text }) => literal.test(text)) ??
      texts.find(({ text }) => quoted.some((q) => text.includes(q)))
    if (home) found.set(name, home.file)
  }
  return found
}

/** The kernels of the CPU backend, read from its sources, so that no build is needed. */
function cpuKernels(root: string): Set<string> {
  const files = filesBelow(join(root, "packages/backend-cpu/native/kernels"), ".cc")
  const names = files.flatMap((file) =>
    [...readFileSync(file, "utf8").matchAll(/registry\.add\(\s*"([^"]+)"/g)].map((match) => match[1]),
  )
  return new Set(names)
}

function worksIn(application: Application, dtype: mx.Dtype): boolean {
  const { inputs } = application
  const first = inputs.find((x) => isInexact(x.dtype))?.dtype ?? inputs[0]?.dtype
  try {
    const converted = inputs.map((x) => (x.dtype === first ? x.astype(dtype) : x))
    onBackendNamed("reference", () => mx.eval(functionOf(application)(...converted)))
    return true
  } catch {
    return false
  }
}

/** True if a backend has a kernel for a sample of the primitive, in some dtype. */
function hasKernel(backend: string, application: Application): boolean {
  const found = listBackends().find((b) => b.name === backend)
  const { inputs } = application
  return [null, mx.float32, mx.int32].some((dtype) => {
    const first = inputs.find((x) => isInexact(x.dtype))?.dtype
    try {
      const converted = inputs.map((x) => (dtype && x.dtype === first ? x.astype(dtype) : x))
      mx.eval(converted)
      const { params } = application
      // A result's dtype that is a parameter follows.
      const given = dtype && params.dtype === first ? { ...params, dtype } : params
      const [y] = functionOf({ ...application, params: given })(...converted)
      return found !== undefined && found.queue.lower(y.node) !== null
    } catch {
      return false
    }
  })
}

/** The facts of every primitive of this repository's packages, on the reference backend. */
export function opFacts(root: string): OpFacts[] {
  const locations = definitions(root)
  const kernels = cpuKernels(root)
  const applications = new Map<Primitive, Application[]>()
  for (const application of applicationsOf([...samples, ...discreteSamples, ...nnSamples])) {
    const list = applications.get(application.primitive) ?? []
    applications.set(application.primitive, [...list, application])
  }
  return mx
    .listPrimitives()
    .filter(({ name, source }) => SOURCES.includes(source) && !Object.hasOwn(UNREACHABLE, name))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, semantics }) => {
      const primitive = primitiveByName(name)
      const list = applications.get(primitive) ?? []
      return {
        name,
        semantics,
        dtypes: dtypes.filter((dtype) => list.some((a) => worksIn(a, dtype))).map((dtype) => dtype.name),
        definition: locations.get(name) ?? "",
        cpu: (semantics === "scalar" && !primitive.facts.immediate) || kernels.has(name),
        metal: list.some((a) => hasKernel("metal", a)),
        applications: list,
      }
    })
}
