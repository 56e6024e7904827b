/**
 * Functions in files: `exportFunction` and `exporter` trace a function and write its calls and constants; `importFunction` makes a function
 * of them again. The form of the file is in program-file.ts.
 */
import {
  Array,
  arraysOf,
  asPath,
  checkOptions,
  describe,
  dtypes,
  type FilePath,
  isList,
  isPlainObject,
  LazuliError,
  Mark,
  mapLeaves,
  type Node,
  primitiveByName,
  readSafetensors,
  sourceNode,
  TransformError,
  tracing,
  withFile,
  writeSafetensors,
} from "@lazuli/core/engine"
import { captureForAnySizes } from "./capture"
import { compile } from "./compile"
import {
  Decoder,
  Encoder,
  FILE_VERSION,
  type ProgramJson,
  packageOf,
  primitiveNameOf,
  type TraceJson,
} from "./program-file"
import { Place, type RecordedCall, repeat } from "./recorder"
import { difference, keyOf, type Signature, signatureOf } from "./signature"

const METADATA = "lazuli_program"

/** Options of {@link exportFunction} and {@link exporter}. */
export interface ExportOptions {
  /** Whether a trace serves all sizes of arguments of the same rank and dtype; false by default. */
  readonly shapeless?: boolean
}

/** Traces a function for one kind of arguments after another, and writes a file with all of them; {@link exporter} makes one. */
export interface FunctionExporter<A extends readonly unknown[] = readonly unknown[]> {
  /** Traces the function for such arguments. */
  (...args: A): void
  /** Writes the file. Nothing is written before. */
  close(): void
  [Symbol.dispose](): void
}
const exporters = new WeakSet<object>()
/** What `instanceof` knows exporters by. */
export const FunctionExporter: { [Symbol.hasInstance](value: unknown): boolean } = {
  [Symbol.hasInstance]: (value) => typeof value === "function" && exporters.has(value),
}

/** The package whose primitive a call applies, unless it is one of ours; null for functions. */
function requirementOf(call: string): ProgramJson["requires"][number] | null {
  if (!call.startsWith("primitive ")) return null
  const { source, version } = primitiveByName(primitiveNameOf(call))
  return ["@lazuli/core", "@lazuli/transforms", "@lazuli/compile"].includes(source)
    ? null
    : { package: source, version }
}

/**
 * Makes an exporter for a function: call it once for each kind of arguments that the file shall serve, then close it.
 *
 * @throws TransformError when the function cannot be traced, or uses what a file cannot hold, such as a custom function
 * @example
 * const exporting = exporter('/tmp/scale.lazuli', (x, k) => x.multiply(k))
 * exporting(mx.ones([2]), mx.array(3))
 * exporting(mx.ones([2, 2]), mx.array(3))
 * exporting.close()
 * importFunction('/tmp/scale.lazuli')(mx.array([1, 2]), mx.array(10)).tolist() // => [10, 20]
 */
export function exporter<A extends unknown[], R>(
  file: FilePath,
  f: (...args: A) => R,
  options: ExportOptions = {},
): FunctionExporter<A> {
  const path = asPath("exporter", file)
  if (typeof (f as unknown) !== "function")
    throw new TransformError("exporter", `expected a function, received ${describe(f)}`)
  checkOptions("exporter", options, ["shapeless"])
  const { shapeless = false } = options
  const encoder = new Encoder()
  const traces: TraceJson[] = []
  const requires = new Map<string, ProgramJson["requires"][number]>()
  let closed = false

  const trace = (...args: A): void => {
    if (closed) throw new TransformError("exporter", `the exporter of ${path} is closed`)
    const given = arraysOf(args)
    const { recording } = captureForAnySizes({
      f: f as (...args: never[]) => unknown,
      args,
      given,
      inputs: [],
      inputTrees: undefined,
      outputs: undefined,
    })
    if (recording.gap !== null)
      throw new TransformError("exporter", `what ${recording.gap} does cannot be written to a file`)
    let argument = 0
    let found = 0
    const withPlaces = (tree: unknown, place: () => unknown): unknown =>
      mapLeaves(tree, (leaf) => (leaf instanceof Array ? place() : leaf))
    const placeOf = (value: number | Array): unknown =>
      typeof value === "number" ? new Place(value, true) : value
    traces.push({
      shapeless,
      inputs: given.map(({ node }) => ({ dtype: node.dtype.name, shape: [...node.shape] })),
      args: encoder.encode(
        withPlaces(args, () => new Place(argument++, true)),
        "an argument",
      ),
      calls: encoder.calls(recording.calls),
      result: encoder.encode(
        withPlaces(recording.result, () => placeOf(recording.found[found++])),
        "the result",
      ),
    })
    for (const { name } of recording.calls) {
      const needed = requirementOf(name)
      if (needed) requires.set(needed.package, needed)
    }
  }
  const close = (): void => {
    if (closed) return
    closed = true
    const program: ProgramJson = {
      version: FILE_VERSION,
      epoch: tracing.begun,
      requires: [...requires.values()],
      traces,
    }
    writeSafetensors("exporter", path, encoder.constants, { [METADATA]: JSON.stringify(program) })
  }
  const made = Object.assign(trace, { close, [Symbol.dispose]: close })
  exporters.add(made)
  return made
}

/**
 * Traces a function for arguments like `args` and writes it to a file that {@link importFunction} reads. Arrays that the function reads
 * without being given them become constants in the file.
 *
 * @throws TransformError when the function cannot be traced, or uses what a file cannot hold, such as a custom function
 * @example
 * exportFunction('/tmp/f.lazuli', (x) => x.exp().sum(), [mx.zeros([2, 3])], { shapeless: true })
 * importFunction('/tmp/f.lazuli')(mx.zeros([5, 1])).item() // => 5
 */
export function exportFunction<A extends unknown[], R>(
  file: FilePath,
  f: (...args: A) => R,
  args: readonly [...A],
  options: ExportOptions = {},
): void {
  if (!isList(args))
    throw new TransformError(
      "exportFunction",
      `expected a list of example arguments, received ${describe(args)}`,
    )
  const exporting = exporter(file, f, options)
  exporting(...(args as A))
  exporting.close()
}

/** The largest number of a trace that a file may name. */
const MAX_EPOCH = 2 ** 50

/** A trace of a file, ready to run. */
interface Imported {
  readonly signature: Signature
  readonly key: string
  readonly shapeless: boolean
  /** The numbers of the arguments' arrays, in the order of the signature. */
  readonly numbers: readonly number[]
  readonly calls: readonly RecordedCall[]
  readonly result: unknown
  readonly shown: string
}

/**
 * The function that a file holds: it gives what the exported one gave, in the same structure, for arguments like those it was exported for.
 * It can be differentiated, vectorized and compiled. No code of the file is run: it names operations, which must be loaded.
 *
 * @throws FormatError when the file is no program or is damaged
 * @throws TransformError when it uses a primitive of a package that is not loaded, or loaded in an incompatible version; and, from the function, when no trace fits the arguments
 * @example
 * exportFunction('/tmp/sine.lazuli', (x) => ({ y: x.sin() }), [mx.zeros([])])
 * importFunction('/tmp/sine.lazuli')(mx.array(0)).y.item() // => 0
 */
export function importFunction<A extends unknown[] = unknown[], R = unknown>(
  file: FilePath,
): (...args: A) => R {
  const path = asPath("importFunction", file)
  const { arrays, metadata } = withFile("importFunction", path, readSafetensors)
  const decoder = new Decoder(path, arrays)
  /** What a damaged program makes go wrong in the functions that it calls. */
  const guarded = <T>(body: () => T): T => {
    try {
      return body()
    } catch (error) {
      if (error instanceof LazuliError) throw error
      throw decoder.error(`its program is malformed: ${(error as Error).message}`)
    }
  }
  const traces = guarded(() => {
    const program = parse(metadata[METADATA], decoder)
    for (const { package: name, version } of program.requires) checkLoaded(path, name, version, program)
    // Walks take what is older than they are for constant.
    tracing.begun = Math.max(tracing.begun, program.epoch)
    return program.traces.map((trace) => importTrace(trace, decoder))
  })
  const run = (...args: unknown[]): unknown => {
    const ordered = inKeyOrder(args) as readonly unknown[]
    const signature = signatureOf(ordered)
    const keys = [keyOf(signature, true), keyOf(signature, false)]
    const fitting = traces.find(({ key, shapeless }) => key === keys[shapeless ? 1 : 0])
    if (!fitting) throw noTrace(path, traces, signature)
    const inputs: Node[] = []
    arraysOf(ordered).forEach(({ node }, i) => {
      inputs[fitting.numbers[i]] = node
    })
    const values = guarded(() => repeat(fitting.calls, inputs))
    return mapLeaves(fitting.result, (leaf) =>
      leaf instanceof Place
        ? new Array(values[leaf.id] as Node)
        : leaf instanceof Array
          ? new Array(leaf.node)
          : leaf,
    )
  }
  return compile(run) as unknown as (...args: A) => R
}

/** A tree whose objects have their keys in one order: what is given by name may come in any. */
function inKeyOrder(tree: unknown): unknown {
  if (isList(tree)) return tree.map(inKeyOrder)
  if (!isPlainObject(tree)) return tree
  const keys = Object.keys(tree).sort()
  return Object.fromEntries(keys.map((key) => [key, inKeyOrder(tree[key])]))
}

/** Says how arguments differ from those that a file has traces for. */
function noTrace(path: string, traces: readonly Imported[], signature: Signature): TransformError {
  const arrays = signature.filter((token) => token.kind === "array")
  const has = traces.map(({ shown }) => shown).join(" and ") || "none"
  const differences = traces.flatMap((trace) => {
    const found = difference(trace.signature, signature, !trace.shapeless)
    return found ? [found.reason] : []
  })
  return new TransformError(
    "importFunction",
    `${path} has no trace for ${showInputs(arrays)}; it has ${has}${differences.length > 0 ? ` (${differences.join("; ")})` : ""}`,
    { hint: "Export it for such arguments too, or with { shapeless: true }" },
  )
}

function parse(text: string | undefined, decoder: Decoder): ProgramJson {
  if (text === undefined) throw decoder.error("is a safetensors file without a program")
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (cause) {
    throw decoder.error(`its program is no JSON: ${(cause as Error).message}`)
  }
  if (!isPlainObject(json) || !Number.isSafeInteger(json.version))
    throw decoder.error("its program is malformed")
  if (json.version !== FILE_VERSION)
    throw decoder.error(
      `its program has version ${String(json.version)}, and this package reads version ${FILE_VERSION}`,
    )
  const { epoch, requires, traces } = json
  if (!Number.isSafeInteger(epoch) || (epoch as number) < 0 || (epoch as number) > MAX_EPOCH)
    throw decoder.error("its epoch is malformed")
  const isRequirement = (r: unknown): boolean =>
    isPlainObject(r) && typeof r.package === "string" && (r.version === null || typeof r.version === "string")
  if (!isList(requires) || !requires.every(isRequirement))
    throw decoder.error("its list of packages is malformed")
  if (
    !isList(traces) ||
    !traces.every((t) => isPlainObject(t) && typeof t.shapeless === "boolean" && isList(t.inputs))
  )
    throw decoder.error("its traces are malformed")
  return json as unknown as ProgramJson
}

/** @throws TransformError where a package of whose primitives the program applies one is not loaded, or is another version */
function checkLoaded(path: string, name: string, version: string | null, { traces }: ProgramJson): void {
  const wanted = version === null ? name : `${name}@${version}`
  for (const { calls } of traces) {
    if (!isList(calls)) continue
    for (const entry of calls) {
      if (typeof entry?.call !== "string" || packageOf(entry.call) !== name) continue
      let loaded: ReturnType<typeof requirementOf>
      try {
        loaded = requirementOf(entry.call)
      } catch (error) {
        if (!(error instanceof LazuliError)) throw error
        throw new TransformError(
          "importFunction",
          `${path} applies the ${entry.call} of ${wanted}, which is not loaded`,
          { hint: `Install ${wanted} and import it before the file is read` },
        )
      }
      if (version !== null && loaded?.version && !isCompatible(version, loaded.version))
        throw new TransformError(
          "importFunction",
          `${path} applies the ${entry.call} of ${wanted}, and ${name}@${loaded.version} is loaded`,
          { hint: `Install ${wanted}, or export the function again with ${loaded.version}` },
        )
    }
  }
}

/** Whether what was written for one version may meet another: by the rules of semantic versions, up to the first number that is not 0. */
function isCompatible(written: string, loaded: string): boolean {
  const [a, b] = [written, loaded].map((version) => version.split(/[.+-]/))
  const first = a.findIndex((part) => part !== "0")
  return first < 0 ? written === loaded : a.slice(0, first + 1).every((part, i) => part === b[i])
}

function importTrace({ shapeless, inputs, args, calls, result }: TraceJson, decoder: Decoder): Imported {
  const nodes = inputs.map(({ dtype: name, shape }) => {
    const dtype = dtypes.find((d) => d.name === name)
    if (!dtype || !isList(shape) || !shape.every((n) => Number.isSafeInteger(n) && n >= 0))
      throw decoder.error("an input of its program is malformed")
    return sourceNode(shape, dtype, null, Mark.Abstract)
  })
  const places = inKeyOrder(decoder.decode(args, nodes.length, 0))
  const numbers: number[] = []
  const like = mapLeaves(places, (leaf) => {
    if (!(leaf instanceof Place)) return leaf
    numbers.push(leaf.id)
    return new Array(nodes[leaf.id])
  })
  if (!isList(like) || numbers.length !== nodes.length || new Set(numbers).size !== nodes.length)
    throw decoder.error("the arguments of its program are malformed")
  const recorded = decoder.calls(calls, nodes.length)
  const count = recorded.reduce((n, call) => Math.max(n, ...call.results.map((id) => id + 1)), nodes.length)
  const signature = signatureOf(like)
  return {
    signature,
    key: keyOf(signature, !shapeless),
    shapeless,
    numbers,
    calls: recorded,
    result: decoder.decode(result, count, 0),
    shown: `${showInputs(nodes)}${shapeless ? " of any sizes" : ""}`,
  }
}

const showInputs = (nodes: readonly Pick<Node, "dtype" | "shape">[]): string =>
  nodes.length === 0
    ? "no arrays"
    : nodes.map(({ dtype, shape }) => `${dtype.name}[${shape.join(", ")}]`).join(", ")
