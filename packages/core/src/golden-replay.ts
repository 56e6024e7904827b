/**
 * Replays golden vectors: calls recorded from MLX, with its answers. Reads the files of packages/conformance/golden, calls the
 * function of the same name here, and compares. Test support only; it is not part of the package.
 */
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { viewStore } from "./dtype"
import { fromBfloat16Bits, fromFloat16Bits } from "./half"
import * as mx from "./index"

type Json = null | boolean | string | number | Json[] | { [key: string]: Json }
type Record_ = { [key: string]: Json }
interface EncodedArray {
  dtype: string
  shape: number[]
  b64: string
  view?: string
  to?: number[]
}
/** One recorded call. */
export interface GoldenCase {
  id: string
  fn: string
  args: Json[]
  kwargs: Record_
  seed?: number
  then?: { fn: string; args?: Json[]; kwargs?: Record_ }[]
  transform?: unknown
  outputs?: Json[]
  raises?: string
  message?: string
  rtol: number
  atol: number
  exact: boolean
  compare?: { kind: string; kth?: number; axis?: number | null }
  tags?: string[]
}

const folder = fileURLToPath(new URL("../../conformance/golden", import.meta.url))

/** The cases of a family. */
export function goldenCases(family: string): GoldenCase[] {
  const text = readFileSync(join(folder, `${family}.json`), "utf8")
  return (JSON.parse(text) as { cases: GoldenCase[] }).cases
}

/** Thrown for a function that does not exist here. */
export class Missing extends Error {}

const camel = (name: string): string =>
  name.replace(/_+([a-z0-9])/g, (_, c: string) => c.toUpperCase()).replace(/^(.*)_$/, "$1")
const dtypeOf = (name: string): mx.Dtype =>
  (mx as unknown as Record<string, mx.Dtype>)[name === "bool" ? "bool_" : name]
const isEncodedArray = (v: Json | undefined): v is Record_ & EncodedArray & Json =>
  typeof v === "object" && v !== null && !globalThis.Array.isArray(v) && "b64" in v

function bytesOf(b64: string): ArrayBuffer {
  const buffer = Buffer.from(b64, "base64")
  const out = new ArrayBuffer(buffer.length)
  new Uint8Array(out).set(buffer)
  return out
}

function arrayOf(v: EncodedArray): mx.Array {
  const dtype = dtypeOf(v.dtype)
  const bytes = bytesOf(v.b64)
  const count = v.shape.reduce((a, b) => a * b, 1)
  const data = viewStore(dtype, bytes, 0, count)
  let a: mx.Array
  if (v.dtype === "complex64") {
    const parts = mx.array(data as Float32Array).reshape([count, 2])
    const [re, im] = [parts.index(":", 0), parts.index(":", 1)]
    a = re.astype(mx.complex64).add(im.multiply(mx.complex(0, 1)))
    // The product above loses the sign of zeros and the company of infinities: read the pairs as they are where it matters.
    a = exactComplex(data as Float32Array, a)
  } else a = mx.array(data, dtype)
  a = a.reshape(v.shape)
  if (v.view === "transpose") a = a.transpose()
  else if (v.view === "stride2") a = a.index("...", "::2")
  else if (v.view === "reversed") a = a.index("::-1")
  else if (v.view === "broadcast") a = a.broadcastTo(v.to as number[])
  return a
}

function exactComplex(data: Float32Array, otherwise: mx.Array): mx.Array {
  const list: mx.Complex[] = []
  for (let i = 0; i < data.length; i += 2) list.push(mx.complex(data[i], data[i + 1]))
  return list.length > 0 ? mx.array(list) : otherwise
}

const number = (v: Json): number =>
  typeof v === "string" ? Number(v.replace("inf", "Infinity")) : (v as number)
const int = (v: Json): number | bigint => (typeof v === "string" ? BigInt(v) : (v as number))

/** Whether a call takes Python scalars as operands, so that their type decides the dtype. */
const OPERANDS =
  /^core\.(add|subtract|multiply|divide|floor_divide|remainder|power|pow|maximum|minimum|logaddexp|arctan2|atan2|divmod|equal|not_equal|less|less_equal|greater|greater_equal|logical_\w+|bitwise_\w+|left_shift|right_shift|clip|where|full|full_like|array_equal|isclose|allclose)$/

interface Context {
  /** What stands beside a scalar: no array, arrays without a floating one, or a floating one. */
  beside: "nothing" | "integers" | "floats" | "not an operand"
}

function decode(v: Json, context: Context): unknown {
  if (v === null || typeof v === "boolean" || typeof v === "string" || typeof v === "number") return v
  if (globalThis.Array.isArray(v)) return v.map((item) => decode(item, context))
  if (isEncodedArray(v)) return arrayOf(v)
  if ("int" in v) {
    const value = int(v.int)
    return context.beside === "nothing"
      ? mx.array(value, typeof value === "bigint" ? mx.int64 : mx.int32)
      : value
  }
  if ("float" in v) {
    const value = number(v.float)
    return context.beside === "integers" ? mx.array(value) : value
  }
  if ("re" in v) return mx.complex(number(v.re), number(v.im))
  if ("dtype" in v) return dtypeOf(v.dtype as string)
  if ("category" in v) {
    const category = (mx as unknown as Record<string, unknown>)[v.category as string]
    if (category === undefined) throw new Missing(`core.${v.category}`)
    return category
  }
  if ("file" in v) return fileOf(v.file as Record_)
  if ("index" in v) return (v.index as Record_[]).map(indexItem)
  if ("dict" in v) {
    const out: Record<string, unknown> = {}
    for (const key of Object.keys(v.dict as Record_)) out[key] = decode((v.dict as Record_)[key], context)
    return out
  }
  if ("fn" in v) return lookup(v.fn as string)
  throw new Missing(`value ${Object.keys(v).join(",")}`)
}

function fileOf(file: Record_): string {
  if (file.suffix === ".gguf") throw new Missing("core.load of gguf")
  const path = join(mkdtempSync(join(tmpdir(), "golden-")), `file${file.suffix as string}`)
  writeFileSync(path, Buffer.from(file.b64 as string, "base64"))
  return path
}

function indexItem(item: Record_): unknown {
  if ("int" in item) return item.int
  if ("slice" in item) return mx.s(...(item.slice as [number | null, number | null, number | null]))
  if ("newaxis" in item) return null
  if ("ellipsis" in item) return "..."
  if ("array" in item) return arrayOf(item.array as unknown as EncodedArray)
  if ("bool" in item) return item.bool
  if ("list" in item) return item.list
  throw new Missing(`index ${Object.keys(item).join(",")}`)
}

type Fn = (...args: unknown[]) => unknown

function lookup(name: string): Fn {
  const [space, ...rest] = name.split(".")
  const member = camel(rest.join("."))
  if (space === "array") return method(member)
  const home: unknown =
    space === "core" || space === "utils" ? mx : (mx as unknown as Record<string, unknown>)[space]
  const found = (home as Record<string, unknown> | undefined)?.[member]
  if (found === undefined) throw new Missing(name)
  if (name === "core.finfo" || name === "core.iinfo") {
    return (dtype) => {
      const info = (found as Fn)(dtype) as { min: unknown; max: unknown; eps?: unknown; dtype: unknown }
      return name === "core.finfo"
        ? [info.min, info.max, info.eps, info.dtype]
        : [info.min, info.max, info.dtype]
    }
  }
  return typeof found === "function" ? (found as Fn) : () => found
}

function method(name: string): Fn {
  if (name === "array") return (...args) => mx.array(...(args as Parameters<typeof mx.array>))
  if (name === "len") return (a) => (a as mx.Array).length
  if (name === "getitem") return (a, index) => (a as mx.Array).index(...(index as mx.IndexSpec[]))
  if (name === "setitem")
    return (a, index, value) => {
      const copy = mx.array(a as mx.Array)
      copy.set(index as mx.IndexSpec[], value as mx.Operand)
      return copy
    }
  const update = /^at([A-Z]\w*)$/.exec(name)
  if (update)
    return (a, index, value) => {
      const at = (a as mx.Array).at(...(index as mx.IndexSpec[]))
      return (at as unknown as Record<string, Fn>)[update[1].toLowerCase()](value)
    }
  if (!(name in mx.Array.prototype)) throw new Missing(`array.${name}`)
  return (a, ...args) => {
    const value = (a as Record<string, unknown>)[name]
    if (typeof value !== "function" || name === "dtype") return value
    // Python's reshape and transpose also take their numbers one by one.
    const spread = (name === "reshape" || name === "transpose") && typeof args[0] === "number"
    return (value as Fn).apply(a, spread ? [args] : args)
  }
}

const dtypeKind = (v: Json): string | null =>
  isEncodedArray(v) ? (/^(b?float|complex)/.test(v.dtype) ? "floats" : "integers") : null

function contextOf(c: { fn: string; args?: Json[] }): Context {
  if (!OPERANDS.test(c.fn)) return { beside: "not an operand" }
  const operands = c.fn === "core.where" || c.fn === "core.full" ? (c.args ?? []).slice(1) : (c.args ?? [])
  const kinds = operands.map(dtypeKind)
  const complex = operands.some((v) => typeof v === "object" && v !== null && "re" in v)
  if (kinds.includes("floats") || complex) return { beside: "floats" }
  return { beside: kinds.includes("integers") ? "integers" : "nothing" }
}

/** Python's literal types decide the dtype of `mx.array([1, 2.5])`; here they are told. */
function literalDtype(v: Json): mx.Dtype | null {
  let rank = -1
  let mixed = false
  const visit = (x: Json): void => {
    if (globalThis.Array.isArray(x)) x.forEach(visit)
    else if (typeof x === "boolean") rank = Math.max(rank, 0)
    else if (isEncodedArray(x)) mixed = true
    else if (x && typeof x === "object" && "int" in x) {
      const value = int(x.int)
      rank = Math.max(rank, typeof value === "bigint" || Math.abs(value) > 2 ** 31 - 1 ? 2 : 1)
    } else if (x && typeof x === "object" && "float" in x) rank = Math.max(rank, 3)
    else if (x && typeof x === "object" && "re" in x) rank = 4
  }
  visit(v)
  return mixed || rank < 0 ? null : [mx.bool_, mx.int32, mx.int64, mx.float32, mx.complex64][rank]
}

function call(c: { fn: string; args?: Json[]; kwargs?: Record_ }): unknown {
  const fn = lookup(c.fn)
  const context = contextOf(c)
  const args = (c.args ?? []).map((v, i) =>
    c.fn === "core.full" && i === 0 ? decode(v, { beside: "not an operand" }) : decode(v, context),
  )
  const kwargs: Record<string, unknown> = {}
  for (const key of Object.keys(c.kwargs ?? {}))
    kwargs[camel(key)] = decode((c.kwargs as Record_)[key], {
      beside: context.beside === "not an operand" ? "not an operand" : "floats",
    })
  if (c.fn === "core.arange" && JSON.stringify(c.args).includes('"float"')) kwargs.dtype ??= mx.float32
  if (c.fn === "core.broadcast_to" && typeof args[0] === "number")
    args[0] = decode((c.args as Json[])[0], { beside: "nothing" })
  if ((c.fn === "array.array" || c.fn === "core.asarray") && !("dtype" in kwargs) && args.length < 2) {
    const dtype = literalDtype((c.args as Json[])[0])
    if (dtype) kwargs.dtype = dtype
  }
  return Object.keys(kwargs).length > 0 ? fn(...args, kwargs) : fn(...args)
}

interface Host {
  dtype: string
  shape: readonly number[]
  /** Complex numbers as pairs. */
  values: (number | bigint)[]
}

function hostOf(dtype: string, shape: readonly number[], store: ArrayLike<number | bigint>): Host {
  const half = dtype === "float16" ? fromFloat16Bits : dtype === "bfloat16" ? fromBfloat16Bits : null
  const values = globalThis.Array.from(store, (v) => (half ? half(v as number) : v))
  return { dtype, shape, values }
}

const readArray = (a: mx.Array): Host =>
  hostOf(a.dtype.name.replace("bool_", "bool"), a.shape, a.toTypedArray() as unknown as ArrayLike<number>)
const readExpected = (v: EncodedArray): Host => {
  const count = v.shape.reduce((a, b) => a * b, 1)
  const store = viewStore(dtypeOf(v.dtype), bytesOf(v.b64), 0, count)
  return hostOf(v.dtype, v.shape, store as unknown as ArrayLike<number>)
}

function close(got: number, want: number, c: GoldenCase): boolean {
  if (Number.isNaN(want)) return Number.isNaN(got)
  if (c.exact || !Number.isFinite(want)) return got === want
  return Math.abs(got - want) <= c.atol + c.rtol * Math.abs(want)
}

function compareArrays(got: Host, want: Host, c: GoldenCase): string | null {
  if (got.dtype !== want.dtype) return `dtype ${got.dtype}, expected ${want.dtype}`
  if (got.shape.join() !== want.shape.join()) return `shape [${got.shape}], expected [${want.shape}]`
  const integral = !/float|complex/.test(want.dtype)
  for (let i = 0; i < want.values.length; i++) {
    const [g, w] = [got.values[i], want.values[i]]
    if (integral ? g === w : close(g as number, w as number, c)) continue
    if (want.dtype === "complex64" && !c.exact) {
      const k = i - (i % 2)
      const [a, b, x, y] = [got.values[k], got.values[k + 1], want.values[k], want.values[k + 1]] as number[]
      if (Math.hypot(a - x, b - y) <= c.atol + c.rtol * Math.hypot(x, y)) continue
    }
    return `element ${i}: ${g}, expected ${w} (rtol ${c.rtol}, atol ${c.atol})`
  }
  return null
}

function compareValue(got: unknown, want: Json, c: GoldenCase): string | null {
  if (isEncodedArray(want))
    return got instanceof mx.Array
      ? compareArrays(readArray(got), readExpected(want), c)
      : `got ${String(got)}, expected an array`
  if (want && typeof want === "object" && !globalThis.Array.isArray(want)) {
    if ("int" in want) {
      const value = int(want.int)
      return Number(got) === Number(value) ? null : `got ${String(got)}, expected ${value}`
    }
    if ("float" in want)
      return close(Number(got), number(want.float), { ...c, exact: false, rtol: 1e-7 })
        ? null
        : `got ${String(got)}, expected ${String(want.float)}`
    if ("re" in want) {
      const z = got as mx.Complex
      return close(z.re, number(want.re), c) && close(z.im, number(want.im), c) ? null : `got ${z}`
    }
    if ("dtype" in want) return got === dtypeOf(want.dtype as string) ? null : `got ${String(got)}`
    if ("dict" in want) {
      const dict = want.dict as Record_
      const keys = Object.keys((got ?? {}) as object)
      if (keys.sort().join() !== Object.keys(dict).sort().join()) return `keys ${keys}`
      for (const key of keys) {
        const problem = compareValue((got as Record<string, unknown>)[key], dict[key], c)
        if (problem) return `${key}: ${problem}`
      }
      return null
    }
  }
  if (globalThis.Array.isArray(want)) {
    if (!globalThis.Array.isArray(got) || got.length !== want.length)
      return `got ${String(got)}, expected a list`
    for (let i = 0; i < want.length; i++) {
      const problem = compareValue(got[i], want[i], c)
      if (problem) return `${i}: ${problem}`
    }
    return null
  }
  return got === want ? null : `got ${String(got)}, expected ${JSON.stringify(want)}`
}

/** `partition` and its kin are unique only up to the order within each side. */
function comparePartition(got: mx.Array, want: EncodedArray, c: GoldenCase): string | null {
  const rule = c.compare as NonNullable<GoldenCase["compare"]>
  const first = decode(c.args[0], { beside: "not an operand" }) as mx.Array
  const expected = arrayOf(want)
  const lines = (a: mx.Array): number[][] => {
    const axis = rule.axis ?? null
    const flat = axis === null ? a.flatten().reshape([1, -1]) : a.moveaxis(axis, -1)
    const n = flat.shape[flat.ndim - 1]
    return flat.reshape([-1, n]).tolist() as number[][]
  }
  if (got.dtype !== expected.dtype || got.shape.join() !== expected.shape.join()) return "shape or dtype"
  const source = rule.kind === "argpartition" ? lines(first) : null
  const [g, w] = [lines(got), lines(expected)]
  const sorted = (list: number[]): string =>
    list
      .map(Number)
      .sort((x, y) => x - y)
      .join()
  for (let i = 0; i < w.length; i++) {
    const values = (line: number[]): number[] => (source ? line.map((k) => source[i][k]) : line)
    const [a, b] = [values(g[i]), values(w[i])]
    const n = b.length
    const kth = rule.kth === undefined ? undefined : (rule.kth + n) % n
    const parts: [number, number][] =
      kth === undefined
        ? [[0, n]]
        : [
            [0, kth],
            [kth, kth + 1],
            [kth + 1, n],
          ]
    for (const [from, to] of parts)
      if (sorted(a.slice(from, to)) !== sorted(b.slice(from, to))) return `line ${i}: ${a}, expected ${b}`
  }
  return null
}

/** Replays a case. Gives null where the answer agrees, or what differs. @throws Missing when the function does not exist */
export function replay(c: GoldenCase): string | null {
  if (c.raises) {
    try {
      const result = call(c)
      mx.eval(result)
    } catch (error) {
      if (error instanceof Missing) throw error
      return error instanceof mx.LazuliError ? null : `threw ${(error as Error).stack}`
    }
    return `did not throw (${c.raises}: ${c.message ?? ""})`
  }
  if (c.seed !== undefined) (lookup("random.seed") as Fn)(c.seed)
  let got: unknown
  try {
    got = call(c)
    if (c.then) got = c.then.map(call)
    // A shape is one output.
    const list = globalThis.Array.isArray(got) && c.fn !== "core.broadcast_shapes" ? got : [got]
    const outputs = c.outputs as Json[]
    if (list.length !== outputs.length) return `${list.length} outputs, expected ${outputs.length}`
    for (let i = 0; i < outputs.length; i++) {
      const want = outputs[i]
      const problem = /^(arg)?partition$|^topk$/.test(c.compare?.kind ?? "")
        ? comparePartition(list[i] as mx.Array, want as unknown as EncodedArray, c)
        : compareValue(list[i], want, c)
      if (problem) return `output ${i}: ${problem}`
    }
  } catch (error) {
    if (error instanceof Missing) throw error
    return `threw ${error instanceof mx.LazuliError ? error.message : (error as Error).stack}`
  }
  return null
}
