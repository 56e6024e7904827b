/**
 * Functions out of files: `importFunction` makes a function of the calls and constants that export.ts wrote, trusting nothing of the file.
 */
import {
  Array,
  arraysOf,
  asPath,
  building,
  callNamed,
  checkOptions,
  dtypes,
  type FilePath,
  FormatError,
  isDtype,
  isList,
  isPlainObject,
  LazuliError,
  Mark,
  mapLeaves,
  type Node,
  packageOf,
  readSafetensors,
  renamed,
  sizeOf,
  sourceNode,
  TransformError,
  tracing,
  versionOf,
  withFile,
  withoutHandles,
} from "@lazuli/core/engine"
import { compile } from "./compile"
import {
  Decoder,
  FILE_VERSION,
  METADATA,
  type ProgramJson,
  shown,
  type TraceJson,
  USER_METADATA,
} from "./program-file"
import { type RecordedCall, repeat, ValueRef, withoutEffects } from "./recorder"
import { difference, keyOf, type Signature, signatureOf } from "./signature"

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
 * @throws TransformError when it uses a primitive of a package that is not loaded, or loaded in an incompatible version; and, from the
 * function, when no trace fits the arguments
 * @example
 * exportFunction('/tmp/sine.lazuli', (x) => ({ y: x.sin() }), [mx.zeros([])])
 * importFunction('/tmp/sine.lazuli')(mx.array(0)).y.item() // => 0
 * @example
 * exportFunction('/tmp/twice.lazuli', (x) => x.add(x), [mx.zeros([])], { metadata: 'of 3 May' })
 * const [twice, metadata] = importFunction('/tmp/twice.lazuli', { returnMetadata: true })
 * metadata // => 'of 3 May'
 */
export function importFunction<A extends unknown[] = unknown[], R = unknown>(
  file: FilePath,
  returnMetadata: true | { returnMetadata: true },
): [f: (...args: A) => R, metadata: string]
export function importFunction<A extends unknown[] = unknown[], R = unknown>(
  file: FilePath,
  returnMetadata?: false | { returnMetadata?: false },
): (...args: A) => R
export function importFunction(
  file: FilePath,
  options: boolean | { returnMetadata?: boolean } = false,
): unknown {
  const path = asPath("importFunction", file)
  const named = typeof options === "boolean" ? { returnMetadata: options } : options
  checkOptions("importFunction", named, ["returnMetadata"])
  const { arrays, metadata } = withFile("importFunction", path, readSafetensors)
  const decoder = new Decoder(path, arrays)
  const program = parse(metadata[METADATA], decoder)
  for (const { package: name, version } of program.requires) checkLoaded(path, name, version, program)
  // Walks take what is older than they are for constant.
  tracing.begun = Math.max(tracing.begun, program.epoch)
  const traces = program.traces.map((trace) => {
    try {
      return importTrace(trace, decoder)
    } catch (error) {
      throw error instanceof LazuliError ? error : decoder.error("its program is malformed")
    }
  })
  const run = (...args: unknown[]): unknown => {
    const ordered = inKeyOrder(args) as readonly unknown[]
    const signature = signatureOf(ordered)
    const keys = [keyOf(signature, "sizes"), keyOf(signature, "rank")]
    const fitting = traces.find(({ key, shapeless }) => key === keys[shapeless ? 1 : 0])
    if (!fitting) throw noTrace(path, traces, signature)
    const inputs: Node[] = []
    arraysOf(ordered).forEach(({ node }, i) => {
      inputs[fitting.numbers[i]] = node
    })
    const values = repeatChecked(fitting.calls, inputs, decoder)
    return mapLeaves(fitting.result, (leaf) =>
      leaf instanceof ValueRef
        ? new Array(values[leaf.id] as Node)
        : leaf instanceof Array
          ? new Array(leaf.node)
          : leaf,
    )
  }
  const compiled = compile(run)
  const call = (...args: unknown[]): unknown => {
    try {
      return compiled(...args)
    } catch (error) {
      throw error instanceof LazuliError && error.op === "compile" ? renamed(error, "importFunction") : error
    }
  }
  const f = Object.assign(call, { stats: compiled.stats, explain: compiled.explain })
  return named.returnMetadata ? [f, metadata[USER_METADATA] ?? ""] : f
}

/** A program may add so many nodes to the graph, and so many more for each of its calls: a derivative is one call. */
const MAX_NODES = 200_000
const NODES_OF_CALL = 1_000

/** Makes the calls of a file, which may be given what no function gives them: whatever comes of that is an error of the file. */
function repeatChecked(
  recorded: readonly RecordedCall[],
  inputs: readonly Node[],
  decoder: Decoder,
): (Node | undefined)[] {
  const { note } = building
  let left = MAX_NODES + NODES_OF_CALL * recorded.length
  building.note = (node) => {
    note?.(node)
    if (left-- === 0) throw decoder.error("its program makes too many arrays")
    if (!isWellFormed(node)) throw decoder.error("its program makes an array of an impossible size")
  }
  try {
    return repeat(recorded, inputs, (error, at) => {
      if (error instanceof FormatError && error.op === "importFunction") return error
      const { name } = recorded[at]
      const why = error instanceof LazuliError ? `: ${error.message}` : ""
      return decoder.error(`call ${at} (${shown(name)}) does not take its arguments${why}`)
    })
  } finally {
    building.note = note
  }
}

const isWellFormed = ({ shape, dtype, nbytes }: Node): boolean =>
  isDtype(dtype) && Number.isSafeInteger(nbytes) && shape.every((n) => Number.isSafeInteger(n) && n >= 0)

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
  } catch {
    throw decoder.error("its program is not JSON")
  }
  if (!isPlainObject(json) || !Number.isSafeInteger(json.version))
    throw decoder.error("its program is malformed")
  if (json.version !== FILE_VERSION)
    throw decoder.error(
      `its program has version ${shown(json.version)}, and this package reads version ${FILE_VERSION}`,
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
    !traces.every((t) => isPlainObject(t) && typeof t.shapeless === "boolean" && isInputs(t.inputs))
  )
    throw decoder.error("its traces are malformed")
  return json as unknown as ProgramJson
}

const isInputs = (inputs: unknown): boolean =>
  isList(inputs) && inputs.every((input) => isPlainObject(input) && isList(input.shape))

/** @throws TransformError where a package of whose calls the program makes one is not loaded, or is another version */
function checkLoaded(path: string, name: string, version: string | null, { traces }: ProgramJson): void {
  const wanted = version === null ? name : `${name}@${version}`
  for (const { calls } of traces) {
    if (!isList(calls)) continue
    for (const entry of calls) {
      if (typeof entry?.call !== "string" || packageOf(entry.call) !== name) continue
      if (!callNamed(entry.call))
        throw new TransformError(
          "importFunction",
          `${path} applies the ${shown(entry.call).slice(1, -1)} of ${wanted}, which is not loaded`,
          { hint: `Install ${wanted} and import it before the file is read` },
        )
      const loaded = versionOf(name)
      if (version !== null && loaded !== null && !isCompatible(version, loaded))
        throw new TransformError(
          "importFunction",
          `${path} applies the ${shown(entry.call).slice(1, -1)} of ${wanted}, but ${name}@${loaded} is loaded`,
          { hint: `Install ${wanted}, or export the function again with ${loaded}` },
        )
    }
  }
}

/** True if work written for one version may meet another: by the rules of semantic versions, up to the first number that is not 0. */
function isCompatible(written: string, loaded: string): boolean {
  const [a, b] = [written, loaded].map((version) => version.split(/[.+-]/))
  const first = a.findIndex((part) => part !== "0")
  return first < 0 ? written === loaded : a.slice(0, first + 1).every((part, i) => part === b[i])
}

function importTrace({ shapeless, inputs, args, calls, result }: TraceJson, decoder: Decoder): Imported {
  const nodes = inputs.map(({ dtype: name, shape }) => {
    const dtype = dtypes.find((d) => d.name === name)
    const isShape = shape.every((n) => Number.isSafeInteger(n) && n >= 0)
    if (!dtype || !isShape || !Number.isSafeInteger(sizeOf(shape) * dtype.size))
      throw decoder.error("an input of its program is malformed")
    return sourceNode(shape, dtype, null, Mark.Abstract)
  })
  const positions = inKeyOrder(decoder.decode(args, nodes.length, 0))
  const numbers: number[] = []
  const like = mapLeaves(positions, (leaf) => {
    if (!(leaf instanceof ValueRef)) return leaf
    numbers.push(leaf.id)
    return new Array(nodes[leaf.id])
  })
  if (!isList(like) || numbers.length !== nodes.length || new Set(numbers).size !== nodes.length)
    throw decoder.error("the arguments of its program are malformed")
  const recorded = decoder.calls(calls, nodes.length)
  const count = recorded.reduce((n, call) => Math.max(n, ...call.results.map((id) => id + 1)), nodes.length)
  const signature = signatureOf(like)
  const found = decoder.decode(result, count, 0)
  withoutEffects(() => withoutHandles(() => repeatChecked(recorded, nodes, decoder)))
  return {
    signature,
    key: keyOf(signature, shapeless ? "rank" : "sizes"),
    shapeless,
    numbers,
    calls: recorded,
    result: found,
    shown: `${showInputs(nodes)}${shapeless ? " of any sizes" : ""}`,
  }
}

const showInputs = (nodes: readonly Pick<Node, "dtype" | "shape">[]): string =>
  nodes.length === 0
    ? "no arrays"
    : nodes.map(({ dtype, shape }) => `${dtype.name}[${shape.join(", ")}]`).join(", ")
