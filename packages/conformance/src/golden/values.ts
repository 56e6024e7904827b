/**
 * Recorded values → values of this library: arrays with their views, scalars, dtypes, index expressions, files, functions by name.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { viewStore } from "@lazuli/core/engine"
import { type EncodedArray, isEncodedArray, type Json, type JsonObject, Missing } from "./format"

/** The dtype of that name. */
export function dtypeNamed(name: string): mx.Dtype {
  return (mx as unknown as Record<string, mx.Dtype>)[name === "bool" ? "bool_" : name]
}

/** A recorded array's elements as stored; complex numbers as pairs. */
export function storeOf(v: EncodedArray): ArrayLike<number | bigint> {
  const bytes = Uint8Array.from(Buffer.from(v.b64, "base64")).buffer
  const count = v.shape.reduce((a, b) => a * b, 1)
  return viewStore(dtypeNamed(v.dtype), bytes, 0, count) as unknown as ArrayLike<number | bigint>
}

/** A recorded array, with its view. */
export function arrayOf(v: EncodedArray): mx.Array {
  const dtype = dtypeNamed(v.dtype)
  const store = storeOf(v)
  let a: mx.Array
  if (dtype === mx.complex64) {
    const list: mx.Complex[] = []
    for (let i = 0; i < store.length; i += 2)
      list.push(mx.complex(store[i] as number, store[i + 1] as number))
    a = list.length > 0 ? mx.array(list) : mx.zeros([0], mx.complex64)
  } else a = mx.array(store as Float32Array, dtype)
  a = a.reshape(v.shape)
  if (v.view === "transpose") return a.transpose()
  if (v.view === "stride2") return a.index("...", "::2")
  if (v.view === "reversed") return a.index("::-1")
  return v.view === "broadcast" ? a.broadcastTo(v.to as number[]) : a
}

/** The recorded arrays of arguments, depth first; those inside an index do not count. */
export function leavesOf(v: Json): EncodedArray[] {
  if (globalThis.Array.isArray(v)) return v.flatMap(leavesOf)
  if (isEncodedArray(v)) return [v]
  return v !== null && typeof v === "object" && "dict" in v ? Object.values(v.dict as JsonObject).flatMap(leavesOf) : []
}

/** A recorded float: `"nan"`, `"inf"` and `"-inf"` are strings. */
export function toNumber(v: Json): number {
  return typeof v === "string" ? Number(v.replace("inf", "Infinity")) : (v as number)
}
/** A recorded integer: from 2⁵³ on a string. */
export function toInteger(v: Json): number | bigint {
  return typeof v === "string" ? BigInt(v) : (v as number)
}

/** The operands beside a scalar, which decide how it is passed: Python's `2` and `2.0` are one JavaScript value. */
export type Beside = "no array" | "integers" | "floats" | "not an operand"

/** The decoding of values. */
export interface Decoding {
  readonly beside: Beside
  /** The values of `{"fn": name}` and `{"call": …}`. */
  readonly named: (v: JsonObject) => unknown
  /** Where the arrays of `args` come from, in order; recorded ones by default. */
  readonly leaf?: (v: EncodedArray) => mx.Array
}

/** A recorded value. @throws Missing for what does not exist here */
export function decode(v: Json, how: Decoding): unknown {
  if (v === null || typeof v !== "object") return v
  if (globalThis.Array.isArray(v)) return v.map((item) => decode(item, how))
  if (isEncodedArray(v)) return how.leaf ? how.leaf(v) : arrayOf(v)
  if ("int" in v) {
    const value = toInteger(v.int)
    return how.beside === "no array"
      ? mx.array(value, typeof value === "bigint" ? mx.int64 : mx.int32)
      : value
  }
  if ("float" in v) {
    const value = toNumber(v.float)
    return how.beside === "integers" ? mx.array(value) : value
  }
  if ("re" in v) return mx.complex(toNumber(v.re), toNumber(v.im))
  if ("dtype" in v) return dtypeNamed(v.dtype as string)
  if ("category" in v) {
    const category = (mx as unknown as Record<string, unknown>)[v.category as string]
    if (category === undefined) throw new Missing(`core.${v.category}`)
    return category
  }
  if ("file" in v) return fileOf(v.file as JsonObject)
  if ("index" in v) return (v.index as JsonObject[]).map(indexItem)
  if ("dict" in v) {
    const entries = Object.entries(v.dict as JsonObject)
    return Object.fromEntries(entries.map(([key, child]) => [key, decode(child, how)]))
  }
  return how.named(v)
}

let folder: string | undefined
let files = 0
/** A recorded file, written to a temporary folder that goes with the process. */
function fileOf(file: JsonObject): string {
  if (file.suffix === ".gguf" && !("saveGguf" in mx)) throw new Missing("core.load of gguf")
  if (folder === undefined) {
    const made = mkdtempSync(join(tmpdir(), "lazuli-golden-"))
    process.once("exit", () => rmSync(made, { recursive: true, force: true }))
    folder = made
  }
  const path = join(folder, `file${files++}${file.suffix as string}`)
  writeFileSync(path, Buffer.from(file.b64 as string, "base64"))
  return path
}

function indexItem(item: JsonObject): unknown {
  if ("int" in item) return item.int
  if ("slice" in item) return mx.s(...(item.slice as [number | null, number | null, number | null]))
  if ("newaxis" in item) return null
  if ("ellipsis" in item) return "..."
  if ("array" in item) return arrayOf(item.array as unknown as EncodedArray)
  if ("bool" in item) return item.bool
  if ("list" in item) return item.list
  throw new Missing(`index ${Object.keys(item)}`)
}

/** Calls that take Python scalars as operands, so that their type decides the dtype. */
const OPERANDS =
  /^core\.(add|subtract|multiply|divide|floor_divide|remainder|power|pow|maximum|minimum|logaddexp|arctan2|atan2|divmod|equal|not_equal|less|less_equal|greater|greater_equal|logical_\w+|bitwise_\w+|left_shift|right_shift|clip|where|full|full_like|array_equal|isclose|allclose)$/

/** The operands beside the scalars of a call. */
export function besideScalars(fn: string, args: readonly Json[]): Beside {
  if (!OPERANDS.test(fn)) return "not an operand"
  const operands = fn === "core.where" || fn === "core.full" ? args.slice(1) : args
  const complex = operands.some((v) => typeof v === "object" && v !== null && "re" in v)
  const floats = operands.some((v) => isEncodedArray(v) && /^(b?float|complex)/.test(v.dtype))
  if (floats || complex) return "floats"
  return operands.some(isEncodedArray) ? "integers" : "no array"
}

/** Python's literal types decide the dtype of `mx.array([1, 2.5])`; here they are told. Null where an array decides. */
export function literalDtype(v: Json): mx.Dtype | null {
  let rank = -1
  let mixed = false
  const visit = (x: Json): void => {
    if (globalThis.Array.isArray(x)) x.forEach(visit)
    else if (typeof x === "boolean") rank = Math.max(rank, 0)
    else if (isEncodedArray(x)) mixed = true
    else if (x && typeof x === "object" && "int" in x) {
      const value = toInteger(x.int)
      rank = Math.max(rank, typeof value === "bigint" || Math.abs(value) > 2 ** 31 - 1 ? 2 : 1)
    } else if (x && typeof x === "object" && "float" in x) rank = Math.max(rank, 3)
    else if (x && typeof x === "object" && "re" in x) rank = 4
  }
  visit(v)
  return mixed || rank < 0 ? null : [mx.bool_, mx.int32, mx.int64, mx.float32, mx.complex64][rank]
}
