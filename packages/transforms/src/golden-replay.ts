/**
 * Replays golden vectors of transforms: derivatives and batches of recorded calls, with MLX's answers. Reads the files of
 * packages/conformance/golden. Test support only; it is not part of the package.
 */
import { readFileSync } from "node:fs"
import * as mx from "@lazuli/core"
import { viewStore } from "@lazuli/core/engine"
import { checkpoint, grad, jvp, valueAndGrad, vjp, vmap } from "./index"

type Json = null | boolean | string | number | Json[] | { [key: string]: Json }
type JsonObject = { [key: string]: Json }
type EncodedArray = { dtype: string; shape: number[]; b64: string; view?: string; to?: number[] }
type Fn = (...args: unknown[]) => unknown
type ArrayFn = (...leaves: mx.Array[]) => mx.Array[]

interface TransformSpec {
  kind: string
  argnums?: number[]
  cotangents?: EncodedArray[]
  tangents?: EncodedArray[]
  tangents2?: EncodedArray[]
  weights?: EncodedArray[]
  in_axes?: (number | null)[] | (number | null)[][]
  out_axes?: number | number[] | (number | number[])[]
  wrap?: string
}

/** One recorded call under a transform. */
export interface TransformCase {
  id: string
  fn: string
  args: Json[]
  kwargs: JsonObject
  transform: TransformSpec
  outputs: EncodedArray[]
  rtol: number
  atol: number
  exact: boolean
  tags?: string[]
}

/** Thrown for what does not exist here. */
export class Missing extends Error {}

/** The cases of a family. */
export function transformCases(family: string): TransformCase[] {
  const file = new URL(`../../conformance/golden/${family}.json`, import.meta.url)
  return (JSON.parse(readFileSync(file, "utf8")) as { cases: TransformCase[] }).cases
}

const camel = (name: string): string =>
  name.replace(/_+([a-z0-9])/g, (_, c: string) => c.toUpperCase()).replace(/_$/, "")
const dtypeOf = (name: string): mx.Dtype => (mx as unknown as Record<string, mx.Dtype>)[name]
const isArray = (v: Json): v is JsonObject & EncodedArray =>
  typeof v === "object" && v !== null && !globalThis.Array.isArray(v) && "b64" in v

/** A recorded array. */
export function arrayOf(v: EncodedArray): mx.Array {
  const bytes = Uint8Array.from(Buffer.from(v.b64, "base64")).buffer
  const count = v.shape.reduce((a, b) => a * b, 1)
  const dtype = dtypeOf(v.dtype)
  const store = viewStore(dtype, bytes, 0, count)
  let a: mx.Array
  if (dtype === mx.complex64) {
    const parts: mx.Complex[] = []
    for (let i = 0; i < count; i++) parts.push(mx.complex(store[2 * i] as number, store[2 * i + 1] as number))
    a = count > 0 ? mx.array(parts) : mx.zeros([0], mx.complex64)
  } else a = mx.array(store, dtype)
  a = a.reshape(v.shape)
  if (v.view === "transpose") return a.transpose()
  if (v.view === "stride2") return a.index("...", "::2")
  if (v.view === "reversed") return a.index("::-1")
  if (v.view === "broadcast") return a.broadcastTo(v.to as number[])
  return a
}

const toNumber = (v: Json): number =>
  typeof v === "string" ? Number(v.replace("inf", "Infinity")) : (v as number)

function indexItem(item: JsonObject): unknown {
  if ("int" in item) return item.int
  if ("slice" in item) return mx.s(...(item.slice as [number | null, number | null, number | null]))
  if ("newaxis" in item) return null
  if ("ellipsis" in item) return "..."
  if ("array" in item) return arrayOf(item.array as unknown as EncodedArray)
  throw new Missing(`index ${Object.keys(item)}`)
}

/** A recorded value; arrays in `args` are taken from `leaves`, in order. */
function decode(v: Json, leaves: (() => mx.Array) | null): unknown {
  if (v === null || typeof v !== "object") return v
  if (globalThis.Array.isArray(v)) return v.map((item) => decode(item, leaves))
  if (isArray(v)) return leaves ? leaves() : arrayOf(v)
  if ("int" in v) return toNumber(v.int)
  if ("float" in v) return toNumber(v.float)
  if ("re" in v) return mx.complex(toNumber(v.re), toNumber(v.im))
  if ("dtype" in v) return dtypeOf(v.dtype as string)
  if ("index" in v) return (v.index as JsonObject[]).map(indexItem)
  throw new Missing(`value ${Object.keys(v)}`)
}

function leavesOf(v: Json): mx.Array[] {
  if (globalThis.Array.isArray(v)) return v.flatMap(leavesOf)
  return v !== null && typeof v === "object" && isArray(v) ? [arrayOf(v)] : []
}

/** Where recorded function names are looked up, by the part before the dot; `compile` is what wraps compiled cases. */
export type Spaces = Readonly<Record<string, unknown>> & { readonly compile?: (f: ArrayFn) => ArrayFn }

function lookup(name: string, spaces: Spaces): Fn {
  const [space, ...rest] = name.split(".")
  if (space === "array") return method(camel(rest.join(".")))
  let found: unknown = spaces[space]
  for (const part of rest) found = (found as Record<string, unknown> | undefined)?.[camel(part)]
  if (typeof found !== "function") throw new Missing(name)
  return found as Fn
}

function method(name: string): Fn {
  if (name === "getitem") return (a, index) => (a as mx.Array).index(...(index as mx.IndexSpec[]))
  if (name === "setitem")
    return (a, index, value) => {
      const copy = mx.array(a as mx.Array)
      copy.set(index as mx.IndexSpec[], value as mx.Operand)
      return copy
    }
  const update = /^at([A-Z]\w*)$/.exec(name)?.[1].toLowerCase()
  if (update)
    return (a, index, value) =>
      ((a as mx.Array).at(...(index as mx.IndexSpec[])) as unknown as Record<string, Fn>)[update](value)
  throw new Missing(`array.${name}`)
}

/** The call as a function of all its leaves. */
function functionOf(c: TransformCase, spaces: Spaces): ArrayFn {
  const fn = lookup(c.fn, spaces)
  return (...leaves) => {
    let next = 0
    const args = c.args.map((v) => decode(v, () => leaves[next++]))
    const kwargs = Object.fromEntries(
      Object.entries(c.kwargs).map(([key, v]) => [camel(key), decode(v, null)]),
    )
    const result = Object.keys(kwargs).length > 0 ? fn(...args, kwargs) : fn(...args)
    return (globalThis.Array.isArray(result) ? result : [result]) as mx.Array[]
  }
}

const total = (arrays: readonly mx.Array[]): mx.Array => arrays.map((a) => a.sum()).reduce((a, b) => a.add(b))
const weighted = (a: mx.Array, weight: mx.Array): mx.Array => a.multiply(weight).sum()
const everything = (leaves: readonly mx.Array[]): { argnums: number[] } => ({
  argnums: leaves.map((_, i) => i),
})
const asList = (grads: unknown): mx.Array[] =>
  (globalThis.Array.isArray(grads) ? grads : [grads]) as mx.Array[]

function run(c: TransformCase, spaces: Spaces): mx.Array[] {
  const all = c.args.flatMap(leavesOf)
  const spec = c.transform
  const chosen = spec.argnums ?? all.map((_, i) => i)
  const call = functionOf(c, spaces)
  let f: ArrayFn = (...xs) => {
    const full = all.slice()
    chosen.forEach((n, i) => {
      full[n] = xs[i]
    })
    return call(...full)
  }
  if (spec.wrap === "checkpoint") f = checkpoint(f)
  else if (spec.wrap === "compile" && spaces.compile) f = spaces.compile(f)
  else if (spec.wrap) throw new Missing(`wrap ${spec.wrap}`)
  const xs = chosen.map((n) => all[n])
  const arrays = (list: EncodedArray[] | undefined): mx.Array[] => (list ?? []).map(arrayOf)
  switch (spec.kind) {
    case "compile":
      if (!spaces.compile) throw new Missing("transform compile")
      return spaces.compile(f)(...xs)
    case "vjp":
      return vjp(f, xs, arrays(spec.cotangents))[1]
    case "jvp":
      return jvp(f, xs, arrays(spec.tangents))[1]
    case "vmap":
      return vmap(f, { inAxes: spec.in_axes as number[], outAxes: spec.out_axes as number })(...xs)
    case "vmap_vmap": {
      const [outer, inner] = spec.in_axes as number[][]
      const [outOuter, outInner] = spec.out_axes as number[]
      return vmap(vmap(f, { inAxes: inner, outAxes: outInner }), { inAxes: outer, outAxes: outOuter })(...xs)
    }
    case "value_and_grad": {
      const [value, grads] = valueAndGrad((...ys: mx.Array[]) => total(f(...ys)), everything(xs))(...xs)
      return [value, ...asList(grads)]
    }
    case "vmap_grad":
      return asList(
        vmap(
          (...ys: mx.Array[]) => asList(grad((...zs: mx.Array[]) => total(f(...zs)), everything(xs))(...ys)),
          {
            inAxes: spec.in_axes as number[],
            outAxes: (spec.out_axes ?? 0) as number,
          },
        )(...xs),
      )
    case "grad_grad": {
      const [first, ...others] = arrays(spec.weights)
      const inner = grad((...zs: mx.Array[]) => weighted(f(...zs)[0], first), everything(xs))
      const outer = (...ys: mx.Array[]): mx.Array =>
        total(asList(inner(...ys)).map((g, i) => weighted(g, others[i])))
      return asList(grad(outer, everything(xs))(...xs))
    }
    case "jvp_of_vjp":
      return jvp((...ys: mx.Array[]) => vjp(f, ys, arrays(spec.cotangents))[1], xs, arrays(spec.tangents))[1]
    case "jvp_jvp":
      return jvp((...ys: mx.Array[]) => jvp(f, ys, arrays(spec.tangents))[1], xs, arrays(spec.tangents2))[1]
    default:
      throw new Missing(`transform ${spec.kind}`)
  }
}

function compare(got: mx.Array, want: mx.Array, c: TransformCase): string | null {
  if (got.dtype !== want.dtype) return `dtype ${got.dtype.name}, expected ${want.dtype.name}`
  if (got.shape.join() !== want.shape.join()) return `shape [${got.shape}], expected [${want.shape}]`
  const values = (a: mx.Array): number[] => {
    const parts = a.dtype === mx.complex64 ? mx.stack([a.real, a.imag], -1) : a
    return globalThis.Array.from(parts.astype(mx.float64).toTypedArray() as Float64Array)
  }
  const [g, w] = [values(got), values(want)]
  const step = got.dtype === mx.complex64 ? 2 : 1
  const exact = c.exact || want.dtype.kind === "bool" || /signed/.test(want.dtype.kind)
  for (let i = 0; i < w.length; i += step) {
    const pairs = [i, i + step - 1]
    if (pairs.every((k) => Object.is(g[k], w[k]) || (g[k] === w[k] && !exact))) continue
    const distance = Math.hypot(...(step === 2 ? pairs.map((k) => g[k] - w[k]) : [g[i] - w[i]]))
    const size = Math.hypot(...(step === 2 ? pairs.map((k) => w[k]) : [w[i]]))
    if (!exact && distance <= c.atol + c.rtol * size) continue
    if (exact && g[i] === w[i]) continue
    return `element ${i / step}: ${g[i]}, expected ${w[i]} (rtol ${c.rtol}, atol ${c.atol})`
  }
  return null
}

/** Replays a case. Gives null where the answer agrees, or what differs. @throws Missing where a function does not exist */
export function replay(c: TransformCase, spaces: Spaces): string | null {
  try {
    const got = run(c, spaces)
    if (got.length !== c.outputs.length) return `${got.length} outputs, expected ${c.outputs.length}`
    for (let i = 0; i < got.length; i++) {
      const problem = compare(got[i], arrayOf(c.outputs[i]), c)
      if (problem) return `output ${i}: ${problem}`
    }
    return null
  } catch (error) {
    if (error instanceof Missing) throw error
    return `threw ${error instanceof mx.LazuliError ? error.message : (error as Error).stack}`
  }
}
