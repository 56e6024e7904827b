/**
 * CachedPrograms in files: a safetensors file whose tensors are the program's constants and whose metadata entry `lazuli_program` is JSON.
 * The contents of the JSON are described in docs/compile.md. Here values become JSON and JSON becomes values; nothing of a file is ever run
 * as code.
 */
import {
  Array,
  Complex,
  callNamed,
  cpu,
  Device,
  type DeviceType,
  describe,
  dtypes,
  FormatError,
  gpu,
  isDtype,
  isList,
  isPlainObject,
  Node,
  packageOf,
  Slice,
  Stream,
  TransformError,
  versionOf,
} from "@lazuli/core/engine"
import { type RecordedCall, ValueRef } from "./recorder"

/** The metadata entry with the program. */
export const METADATA = "lazuli_program"
/** The metadata entry with the text that was given to be kept. */
export const USER_METADATA = "lazuli_metadata"
/** The version of the format that this package writes. */
export const FILE_VERSION = 1

/** One call in a file. */
interface CallJson {
  readonly call: string
  readonly args: readonly Json[]
  readonly results: readonly number[]
  /** Numbers and null that it gives besides arrays, if any. */
  readonly form?: string
  /** The device of the stream that the call names; without it the call runs on the current one. */
  readonly device?: DeviceType
}
/** One trace in a file. */
export interface TraceJson {
  readonly shapeless: boolean
  /** Dtype and shape of the arrays among the arguments, in order. */
  readonly inputs: readonly { readonly dtype: string; readonly shape: readonly number[] }[]
  /** The arguments; an array is `{ value: number }`. */
  readonly args: Json
  readonly calls: readonly CallJson[]
  /** The result in the same form. */
  readonly result: Json
}
/** The whole program. */
export interface ProgramJson {
  readonly version: number
  /** Traces number nodes by age; numbers from here on are newer than any that the calls speak of. */
  readonly epoch: number
  /** The packages, besides Lazuli's own, whose primitives and functions the calls name. */
  readonly requires: readonly { readonly package: string; readonly version: string | null }[]
  readonly traces: readonly TraceJson[]
}

/** A value in JSON. Whatever JSON has no form for is an object of one key, listed in {@link decode}. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }

/** Turns values into JSON; arrays from outside the program become constants. */
export class Encoder {
  constructor(
    /** The function that writes, for its errors. */
    private readonly op: string,
  ) {}
  /** Arrays by the names that they get in the file. */
  readonly constants: Record<string, Array> = {}
  private readonly names = new Map<Node, string>()

  encode(value: unknown, where: string): Json {
    switch (typeof value) {
      case "boolean":
      case "string":
        return value
      case "number":
        return Number.isFinite(value) && !Object.is(value, -0)
          ? value
          : { number: Object.is(value, -0) ? "-0" : String(value) }
      case "bigint":
        return { bigint: String(value) }
      case "undefined":
        return { undefined: true }
    }
    if (value === null) return null
    if (value instanceof ValueRef) return value.isHandle ? { value: value.id } : { node: value.id }
    if (value instanceof Array) return { constant: this.nameOf(value.node) }
    if (value instanceof Node) return { constantNode: this.nameOf(value) }
    if (isDtype(value)) return { dtype: value.name }
    if (value instanceof Complex)
      return { complex: [this.encode(value.re, where), this.encode(value.im, where)] }
    if (value instanceof Slice) return { slice: [value.start, value.stop, value.step] }
    if (value instanceof Device) return { device: value.type }
    if (isList(value)) return value.map((child) => this.encode(child, where))
    if (isPlainObject(value))
      return { object: Object.fromEntries(Object.entries(value).map(([k, v]) => [k, this.encode(v, where)])) }
    const what =
      typeof value === "function" ? "a function" : `an instance of ${(value as object).constructor.name}`
    throw new TransformError(this.op, `${where} is ${what}, which a file cannot hold`, {
      hint: "A file holds arrays, numbers, strings, booleans, and lists and plain objects of them: for a module, pass parameters()",
    })
  }

  calls(recorded: readonly RecordedCall[]): CallJson[] {
    // Calls without arrays tell the function something that only other sizes change.
    const kept = recorded.filter(({ name, results }) => results.length > 0 || callNamed(name))
    return kept.map(({ name, args, results, form, stream }) => {
      if (!callNamed(name))
        throw new TransformError(this.op, `what ${name} does cannot be written to a file`, {
          hint: "It depends on code: a kernel's source, a function or a program",
        })
      return {
        call: name,
        args: args.map((arg, i) => this.encode(arg, `argument ${i} of ${name}`)),
        results,
        ...(form && { form }),
        ...(stream instanceof Stream && { device: stream.device.type }),
      }
    })
  }

  private nameOf(node: Node): string {
    let name = this.names.get(node)
    if (name === undefined) {
      name = `constant.${this.names.size}`
      this.names.set(node, name)
      this.constants[name] = new Array(node)
    }
    return name
  }
}

/** A file's claim, as errors repeat it. */
export function shown(value: unknown): string {
  if (typeof value === "object" && value !== null) return describe(value)
  const text = JSON.stringify(value) ?? String(value)
  return text.length <= 80 ? text : `${text.slice(0, 77)}…`
}

/** Values nested deeper than this are refused. */
const MAX_DEPTH = 64

/** Turns JSON into values; see {@link Encoder}. */
export class Decoder {
  constructor(
    private readonly file: string,
    private readonly constants: Readonly<Record<string, Array>>,
  ) {}

  error(fact: string): FormatError {
    return new FormatError("importFunction", `${this.file}: ${fact}`)
  }

  /** Calls with the functions that they name. `count` is how many arrays the trace has for arguments. */
  calls(given: unknown, count: number): RecordedCall[] {
    if (!isList(given)) throw this.error("a trace has no list of calls")
    let known = count
    return given.map((entry, i) => {
      if (
        !isPlainObject(entry) ||
        typeof entry.call !== "string" ||
        !isList(entry.args) ||
        !isList(entry.results) ||
        !(entry.form === undefined || typeof entry.form === "string")
      )
        throw this.error(`call ${i} is malformed`)
      const name = entry.call
      const run = callNamed(name)
      if (!run)
        throw new TransformError(
          "importFunction",
          `${this.file} calls ${shown(name)}, which no loaded package defines`,
          {
            hint: name.includes("/")
              ? `Install and import ${shown(packageOf(name)).slice(1, -1)}`
              : "It was written by another version of Lazuli, or needs a package that is not imported",
          },
        )
      const limit = known
      const args = entry.args.map((arg) => this.decode(arg, limit, 0))
      const results = entry.results as number[]
      for (const id of results) {
        if (!Number.isSafeInteger(id) || id < 0 || id > known)
          throw this.error(`call ${i} (${shown(name)}) gives the value ${shown(id)} out of order`)
        if (id === known) known++
      }
      const stream = entry.device === undefined ? null : this.device(entry.device)
      // Files of earlier versions tell nothing.
      const form = entry.form ?? null
      return { name, run: run as RecordedCall["run"], args, results, form, stream }
    })
  }

  private device(name: unknown): Device {
    if (name !== "cpu" && name !== "gpu") throw this.error(`the device ${shown(name)} is unknown`)
    return name === "cpu" ? cpu : gpu
  }

  /** A value; references must be among the first `limit` values. */
  decode(json: unknown, limit: number, depth: number): unknown {
    if (depth > MAX_DEPTH) throw this.error("a value is nested too deeply")
    if (json === null || typeof json !== "object") return json
    if (isList(json))
      return globalThis.Array.from(json, (child: unknown) => this.decode(child, limit, depth + 1))
    const [only, ...more] = Object.entries(json as object) as [string, unknown][]
    if (only === undefined || more.length > 0) throw this.error("a value is malformed")
    const [kind, content] = only
    switch (kind) {
      case "value":
      case "node":
        if (!Number.isSafeInteger(content) || (content as number) < 0 || (content as number) >= limit)
          throw this.error(`the value ${shown(content)} is used before it is defined`)
        return new ValueRef(content as number, kind === "value")
      case "constant":
      case "constantNode": {
        const array =
          typeof content === "string" && Object.hasOwn(this.constants, content)
            ? this.constants[content]
            : null
        if (array === null) throw this.error(`the constant ${shown(content)} is missing`)
        return kind === "constant" ? array : array.node
      }
      case "number":
        if (!["NaN", "Infinity", "-Infinity", "-0"].includes(content as string))
          throw this.error(`the number ${shown(content)} is malformed`)
        return Number(content)
      case "bigint":
        if (typeof content !== "string" || !/^-?\d{1,20}$/.test(content))
          throw this.error("an integer is malformed")
        return BigInt(content)
      case "undefined":
        return undefined
      case "dtype": {
        const dtype = dtypes.find(({ name }) => name === content)
        if (!dtype) throw this.error(`the dtype ${shown(content)} is unknown`)
        return dtype
      }
      case "complex": {
        if (!isList(content) || content.length !== 2) throw this.error("a complex number is malformed")
        const [re, im] = content.map((part) => this.decode(part, limit, depth + 1))
        if (typeof re !== "number" || typeof im !== "number")
          throw this.error("a complex number is malformed")
        return new Complex(re, im)
      }
      case "slice": {
        const parts = isList(content) && content.length === 3 ? (content as (number | null)[]) : [Number.NaN]
        if (!parts.every((part) => part === null || Number.isSafeInteger(part)))
          throw this.error("a slice is malformed")
        return new Slice(parts[0], parts[1], parts[2])
      }
      case "device":
        return this.device(content)
      case "object": {
        if (!isPlainObject(content)) throw this.error("an object is malformed")
        return Object.fromEntries(
          Object.entries(content).map(([key, child]) => [key, this.decode(child, limit, depth + 1)]),
        )
      }
      default:
        throw this.error(`a value of unknown kind ${shown(kind)}`)
    }
  }
}

/** The packages that are always there, or that Lazuli's version stands for. */
const OWN = ["@lazuli/core", "@lazuli/transforms", "@lazuli/compile", "@lazuli/nn"]

/** The package whose primitive or function a call names, unless it is one of ours. */
export function requirementOf(call: string): ProgramJson["requires"][number] | null {
  const name = packageOf(call)
  return OWN.includes(name) ? null : { package: name, version: versionOf(name) }
}
