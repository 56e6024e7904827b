/**
 * `definePrimitive`: validates a definition, registers it under a unique name, and returns the function that applies it. Also the programs
 * and decompositions that are derived from scalar semantics. It is long because every part of a definition is validated separately.
 */
import { calls, nameCall } from "./calls"
import { copiesHint, takenHint } from "./copies"
import { type Dtype, isDtype } from "./dtype"
import { ArgumentError, describe, nearest, RegistryError, TransformError } from "./errors"
import {
  type Array,
  Array as ArrayClass,
  applyNode,
  applyNodes,
  boundPending,
  type Meta,
  type Node,
  Primitive,
  type PrimitiveFacts,
  type PrimitiveRules,
} from "./graph"
import {
  type AnyParams,
  checkParams,
  checkSchema,
  NO_PARAMS,
  type ParamSchema,
  type ParamsOf,
  paramsKey,
} from "./params"
import {
  binaryOps,
  ProgramBuilder,
  type ScalarOps,
  type ScalarProgram,
  type ScalarValue,
  unaryOps,
} from "./scalar-program"

/** The version of the plugin API: definitions written for another version are rejected. */
export const PLUGIN_API = 1

/** The definition of a primitive: name, parameters, semantics, and those rules that cannot be derived (efficiently). */
export type PrimitiveDefinition<S extends ParamSchema> = {
  /** Unqualified for core, `<npm package>/<name>` for other packages. */
  readonly name: string
  /** Names and types of the parameters. */
  readonly params?: S
  /** Properties used by engines. */
  readonly facts?: PrimitiveFacts
  /** The version of its package, recorded in exported programs. */
  readonly version?: string
  /** The plugin API it was written for; `mx.PLUGIN_API` by default. */
  readonly api?: number
  /** The npm names of other packages that may provide kernels for it; `"*"` allows any. Its own package always may. */
  readonly kernelsFrom?: readonly string[] | "*"
} & PrimitiveRules<ParamsOf<S>>

/** The type of the parameters of primitives without parameters. */
export type NoParams = Record<never, never>

/** Applies a primitive to arrays; use `all` for primitives with several outputs. */
export interface Apply<P> {
  (inputs: readonly Array[], params?: P): Array
  /** All outputs. */
  all(inputs: readonly Array[], params?: P): Array[]
  /** The registered primitive. */
  readonly primitive: Primitive
}

const registry = new Map<string, Primitive>()
const sourceOf = (name: string): string =>
  name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "@lazuli/core"

/** Errors with the stacks of registrations by other packages; only formatted if something is wrong. */
const registrants = new Map<string, Error>()

/** The package that registered a primitive, as {@link registrant} gives it. */
const registrantOf = (name: string): string | null => registrant(registrants.get(name))

/** The file that registered a package's primitive; null if it is not in an installed package. */
export const registrantFile = (name: string): string | null =>
  /\((.*)\)$/.exec(registrantOf(name) ?? "")?.[1] ?? null

/** The packages that may provide kernels for another package's primitive. */
const allowed = new Map<string, readonly string[] | "*">()

/** @throws RegistryError if a package provides kernels for another package's primitive without permission */
export function checkBringer(from: string, primitives: Iterable<string>): void {
  for (const name of primitives) {
    const others = allowed.get(name)
    if (sourceOf(name) === from || others === "*" || others?.includes(from)) continue
    throw new RegistryError(
      "provideKernels",
      `${from} provides a kernel for ${name}, a primitive of ${sourceOf(name)}`,
      {
        hint: `A package may only provide kernels for its own primitives, unless their definition has kernelsFrom: ["${from}"]`,
      },
    )
  }
}

/** The calling package according to a stack: `<package> (<file>)`, or null if the file is not in an installed package. */
function registrant(error: Error | undefined): string | null {
  for (const line of error?.stack?.split("\n").slice(1) ?? []) {
    if (/^\s*at (\w+\.)?(checkDefinition|definePrimitive)\d* /.test(line)) continue
    const file = /\(?((?:file:\/\/)?(?:\/|[A-Za-z]:[\\/])[^()]*?):\d+:\d+\)?$/
      .exec(line)?.[1]
      .replace("file://", "")
    const installed = file && /^.*[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+)[\\/]/.exec(file)?.[1]
    return installed ? `${installed} (${file})` : null
  }
  return null
}

/**
 * Registers a primitive and returns the function that applies it.
 *
 * @throws RegistryError if the name is malformed or taken, or the definition does not have exactly one kind of semantics
 */
export function definePrimitive<const S extends ParamSchema = Record<never, never>>(
  definition: PrimitiveDefinition<S>,
): Apply<ParamsOf<S>> {
  if (typeof (definition as unknown) !== "object" || definition === null)
    throw new ArgumentError("definePrimitive", `expected a definition, received ${describe(definition)}`)
  const { name, params = {} as S, facts = {}, api = PLUGIN_API, version = null } = definition
  checkDefinition(definition as PrimitiveDefinition<ParamSchema>, api)
  const primitive = new Primitive(
    name,
    registry.size,
    params,
    uniformRules(checkedRules(name, definition as unknown as PrimitiveRules<AnyParams>)),
    uniformFacts(facts),
    sourceOf(name),
    version,
  )
  registry.set(name, primitive)
  const check = primitive.source !== "@lazuli/core"
  if (check) registrants.set(name, new Error())
  if (definition.kernelsFrom) allowed.set(name, definition.kernelsFrom)
  const apply = (inputs: readonly Array[], values?: AnyParams): Array => {
    if (check) checkApplication(name, params, inputs, values)
    if (calls.recorder !== null) return calls.recorder.call(`primitive ${name}`, apply, [inputs, values])
    if (check) return new ArrayClass(applyOne(primitive, nodesOf(inputs), values ?? NO_PARAMS))
    return new ArrayClass(applyNode(primitive, nodesOf(inputs), values ?? NO_PARAMS))
  }
  const all = (inputs: readonly Array[], values?: AnyParams): Array[] => {
    if (check) checkApplication(name, params, inputs, values)
    if (calls.recorder !== null)
      return calls.recorder.call(`primitive ${name}, all outputs`, all, [inputs, values])
    boundPending()
    return applyNodes(primitive, nodesOf(inputs), values ?? NO_PARAMS).map((node) => new ArrayClass(node))
  }
  // A primitive that contains a program or a function cannot be called from files. Core's primitives are called through core's functions,
  // which validate arguments.
  const isData =
    check && !facts.opaque && !Object.values(params).some((type) => type === "program" || type === "function")
  if (isData) {
    nameCall(`primitive ${name}`, stored(name, apply), version)
    nameCall(`primitive ${name}, all outputs`, stored(name, all), version)
  }
  apply.all = all
  apply.primitive = primitive
  return apply as Apply<ParamsOf<S>>
}

/** Applies another package's primitive of one output. */
function applyOne(primitive: Primitive, inputs: readonly Node[], params: AnyParams): Node {
  boundPending()
  const outputs = applyNodes(primitive, inputs, params)
  if (outputs.length === 1) return outputs[0]
  for (const input of inputs) input.uses--
  throw new ArgumentError(primitive.name, `has ${outputs.length} outputs, expected a primitive with one`, {
    hint: "Use `all(inputs, params)` of the same function",
  })
}

/** The function that programs in files call: it validates its arguments. */
function stored(name: string, apply: (inputs: readonly Array[], values?: AnyParams) => unknown) {
  return (inputs: readonly Array[], values?: AnyParams, ...more: unknown[]): unknown => {
    const isParams = values === undefined || (typeof values === "object" && values !== null)
    if (!globalThis.Array.isArray(inputs) || !inputs.every((x) => x instanceof ArrayClass) || !isParams)
      throw new RegistryError(name, "takes a list of arrays, and parameters by name")
    if (more.length > 0) throw new RegistryError(name, "takes only inputs and parameters")
    return apply(inputs, values)
  }
}

/** All primitives' rules have one object shape (hidden class), so that the engine's reads stay monomorphic. */
function uniformRules(rules: PrimitiveRules<AnyParams>): PrimitiveRules<AnyParams> {
  const {
    infer,
    scalar,
    decompose,
    reference,
    view,
    partials,
    vjp,
    jvp,
    vmap,
    rows,
    plan,
    planForStrides,
    expand,
    undo,
  } = rules
  return {
    infer,
    scalar,
    decompose,
    reference,
    view,
    partials,
    vjp,
    jvp,
    vmap,
    rows,
    plan,
    planForStrides,
    expand,
    undo,
  }
}
function uniformFacts(facts: PrimitiveFacts): PrimitiveFacts {
  const { immediate, broadcasts, keepsOrder, stopsGradient, opaque, ambiguous, along, places } = facts
  const { exchanges, perExample } = facts
  return {
    immediate,
    broadcasts,
    keepsOrder,
    stopsGradient,
    opaque,
    ambiguous,
    along,
    places,
    exchanges,
    perExample,
  }
}

/** Packages whose `infer` results are not validated, to save time in every call of a compiled function. */
const TRUSTED = new Set(["@lazuli/core", "@lazuli/compile"])

/** The rules, with validated `infer` results for other packages' primitives. */
function checkedRules(name: string, rules: PrimitiveRules<AnyParams>): PrimitiveRules<AnyParams> {
  if (TRUSTED.has(sourceOf(name))) return rules
  return { ...rules, infer: (inputs, params) => checkMetas(name, rules.infer(inputs, params)) }
}

function nodesOf(inputs: readonly Array[]): Node[] {
  const nodes = new globalThis.Array<Node>(inputs.length)
  for (let i = 0; i < inputs.length; i++) nodes[i] = inputs[i].node
  return nodes
}

function checkDefinition(definition: PrimitiveDefinition<ParamSchema>, api: number): void {
  const { name } = definition
  if (typeof name !== "string" || !/^(@[\w.-]+\/)?([\w.-]+\/)?[A-Za-z_]\w*$/.test(name)) {
    throw new RegistryError(
      "definePrimitive",
      `the name ${typeof name === "string" ? JSON.stringify(name) : describe(name)} is malformed`,
      {
        hint: 'Use "<npm package>/<name>", such as "@me/my-ops/axpby"',
      },
    )
  }
  if (api !== PLUGIN_API) {
    throw new RegistryError(
      name,
      `was written for plugin API ${api}, but the installed @lazuli/core has plugin API ${PLUGIN_API}`,
      {
        hint: `Install a version of ${sourceOf(name)} made for it, or another version of @lazuli/core`,
      },
    )
  }
  const known = registry.get(name)
  if (known) {
    throw new RegistryError(
      name,
      `is already registered by ${registrantOf(name) ?? known.source}, and ${registrant(new Error()) ?? sourceOf(name)} registers it again`,
      {
        hint: takenHint(sourceOf(name)),
      },
    )
  }
  const semantics = (["scalar", "decompose", "reference", "view"] as const).filter((m) => definition[m])
  if (semantics.length !== 1) {
    throw new RegistryError(
      name,
      `needs exactly one kind of semantics (scalar, decompose, reference or view), received ${semantics.join(" and ") || "none"}`,
    )
  }
  if (typeof definition.infer !== "function")
    throw new RegistryError(name, "needs infer, which gives the output shapes and dtypes")
  checkParts(definition)
}

const RULES = [
  "infer",
  "scalar",
  "decompose",
  "reference",
  "view",
  "partials",
  "vjp",
  "jvp",
  "vmap",
  "rows",
  "plan",
  "planForStrides",
  "expand",
  "undo",
] as const
const IS_RULE = new Set<string>(RULES)
const FACTS = new Set([
  "immediate",
  "broadcasts",
  "keepsOrder",
  "stopsGradient",
  "opaque",
  "ambiguous",
  "along",
  "places",
  "exchanges",
  "perExample",
])
const PARTS = new Set(["name", "params", "facts", "version", "api", "kernelsFrom", ...RULES])

/** Validates rules, facts and parameters, and rejects unknown properties. */
function checkParts(definition: PrimitiveDefinition<ParamSchema>): void {
  const { name, params = {}, facts = {}, version, kernelsFrom } = definition
  for (const part in definition) {
    if (!PARTS.has(part)) refuseUnknown(name, "rule or property", part, PARTS)
    const given: unknown = definition[part as keyof typeof definition]
    if (given !== undefined && typeof given !== "function" && IS_RULE.has(part))
      throw new RegistryError(name, `${part} must be a function, received ${describe(given)}`)
  }
  if (version !== undefined && version !== null && typeof version !== "string")
    throw new RegistryError(name, `version must be a string, received ${describe(version)}`)
  if (kernelsFrom !== undefined && kernelsFrom !== "*") {
    const isList = globalThis.Array.isArray(kernelsFrom) && kernelsFrom.every((x) => typeof x === "string")
    if (!isList)
      throw new RegistryError(
        name,
        `kernelsFrom must be "*" or a list of npm packages, received ${describe(kernelsFrom)}`,
      )
  }
  if (typeof (facts as unknown) !== "object" || facts === null)
    throw new RegistryError(name, `its facts must be an object, received ${describe(facts)}`)
  for (const fact in facts) {
    if (!FACTS.has(fact)) refuseUnknown(name, "fact", fact, FACTS)
    const value: unknown = facts[fact as keyof typeof facts]
    const other = fact === "exchanges" ? "derivatives" : undefined
    if (value !== undefined && typeof value !== "boolean" && value !== other)
      throw new RegistryError(
        name,
        `the fact ${fact} must be a boolean${other ? ` or "${other}"` : ""}, received ${describe(value)}`,
      )
  }
  checkSchema(name, params)
}

function refuseUnknown(name: string, what: string, key: string, known: ReadonlySet<string>): never {
  const near = nearest(key, known)
  throw new RegistryError(
    name,
    `there is no ${what} "${key}"; there are ${[...known].join(", ")}`,
    near ? { hint: `Did you mean "${near}"?` } : {},
  )
}

/** Validates the arguments of another package's primitive. */
function checkApplication(
  name: string,
  schema: ParamSchema,
  inputs: readonly Array[],
  values: AnyParams = NO_PARAMS,
): void {
  if (!globalThis.Array.isArray(inputs))
    throw new ArgumentError(name, `inputs must be a list of arrays, received ${describe(inputs)}`)
  inputs.forEach((input: unknown, i) => {
    if (!(input instanceof ArrayClass))
      throw new ArgumentError(name, `input ${i} must be an array, received ${describe(input)}`, {
        hint: "mx.array(data) makes one",
      })
  })
  if (typeof (values as unknown) !== "object" || values === null)
    throw new ArgumentError(name, `parameters must be an object, received ${describe(values)}`)
  checkParams(name, schema, values)
}

/** Validates the `infer` result of another package's primitive. */
function checkMetas(name: string, metas: Meta | readonly Meta[]): Meta | readonly Meta[] {
  const list = globalThis.Array.isArray(metas) ? (metas as readonly Meta[]) : [metas as Meta]
  if (list.length === 0) throw new RegistryError(name, "infer returned no output")
  for (const meta of list as readonly (Partial<Meta> | null | undefined)[]) {
    const { shape, dtype } = meta ?? {}
    if (
      !globalThis.Array.isArray(shape) ||
      !shape.every((n: unknown) => Number.isSafeInteger(n) && (n as number) >= 0)
    )
      throw new RegistryError(
        name,
        `infer must return a shape of non-negative integers, received ${describe(shape)}`,
      )
    if (!isDtype(dtype))
      throw new RegistryError(name, `infer must return a dtype, received ${describe(dtype)}`)
  }
  return metas
}

/** The primitive of that name. @throws RegistryError */
export function primitiveByName(name: string): Primitive {
  const primitive = registry.get(name)
  if (primitive) return primitive
  const near = nearest(name, registry.keys())
  throw new RegistryError(name, "is not a registered primitive", {
    hint: near ? `Did you mean "${near}"?` : (copiesHint() ?? "Import the package that defines it"),
  })
}

/** The description of a primitive by {@link listPrimitives}. */
export interface PrimitiveInfo {
  readonly name: string
  /** The package that registered it. */
  readonly source: string
  /** The kind of its semantics. */
  readonly semantics: "scalar" | "decompose" | "reference" | "view"
  readonly params: ParamSchema
  /** The rules in its definition; the others are derived. */
  readonly rules: readonly ("partials" | "vjp" | "jvp" | "vmap")[]
}

/**
 * All registered primitives, with the packages that define them.
 *
 * @example
 * mx.listPrimitives().find((p) => p.name === 'softmax').source
 * // => '@lazuli/core'
 */
export function listPrimitives(): PrimitiveInfo[] {
  return [...registry.values()].map(({ name, source, schema, rules }) => ({
    name,
    source,
    params: schema,
    semantics: rules.scalar
      ? "scalar"
      : rules.decompose
        ? "decompose"
        : rules.reference
          ? "reference"
          : "view",
    rules: (["partials", "vjp", "jvp", "vmap"] as const).filter((rule) => rules[rule]),
  }))
}

/** The most programs cached per primitive with parameters: fused ones are used once, casts repeatedly. */
const MAX_PROGRAMS = 256

/** The most inputs whose dtypes fit into a number. */
const MAX_CODED = 13

/** The scalar program of an elementwise node. */
export function programOf(node: Node): ScalarProgram {
  const primitive = node.primitive as Primitive
  let code: number | string = 0
  const { inputs } = node
  if (inputs.length > MAX_CODED) code = `${inputs.map(({ dtype }) => dtype.code)};`
  else for (let i = 0; i < inputs.length; i++) code = (code as number) * 16 + inputs[i].dtype.code + 1
  if (node.params === NO_PARAMS && typeof code === "number") {
    const known = primitive.programs[code]
    if (known) return known
    const program = buildProgram(node, primitive)
    primitive.programs[code] = program
    return program
  }
  const key = `${code}${paramsKey(primitive.schema, node.params)}`
  const known = primitive.programsByParams.get(key)
  if (known) return known
  const program = buildProgram(node, primitive)
  if (primitive.programsByParams.size >= MAX_PROGRAMS) primitive.programsByParams.clear()
  primitive.programsByParams.set(key, program)
  return program
}

function buildProgram(node: Node, primitive: Primitive): ScalarProgram {
  const builder = new ProgramBuilder(node.inputs.map((n) => n.dtype))
  const scalar = primitive.rules.scalar as NonNullable<PrimitiveRules<AnyParams>["scalar"]>
  const result = scalar<number>(
    builder.ops,
    node.inputs.map((_, i) => i),
    node.params,
  )
  return builder.finish(typeof result === "number" ? [result] : (result as readonly number[]))
}

let arrayOps: ScalarOps<Array> | undefined

/** Scalar operations on arrays: each instruction is the primitive of its name. */
function scalarOpsOnArrays(): ScalarOps<Array> {
  if (arrayOps) return arrayOps
  const table: Record<string, unknown> = {}
  const one = (primitive: Primitive, inputs: readonly Array[], params: AnyParams = NO_PARAMS): Array =>
    new ArrayClass(applyNode(primitive, nodesOf(inputs), params))
  for (const op of [...unaryOps, ...binaryOps]) table[op] = (...xs: Array[]) => one(primitiveByName(op), xs)
  table.select = (...xs: Array[]) => one(primitiveByName("select"), xs)
  table.cast = (x: Array, dtype: Dtype) =>
    x.dtype === dtype ? x : one(primitiveByName("cast"), [x], { dtype })
  table.constant = (value: ScalarValue, dtype: Dtype) =>
    one(primitiveByName("constant"), [], { value, dtype })
  table.dtypeOf = (x: Array) => x.dtype
  arrayOps = table as unknown as ScalarOps<Array>
  return arrayOps
}

/** Decomposes an application into other primitives, by its rule or its scalar semantics. */
export function decompose(
  primitive: Primitive,
  inputs: readonly Array[],
  params: AnyParams,
): readonly Array[] {
  const { rules } = primitive
  const result = rules.decompose
    ? rules.decompose(inputs, params)
    : rules.scalar?.(scalarOpsOnArrays(), inputs, params)
  if (result === undefined) throw new TransformError(primitive.name, "has no decomposition")
  return globalThis.Array.isArray(result) ? (result as readonly Array[]) : [result as Array]
}
