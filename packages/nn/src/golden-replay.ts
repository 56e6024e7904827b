/**
 * Replays golden vectors of layers, losses, initializers, optimizers and schedules: calls recorded from MLX, with its answers, from
 * packages/conformance/golden. Test support only; it is not part of the package.
 */
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { arraysOf, forEachLeaf, viewStore, withArrays } from "@lazuli/core/engine"
import * as transforms from "@lazuli/transforms"
import * as nn from "./index"
import * as optimizers from "./optimizers"
import { fileName } from "./parameter-tree"

type Json = null | boolean | string | number | Json[] | { [key: string]: Json }
type Fields = { [key: string]: Json }
interface EncodedArray {
  dtype: string
  shape: number[]
  b64: string
  view?: string
  to?: number[]
}
interface Call {
  fn: string
  args: Json[]
  kwargs: Fields
}
interface Tolerance {
  rtol: number
  atol: number
  exact?: boolean
}
/** One recorded call. */
export interface GoldenCase extends Call, Tolerance {
  id: string
  seed?: number
  outputs?: Json[]
  raises?: string
  transform?: Fields
  call?: Call
  calls?: Call[]
  parameters?: Fields
  params?: Fields
  params_after?: Fields
  train?: boolean
  apply?: Call
  method?: string
  grad?: Tolerance & { params: Fields; inputs: Json[]; input_argnums: number[]; cotangents: Json[] }
  grads?: Json[]
  learning_rate?: Json
  state?: Fields
}

/** Thrown for a function that does not exist here. */
export class Missing extends Error {}
class Mismatch extends Error {}

const folder = fileURLToPath(new URL("../../conformance/golden", import.meta.url))

/** The cases of a family that concern this package. */
export function goldenCases(family: string): GoldenCase[] {
  const { cases } = JSON.parse(readFileSync(`${folder}/${family}.json`, "utf8")) as { cases: GoldenCase[] }
  return cases.filter((c) => /^(nn|optimizers)\./.test(c.fn))
}

const camel = (name: string): string => name.replace(/_+([a-z0-9])/g, (_, c: string) => c.toUpperCase())
const spaces: Record<string, unknown> = { core: mx, nn, optimizers }
const filters: Record<string, optimizers.ParameterFilter> = {
  "filter.ndim_ge_2": (_path, w) => w.ndim >= 2,
  "filter.name_has_b": (path) => path.includes("b"),
}

type Fn = (...args: unknown[]) => unknown
function lookup(name: string): Fn {
  if (name in filters) return filters[name] as Fn
  const [space, ...rest] = name.split(".")
  let found = spaces[space]
  for (const part of rest) found = (found as Record<string, unknown> | undefined)?.[camel(part)]
  if (found === undefined) throw new Missing(name)
  return found as Fn
}

/** Calls a function or makes an instance of a class: classes begin with a capital. */
function invoke({ fn, args, kwargs }: Call): unknown {
  const found = lookup(fn)
  const all = [...args.map(decode), ...named(kwargs)]
  const name = fn.split(".").pop() as string
  return /^[A-Z]/.test(name) && found.prototype
    ? new (found as unknown as new (...a: unknown[]) => unknown)(...all)
    : found(...all)
}
function named(kwargs: Fields): unknown[] {
  const keys = Object.keys(kwargs)
  return keys.length > 0 ? [Object.fromEntries(keys.map((key) => [camel(key), decode(kwargs[key])]))] : []
}

const isEncoded = (v: unknown): v is EncodedArray => typeof v === "object" && v !== null && "b64" in v
const dtypeOf = (name: string): mx.Dtype => (mx as unknown as Record<string, mx.Dtype>)[name]

function arrayOf(v: EncodedArray): mx.Array {
  const bytes = new Uint8Array(Buffer.from(v.b64, "base64")).buffer
  const count = v.shape.reduce((a, b) => a * b, 1)
  const dtype = dtypeOf(v.dtype)
  const a = mx.array(viewStore(dtype, bytes, 0, count), dtype).reshape(v.shape)
  if (v.view === "transpose") return a.transpose()
  if (v.view === "stride2") return a.index("...", "::2")
  if (v.view === "reversed") return a.index("::-1")
  return v.view === "broadcast" ? a.broadcastTo(v.to as number[]) : a
}

const number = (v: Json): number =>
  typeof v === "string" ? Number(v.replace("inf", "Infinity")) : (v as number)

function decode(v: Json): unknown {
  if (v === null || typeof v !== "object") return v
  if (Array.isArray(v)) return v.map(decode)
  if (isEncoded(v)) return arrayOf(v)
  if ("int" in v) return number(v.int)
  if ("float" in v) return number(v.float)
  if ("dtype" in v) return dtypeOf(v.dtype as string)
  if ("fn" in v) return lookup(v.fn as string)
  if ("call" in v) return invoke(v.call as unknown as Call)
  if ("dict" in v)
    return Object.fromEntries(Object.entries(v.dict as Fields).map(([key, child]) => [key, decode(child)]))
  throw new Missing(`value ${Object.keys(v)}`)
}

const host = (a: mx.Array): number[] =>
  Array.from(
    (a.dtype.size === 2 && a.dtype.kind === "floating" ? a.astype(mx.float32) : a).toTypedArray(),
    Number,
  )

function compare(got: unknown, want: EncodedArray, { rtol, atol, exact }: Tolerance, what: string): void {
  if (!(got instanceof mx.Array)) throw new Mismatch(`${what}: got ${String(got)}, expected an array`)
  const expected = arrayOf(want)
  if (got.dtype !== expected.dtype) throw new Mismatch(`${what}: ${got.dtype.name}, expected ${want.dtype}`)
  if (got.shape.join() !== expected.shape.join())
    throw new Mismatch(`${what}: shape [${got.shape}], expected [${expected.shape}]`)
  const [a, b] = [host(got), host(expected)]
  const loose = !exact && expected.dtype.kind === "floating"
  b.forEach((w, i) => {
    const g = a[i]
    if (Number.isNaN(w) ? Number.isNaN(g) : g === w) return
    if (loose && Number.isFinite(w) && Math.abs(g - w) <= atol + rtol * Math.abs(w)) return
    throw new Mismatch(`${what}, element ${i}: ${g}, expected ${w} (rtol ${rtol}, atol ${atol})`)
  })
}

function compareTree(got: unknown, want: Json, tolerance: Tolerance, what: string): void {
  if (isEncoded(want)) compare(got, want, tolerance, what)
  else if (Array.isArray(want)) {
    if (!Array.isArray(got) || got.length !== want.length)
      throw new Mismatch(`${what}: expected a list of ${want.length}, got ${String(got)}`)
    want.forEach((child, i) => compareTree(got[i], child, tolerance, `${what}.${i}`))
  } else if (want && typeof want === "object" && "dict" in want) {
    const dict = want.dict as Fields
    const keys = Object.keys((got ?? {}) as object).sort()
    if (keys.join() !== Object.keys(dict).sort().join()) throw new Mismatch(`${what}: keys ${keys}`)
    for (const key of keys)
      compareTree((got as Record<string, unknown>)[key], dict[key], tolerance, `${what}.${key}`)
  } else if (got !== want) throw new Mismatch(`${what}: got ${String(got)}, expected ${String(want)}`)
}

/** The arrays of a tree under the names they have in files. */
function namedArrays(tree: unknown, rename: (segment: string) => string): Record<string, mx.Array> {
  const out: Record<string, mx.Array> = {}
  forEachLeaf(tree, (leaf, path) => {
    if (leaf instanceof mx.Array) out[path.split(".").map(rename).join(".")] = leaf
  })
  return out
}

function compareNamed(got: Record<string, mx.Array>, want: Fields, tolerance: Tolerance, what: string): void {
  const keys = Object.keys(got).sort()
  if (keys.join() !== Object.keys(want).sort().join())
    throw new Mismatch(`${what}: has ${keys}, expected ${Object.keys(want).sort()}`)
  for (const key of keys) compare(got[key], want[key] as unknown as EncodedArray, tolerance, `${what} ${key}`)
}

const listed = (v: unknown): unknown[] => (Array.isArray(v) ? v : [v])

function replayLayer(c: GoldenCase): unknown[] {
  mx.random.seed(c.seed ?? 0)
  const made = invoke(c) as nn.Module
  if (c.parameters) {
    compareNamed(namedArrays(made.parameters(), fileName), c.parameters, c, "parameters")
    return []
  }
  if (c.params)
    made.loadWeights(
      Object.entries(c.params).map(([key, value]) => [key, decode(value) as mx.Array] as const),
    )
  const { call } = c
  if (!call) return []
  const forward = (args: unknown[]): mx.Array[] => {
    let model: nn.Module = made
    if (c.train !== undefined) model.train(c.train)
    if (c.apply) {
      const options = named(c.apply.kwargs)
      if (c.apply.fn.includes(".")) lookup(c.apply.fn)(model, ...options)
      else {
        const method = (model as unknown as Record<string, Fn | undefined>)[camel(c.apply.fn)]
        if (!method) throw new Missing(`${c.fn}.${c.apply.fn}`)
        model = method.apply(model, options) as nn.Module
      }
    }
    if (c.seed !== undefined) mx.random.seed(c.seed)
    const method = (model as unknown as Record<string, Fn | undefined>)[camel(c.method ?? "forward")]
    if (!method) throw new Missing(`${c.fn}.${c.method}`)
    return arraysOf(method.apply(model, [...args, ...named(call.kwargs)]))
  }
  const args = call.args.map(decode)
  const outputs = forward(args)
  mx.eval(outputs)
  if (c.params_after)
    compareNamed(namedArrays(made.parameters(), fileName), c.params_after, c, "parameters after")
  const { grad } = c
  if (grad) {
    const cotangents = grad.cotangents.map(decode) as mx.Array[]
    const loss = (parameters: object, inputs: mx.Array[]): mx.Array => {
      made.update(parameters)
      const all = args.slice()
      grad.input_argnums.forEach((position, i) => {
        all[position] = inputs[i]
      })
      return forward(all)
        .map((y, i) => y.multiply(cotangents[i]).sum())
        .reduce((a, b) => a.add(b))
    }
    const inputs = grad.input_argnums.map((i) => args[i] as mx.Array)
    const [byParameters, byInputs] = transforms.grad((both: [object, mx.Array[]]) => loss(...both))([
      made.trainableParameters(),
      inputs,
    ]) as [object, mx.Array[]]
    compareNamed(namedArrays(byParameters, fileName), grad.params, grad, "gradient of")
    grad.inputs.forEach((want, i) =>
      compare(byInputs[i], want as unknown as EncodedArray, grad, `gradient of input ${i}`),
    )
  }
  return outputs
}

function replayOptimizer(c: GoldenCase): unknown[] {
  const optimizer = invoke(c) as optimizers.Optimizer
  let parameters = decode(c.params as Json) as object
  ;(c.grads as Json[]).forEach((gradients, i) => {
    parameters = optimizer.applyGradients(decode(gradients) as object, parameters)
    mx.eval(parameters, optimizer.state)
    const want = c.params_after?.[i + 1]
    if (want !== undefined) compareTree(parameters, want, c, `parameters after ${i + 1}`)
  })
  if (c.learning_rate)
    compare(optimizer.learningRate, c.learning_rate as unknown as EncodedArray, c, "learning rate")
  const state = namedArrays(optimizer.state, (segment) => segment)
  for (const [key, want] of Object.entries(c.state ?? {}))
    compare(state[key], want as unknown as EncodedArray, c, `state ${key}`)
  return []
}

function replayTransform(c: GoldenCase): unknown[] {
  const t = c.transform as Fields
  const all = c.args.map(decode)
  const leaves = arraysOf(all)
  const chosen = (t.argnums as number[] | undefined) ?? leaves.map((_, i) => i)
  const options = named(c.kwargs)
  const f = lookup(c.fn)
  let g = (...xs: mx.Array[]): mx.Array[] => {
    const full = leaves.slice()
    chosen.forEach((position, i) => {
      full[position] = xs[i]
    })
    return arraysOf(f(...(withArrays(all, full) as unknown[]), ...options))
  }
  if (t.wrap === "checkpoint") g = transforms.checkpoint(g)
  else if (t.wrap === "compile") g = compile(g)
  const x = chosen.map((i) => leaves[i])
  const given = (name: string): mx.Array[] => (t[name] as Json[]).map(decode) as mx.Array[]
  const total = (...y: mx.Array[]): mx.Array =>
    g(...y)
      .map((out) => out.sum())
      .reduce((a, b) => a.add(b))
  const every = x.map((_, i) => i)
  const grads =
    (h: (...y: mx.Array[]) => mx.Array) =>
    (...y: mx.Array[]): mx.Array[] =>
      listed(transforms.grad(h, { argnums: every })(...y)) as mx.Array[]
  const dot = (a: mx.Array[], b: mx.Array[]): mx.Array =>
    b.map((w, i) => a[i].multiply(w).sum()).reduce((p, q) => p.add(q), mx.array(0))
  switch (t.kind) {
    case "compile":
      return compile(g)(...x)
    case "vjp":
      return transforms.vjp(g, x, given("cotangents"))[1] as unknown[]
    case "jvp":
      return transforms.jvp(g, x, given("tangents"))[1] as unknown[]
    case "jvp_of_vjp": {
      const cotangents = given("cotangents")
      const inner = (...y: mx.Array[]) => transforms.vjp(g, y, cotangents)[1] as mx.Array[]
      return transforms.jvp(inner, x, given("tangents"))[1] as unknown[]
    }
    case "jvp_jvp": {
      const tangents = given("tangents")
      const inner = (...y: mx.Array[]) => transforms.jvp(g, y, tangents)[1] as mx.Array[]
      return transforms.jvp(inner, x, given("tangents2"))[1] as unknown[]
    }
    case "grad_grad": {
      const weights = given("weights")
      const first = grads((...y) => dot(g(...y), weights.slice(0, 1)))
      return grads((...y) => dot(first(...y), weights.slice(1)))(...x)
    }
    case "value_and_grad":
      return [total(...x), ...grads(total)(...x)]
    case "vmap": {
      const [inAxes, outAxes] = [t.in_axes, t.out_axes] as [(number | null)[], number | number[]]
      const axes = { inAxes, outAxes: Array.isArray(outAxes) ? outAxes : [outAxes] }
      return listed(transforms.vmap(g, axes)(...x))
    }
    case "vmap_vmap": {
      const [outer, inner] = t.in_axes as (number | null)[][]
      const [outAxes, innerOut] = t.out_axes as (number | number[])[]
      const one = transforms.vmap(g, { inAxes: inner, outAxes: listed(innerOut) as number[] })
      return listed(transforms.vmap(one, { inAxes: outer, outAxes: listed(outAxes) as number[] })(...x))
    }
    case "vmap_grad":
      return listed(transforms.vmap(grads(total), { inAxes: t.in_axes as (number | null)[] })(...x))
    default:
      throw new Missing(`transform ${String(t.kind)}`)
  }
}

function outputsOf(c: GoldenCase): unknown[] {
  if (c.transform) return replayTransform(c)
  if (c.grads) return replayOptimizer(c)
  if (c.fn.startsWith("nn.") && !c.fn.startsWith("nn.init.") && (c.call || c.parameters))
    return replayLayer(c)
  const { call, calls } = c
  if (c.seed !== undefined) mx.random.seed(c.seed)
  const result = invoke(c)
  if (call) return listed((result as Fn)(...call.args.map(decode), ...named(call.kwargs)))
  if (calls)
    return calls.map(({ args }) =>
      mx.array((result as Fn)(...args.map(decode)) as mx.Array).astype(mx.float32),
    )
  return listed(result)
}

/** Replays a case. Gives null where the answer agrees, or what differs. @throws Missing when the function does not exist */
export function replay(c: GoldenCase): string | null {
  try {
    const outputs = outputsOf(c)
    if (c.raises) {
      mx.eval(outputs)
      return `did not throw (${c.raises})`
    }
    const want = c.outputs ?? []
    if (outputs.length !== want.length)
      throw new Mismatch(`${outputs.length} outputs, expected ${want.length}`)
    want.forEach((w, i) => compareTree(outputs[i], w, c, `output ${i}`))
    return null
  } catch (error) {
    if (error instanceof Missing) throw error
    if (error instanceof Mismatch) return error.message
    if (error instanceof mx.LazuliError) return c.raises ? null : `threw ${error.message}`
    return `threw ${(error as Error).stack}`
  }
}
