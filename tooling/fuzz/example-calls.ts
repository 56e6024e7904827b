/**
 * Calls that are right, as a start for wrong ones: those that the examples of the doc comments make. They run once, with the public
 * functions, classes and methods wrapped, so that each call from outside is written down.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as lazuli from "lazuli"
import { examplesOf, runSnippets } from "../snippets"

const { mx, nn, optim } = lazuli

/** A call from outside: of a public function, a constructor, a method, or of a function that a call gave. */
export interface Call {
  /** `mx.linalg.norm`, `new nn.Linear`, `nn.Linear.forward`, `mx.grad()`. */
  readonly name: string
  /** The names by which an error may call it. */
  readonly names: ReadonlySet<string>
  readonly args: readonly unknown[]
  /** Makes what is called, anew for each attempt. */
  readonly callee: () => Callee
}
export type Callee = (args: readonly unknown[]) => unknown
type Fn = (...args: never[]) => unknown
type AnyClass = new (...args: never[]) => object

/** Where public names are; the first that has one names it. */
const SPACES: readonly (readonly [string, Record<string, unknown>])[] = [
  ["mx", mx],
  ["mx.random", mx.random],
  ["mx.linalg", mx.linalg],
  ["mx.fft", mx.fft],
  ["mx.fast", mx.fast],
  ["mx.metal", mx.metal],
  ["mx.distributed", mx.distributed],
  ["nn", nn],
  ["nn.losses", nn.losses],
  ["nn.init", nn.init],
  ["nn.utils", nn.utils],
  ["optim", optim],
]

const isClass = (v: unknown): v is AnyClass =>
  typeof v === "function" &&
  (/^class\b/.test(Function.prototype.toString.call(v)) || v === mx.FunctionExporter)
const isDtype = (v: unknown): boolean => v instanceof mx.Dtype || v === mx.Dtype
const isPlain = (v: object): boolean =>
  Object.getPrototypeOf(v) === Object.prototype || Object.getPrototypeOf(v) === null

/** All names of each public function: aliases are one function. */
const namesOf = new Map<unknown, Set<string>>()
for (const [space, members] of SPACES)
  for (const [key, value] of Object.entries(members)) {
    if (typeof value !== "function") continue
    const short =
      space === "mx" || space === "nn" || space === "optim"
        ? key
        : `${space.slice(space.indexOf(".") + 1)}.${key}`
    const names = namesOf.get(value) ?? new Set()
    for (const name of [key, short, `${space}.${key}`]) names.add(name)
    namesOf.set(value, names)
  }

/** The number of calls of one name that are kept. */
const KEPT = 4
const calls: Call[] = []
const counts = new Map<string, number>()
/** Calls inside public functions are not from outside. */
let depth = 0
let recording = false

function record(call: Call): void {
  const count = counts.get(call.name) ?? 0
  if (count >= KEPT) return
  counts.set(call.name, count + 1)
  calls.push(call)
}

function run<T>(body: () => T): T {
  depth++
  try {
    return body()
  } finally {
    depth--
  }
}

/** Arguments as they are before the call: it may change them. */
const before = (args: readonly unknown[]): unknown[] => args.map((arg) => copied(arg))

/** Errors that functions of the user's threw: they are not the called function's. */
export const usersErrors = new WeakSet<object>()

/** A function that an example hands over, watched for its errors. */
function watched(f: Fn): Fn {
  return new Proxy(f, {
    apply(target, self, args) {
      try {
        return Reflect.apply(target, self, args)
      } catch (error) {
        if (typeof error === "object" && error !== null) usersErrors.add(error)
        throw error
      }
    },
  })
}

/** A value like another one, with handles, lists and objects of its own. */
export function copied(value: unknown): unknown {
  if (value instanceof mx.Array) return handleLike(value)
  if (typeof value === "function" && !isDtype(value) && !isClass(value) && !namesOf.has(value))
    return watched(value as Fn)
  if (Array.isArray(value)) return value.map(copied)
  if (typeof value !== "object" || value === null || !isPlain(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, copied(each)]))
}
const HandleOf = mx.Array as unknown as new (node: unknown) => lazuli.mx.Array
const handleLike = (a: lazuli.mx.Array): lazuli.mx.Array => new HandleOf(a.node)

/** The result of a call: functions that it made are called from outside too. */
function resultOf(result: unknown, call: Omit<Call, "args"> & { args: readonly unknown[] }): unknown {
  if (typeof result !== "function" || isDtype(result) || isClass(result) || namesOf.has(result)) return result
  const name = `${call.name}()`
  const made = (): Callee => {
    const f = call.callee()(before(call.args)) as Fn
    return (args) => f(...(args as never[]))
  }
  return new Proxy(result as Fn, {
    apply(f, self, args) {
      if (depth > 0 || !recording) return Reflect.apply(f, self, args)
      record({ name, names: call.names, args: before(args), callee: made })
      return run(() => Reflect.apply(f, self, args))
    },
  })
}

function wrapped(name: string, value: Fn): Fn {
  const names = namesOf.get(value) ?? new Set([name])
  if (isClass(value)) return wrappedClass(name, value, names) as unknown as Fn
  return new Proxy(value, {
    apply(f, self, args) {
      if (depth > 0 || !recording) return Reflect.apply(f, self, args)
      const call: Call = {
        name,
        names,
        args: before(args),
        callee: () => (given) => Reflect.apply(f, self, given as never[]),
      }
      record(call)
      return resultOf(
        run(() => Reflect.apply(f, self, args)),
        call,
      )
    },
  })
}

/** The makers of instances, so that attempts have one of their own. */
const origins = new WeakMap<object, () => object>()

function wrappedClass(name: string, type: AnyClass, names: ReadonlySet<string>): AnyClass {
  wrapMethods(name, type)
  return new Proxy(type, {
    construct(target, args, newTarget) {
      if (depth > 0 || !recording) return Reflect.construct(target, args, newTarget)
      const given = before(args)
      if (newTarget !== undefined)
        record({
          name: `new ${name}`,
          names,
          args: given,
          callee: () => (changed) => Reflect.construct(target, changed as never[]),
        })
      const instance = run(() => Reflect.construct(target, args, newTarget))
      origins.set(instance, () => Reflect.construct(target, before(given), newTarget))
      return instance
    },
  })
}

const wrappedPrototypes = new Set<object>()

/** Methods of a class and of those above it; once each. */
function wrapMethods(name: string, type: AnyClass): void {
  const own = name.slice(name.lastIndexOf(".") + 1)
  for (
    let proto = type.prototype as object;
    proto !== null && proto !== Object.prototype && proto !== Function.prototype;
  ) {
    if (wrappedPrototypes.has(proto)) break
    wrappedPrototypes.add(proto)
    for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(proto)))
      if (key !== "constructor" && typeof descriptor.value === "function")
        wrapMethod(name, own, proto, key, descriptor)
    proto = Object.getPrototypeOf(proto) as object
  }
}

const restores: (() => void)[] = []

function wrapMethod(
  name: string,
  own: string,
  proto: object,
  key: string,
  descriptor: PropertyDescriptor,
): void {
  const method = descriptor.value as (this: object, ...args: unknown[]) => unknown
  Object.defineProperty(proto, key, {
    ...descriptor,
    value(this: object, ...args: unknown[]) {
      if (depth > 0 || !recording) return method.apply(this, args)
      const owner = this instanceof mx.Array ? "Array" : this.constructor.name.replace(/^_+/, "")
      const origin = this instanceof mx.Array ? handleLike(this) : origins.get(this)
      const call: Call = {
        name: `${name}.${key}`,
        names: new Set([key, own, owner, `${own}.${key}`, `${owner}.${key}`]),
        args: before(args),
        callee: () => {
          const fresh =
            origin instanceof mx.Array
              ? handleLike(origin)
              : typeof origin === "function"
                ? (origin as () => object)()
                : this
          return (given) => method.apply(fresh, given as unknown[])
        },
      }
      if (origin !== undefined) record(call)
      return resultOf(
        run(() => method.apply(this, args)),
        call,
      )
    },
  })
  restores.push(() => Object.defineProperty(proto, key, descriptor))
}

const space = (prefix: string, members: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(members).map(([key, value]) => {
      const name = `${prefix}.${key}`
      if (typeof value === "function" && !isDtype(value)) return [key, wrapped(name, value as Fn)]
      return [
        key,
        SPACES.some(([known]) => known === name) ? space(name, value as Record<string, unknown>) : value,
      ]
    }),
  )

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return sources(path)
    return /\.ts$/.test(entry.name) && !/\.test(-d)?\.ts$/.test(entry.name) ? [path] : []
  })
}

/** The calls of all examples, and, for public functions that none calls, calls without arguments. */
export async function exampleCalls(): Promise<readonly Call[]> {
  const packages = fileURLToPath(new URL("../../packages", import.meta.url))
  const inside = { mx: space("mx", mx), nn: space("nn", nn), optim: space("optim", optim) }
  const bare = Object.entries(inside.mx).filter(([n]) => !(n in globalThis) && n !== "var" && n !== "eval")
  const names = { ...Object.fromEntries(bare), ...inside }
  const cwd = process.cwd()
  const folder = mkdtempSync(join(tmpdir(), "lazuli-examples-"))
  process.chdir(folder)
  recording = true
  for (const part of ["core", "transforms", "compile", "nn"])
    for (const path of sources(join(packages, part, "src")).sort())
      for (const example of examplesOf(readFileSync(path, "utf8"))) {
        if (/metalKernel\(/.test(example.code)) continue
        // An example that fails is another test's; calls up to there are as good as any.
        await runSnippets([example], { modules: { lazuli: inside }, names }).catch(() => {})
      }
  recording = false
  process.chdir(cwd)
  rmSync(folder, { recursive: true })
  for (const restore of restores) restore()
  addUncalled()
  return calls
}

/** Public functions without an example of their own. */
function addUncalled(): void {
  for (const [prefix, members] of SPACES)
    for (const [key, value] of Object.entries(members)) {
      if (typeof value !== "function" || isDtype(value)) continue
      const name = isClass(value) ? `new ${prefix}.${key}` : `${prefix}.${key}`
      if (counts.has(name)) continue
      const callee = (): Callee => (args) =>
        isClass(value) ? Reflect.construct(value, args as never[]) : (value as Fn)(...(args as never[]))
      record({ name, names: namesOf.get(value) ?? new Set([key]), args: [], callee })
    }
}
