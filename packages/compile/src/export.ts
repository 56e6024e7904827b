/**
 * Functions into files: `exportFunction` and `exporter` trace a function and write its calls and constants. The form of the file is in
 * program-file.ts; import.ts reads it.
 */
import {
  ArgumentError,
  Array,
  arraysOf,
  asPath,
  checkFunction,
  checkOptions,
  describe,
  type FilePath,
  isList,
  mapLeaves,
  ofTrees,
  TransformError,
  tracing,
  writeSafetensors,
} from "@lazuli/core/engine"
import { captureForAnySizes, type Recording } from "./capture"
import { type ExportCallback, tellGraph } from "./exported-graph"
import {
  Encoder,
  FILE_VERSION,
  METADATA,
  type ProgramJson,
  requirementOf,
  type TraceJson,
  USER_METADATA,
} from "./program-file"
import { ValueRef, withoutEffects } from "./recorder"

/** Options of {@link exportFunction} and {@link exporter}. */
export interface ExportOptions {
  /** True if a trace serves all sizes of arguments of the same rank and dtype; false by default. */
  readonly shapeless?: boolean
  /** A text to keep in the file, which {@link importFunction} gives back. */
  readonly metadata?: string
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
/** A stand-in for exporters on the right of `instanceof`. */
export const FunctionExporter: { [Symbol.hasInstance](value: unknown): boolean } = {
  [Symbol.hasInstance]: (value) => typeof value === "function" && exporters.has(value),
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
  return exporterFor("exporter", file, f, options)
}

function exporterFor<A extends unknown[], R>(
  op: string,
  file: FilePath,
  f: (...args: A) => R,
  options: ExportOptions,
): FunctionExporter<A> {
  const path = asPath(op, file)
  checkFunction(op, f)
  checkOptions(op, options, ["shapeless", "metadata"])
  const { shapeless = false, metadata = "" } = options
  if (typeof shapeless !== "boolean")
    throw new ArgumentError(op, `shapeless must be a boolean, received ${describe(shapeless)}`)
  if (typeof metadata !== "string")
    throw new ArgumentError(op, `metadata must be a string, received ${describe(metadata)}`)
  const encoder = new Encoder(op)
  const traces: TraceJson[] = []
  const requires = new Map<string, ProgramJson["requires"][number]>()
  let closed = false

  const trace = (...args: A): void => {
    if (closed) throw new TransformError(op, `the exporter of ${path} is closed`)
    const given = ofTrees(op, () => arraysOf(args))
    const { recording } = captured(op, f, args)
    if (recording.gap !== null)
      throw new TransformError(op, `what ${recording.gap} does cannot be written to a file`)
    if (shapeless && recording.isSized) throw sizedError(op, recording)
    let argument = 0
    let found = 0
    const withPlaceholders = (tree: unknown, placeholder: () => unknown): unknown =>
      mapLeaves(tree, (leaf) => (leaf instanceof Array ? placeholder() : leaf))
    const referenceOf = (value: number | Array): unknown =>
      typeof value === "number" ? new ValueRef(value, true) : value
    traces.push({
      shapeless,
      inputs: given.map(({ node }) => ({ dtype: node.dtype.name, shape: [...node.shape] })),
      args: encoder.encode(
        withPlaceholders(args, () => new ValueRef(argument++, true)),
        "an argument",
      ),
      calls: encoder.calls(recording.calls),
      result: encoder.encode(
        withPlaceholders(recording.result, () => referenceOf(recording.found[found++])),
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
    writeSafetensors(op, path, encoder.constants, {
      [METADATA]: JSON.stringify(program),
      ...(metadata !== "" && { [USER_METADATA]: metadata }),
    })
  }
  const made = Object.assign(trace, { close, [Symbol.dispose]: close })
  exporters.add(made)
  return made
}

/** A file makes calls and runs no function, so that numbers which one computes from sizes would stay those of the example. */
function sizedError(op: string, { reads, caught }: Recording): TransformError {
  const isCaught = reads.length === 0 && caught !== null
  const fact = isCaught
    ? `the function catches an error of ${caught}, which may not throw for other sizes`
    : `the function looks at sizes, which may differ in other calls${reads.length > 0 ? ":" : ""}${reads.map((line) => `\n    at ${line}`).join("")}`
  return new TransformError(op, reads.length > 0 ? `${fact}\n` : fact, {
    hint: isCaught
      ? "Decide without the error, or export without shapeless"
      : "Let operations infer sizes (-1 in reshape, flatten, unflatten), or export without shapeless",
  })
}

/** Traces a function that captures no state. */
const captured = <A extends unknown[]>(op: string, f: (...args: A) => unknown, args: A) =>
  ofTrees(op, () =>
    withoutEffects(() =>
      captureForAnySizes({
        f: f as unknown as (...args: never[]) => unknown,
        args,
        given: arraysOf(args),
        inputs: [],
        inputTrees: undefined,
        outputs: undefined,
      }),
    ),
  )

/**
 * Traces a function for arguments like `args` and writes it to a file that {@link importFunction} reads. Arrays that the function reads
 * without being given them become constants in the file. A callback in place of the file is told the graph of primitives part by part, to
 * write it in another form.
 *
 * @throws TransformError when the function cannot be traced, or uses what a file cannot hold, such as a custom function
 * @example
 * exportFunction('/tmp/f.lazuli', (x) => x.exp().sum(), [mx.zeros([2, 3])], { shapeless: true })
 * importFunction('/tmp/f.lazuli')(mx.zeros([5, 1])).item() // => 5
 * @example
 * const names = []
 * exportFunction((part) => part.type === 'primitive' && names.push(part.name), (x) => x.exp().sum(), [mx.zeros([2])])
 * names // => ['exp', 'sum', 'squeeze']
 */
export function exportFunction<A extends unknown[], R>(
  fileOrCallback: FilePath | ExportCallback,
  f: (...args: A) => R,
  args: readonly [...A],
  options: ExportOptions = {},
): void {
  if (!isList(args))
    throw new TransformError(
      "exportFunction",
      `expected a list of example arguments, received ${describe(args)}`,
    )
  if (typeof fileOrCallback === "function") {
    tellFunction(fileOrCallback, f, args, options)
    return
  }
  const exporting = exporterFor("exportFunction", fileOrCallback, f, options)
  exporting(...(args as A))
  exporting.close()
}

function tellFunction<A extends unknown[], R>(
  tell: ExportCallback,
  f: (...args: A) => R,
  args: readonly [...A],
  options: ExportOptions,
): void {
  checkFunction("exportFunction", f)
  checkOptions("exportFunction", options, ["shapeless", "metadata"])
  if (options.shapeless || options.metadata !== undefined)
    throw new ArgumentError(
      "exportFunction",
      "a callback receives one graph, for these sizes and without metadata",
    )
  const list = [...args] as unknown as A
  const { capture } = captured("exportFunction", f, list)
  tellGraph({ ...capture, args: list, given: arraysOf(list), isArray: (leaf) => leaf instanceof Array }, tell)
}
