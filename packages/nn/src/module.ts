/**
 * Module, the base class of layers and models. A module is a tree of parameters: its public fields that contain arrays, modules, or lists
 * and plain objects of them. Layers are in layers/, weight files in weights.ts. It is long because it is one class, whose methods share
 * their traversals.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  forEachLeaf,
  INSPECT,
  isList,
  isPlainObject,
  nearest,
  parametersOf,
  registerTreeNode,
  setOwn,
} from "@lazuli/core/engine"
import { aModule, check } from "./arguments"
import { type FreezeOptions, freezing, strictOf } from "./module-options"
import { fileName, type ParametersOf } from "./parameter-tree"
import { aFile, matched, type NamedParameter, weightsOf, writeWeights } from "./weights"

/** A predicate of a module's members; keys are dotted inside lists and objects. */
export type ModuleFilter = (module: Module, key: string, value: unknown) => boolean
/** Modules nested in objects and lists: the result of `children()` and argument of `updateModules()`. */
export interface ModuleTree {
  [name: string]: Module | ModuleTree | readonly (Module | ModuleTree)[]
}
/**
 * Any module with a `forward` of this type, by default from one array to another. The parameter type of functions on models, and the type
 * of fields whose layer may be replaced by one of another class.
 * @example
 * const accuracy = (model, x, y) => model.forward(x).argmax(-1).equal(y).mean()
 * accuracy(new nn.Linear(2, 3), mx.zeros([1, 2]), mx.array([5], mx.int32)).item() // => 0
 */
export interface Model<A extends unknown[] = [x: mx.Array], R = mx.Array> extends Module {
  forward(...args: A): R
}

/** A module in a traversal, and its parent. */
interface Visit {
  readonly name: string
  readonly module: Module
  readonly above: Visit | null
}

/** The fields of a module, or of an object in one. @internal */
export type Members = Record<string, unknown>
const own = (module: object): Members => module as unknown as Members

const PRIVATE = "Fields that are #private are not part of the tree"
/** The maximum depth of lists and objects in a field. */
const MAX_DEPTH = 500

/**
 * True if a value is an array or a module, or a list or plain object that contains one at any depth. Visits everything once, so that
 * subsequent traversals are known to terminate.
 * @throws ArgumentError for cyclic or too deeply nested lists and objects
 */
function holdsArrays(value: unknown): boolean {
  if (value instanceof mx.Array || value instanceof Module) return true
  return (isList(value) || isPlainObject(value)) && holdsWithin(value, new Map(), 0)
}

/** @param known - the results for lists and objects; null while one is being visited */
function holdsWithin(
  container: readonly unknown[] | Members,
  known: Map<object, boolean | null>,
  depth: number,
): boolean {
  const before = known.get(container)
  if (typeof before === "boolean") return before
  if (before === null)
    throw new ArgumentError(
      "Module",
      "a field of the module contains a list or an object that contains itself",
      {
        hint: PRIVATE,
      },
    )
  if (depth > MAX_DEPTH)
    throw new ArgumentError(
      "Module",
      `a field of the module contains more than ${MAX_DEPTH} nested lists and objects`,
      {
        hint: PRIVATE,
      },
    )
  known.set(container, null)
  let found = false
  for (const value of isList(container) ? container : Object.values(container))
    if (value instanceof mx.Array || value instanceof Module) found = true
    else if ((isList(value) || isPlainObject(value)) && holdsWithin(value, known, depth + 1)) found = true
  known.set(container, found)
  return found
}

function refuseCycle(op: string, path: string): never {
  throw new ArgumentError(op, `the module at "${path}" contains itself`, { hint: PRIVATE })
}

/** Adds a module to the current path. @throws ArgumentError if it contains itself, or is nested too deeply */
function enter(op: string, entered: Module[], module: Module, path: string): void {
  if (entered.includes(module)) refuseCycle(op, path)
  if (entered.length > MAX_DEPTH)
    throw new ArgumentError(op, `more than ${MAX_DEPTH} modules are nested`, { hint: PRIVATE })
  entered.push(module)
}

/** The names of the fields that contain arrays or modules, including private ones. */
function memberNames(module: Module): string[] {
  return Object.keys(module).filter((key) => holdsArrays(own(module)[key]))
}

const isPublic = (key: string): boolean => !key.startsWith("_")
/** @internal */
export const isContainer = (value: unknown): value is Members | unknown[] =>
  isList(value) || isPlainObject(value) || value instanceof Module

/**
 * The base of all layers and models. A subclass creates its layers and parameters as fields and defines `forward`. Fields whose names begin
 * with `_` are private and not parameters.
 *
 * @example
 * class MLP extends nn.Module {
 *   inProj = new nn.Linear(2, 8)
 *   outProj = new nn.Linear(8, 1)
 *   forward(x) { return this.outProj.forward(nn.relu(this.inProj.forward(x))) }
 * }
 * new MLP().forward(mx.ones([3, 2])).shape // => [3, 1]
 */
export class Module {
  /** @internal */
  _training = true
  /** Keys of the frozen parameters. @internal */
  _noGrad: Set<string> = new Set()

  /** True in training mode, which affects dropout and batch normalization. */
  get training(): boolean {
    return this._training
  }

  /**
   * The state to pass to `compile` as `inputs` and `outputs`: the module itself, whose arrays (including private ones) it reads and
   * replaces.
   *
   * @example
   * const layer = new nn.Linear(1, 1)
   * layer.state.bias = mx.array([7])
   * layer.bias.tolist() // => [7]
   */
  get state(): this {
    return this
  }

  /**
   * The parameters: all arrays in the public fields of this module and its submodules.
   * @example
   * Object.keys(new nn.Linear(2, 3).parameters()) // => ['weight', 'bias']
   */
  parameters(): ParametersOf<this> {
    return this.filterAndMap(holdsParameters) as ParametersOf<this>
  }

  /**
   * The parameters that are not frozen.
   * @example
   * Object.keys(new nn.Linear(2, 3).freeze({ keys: 'bias' }).trainableParameters()) // => ['weight']
   */
  trainableParameters(): ParametersOf<this> {
    return this.filterAndMap(isTrainable) as ParametersOf<this>
  }

  /**
   * The direct submodules, including those in lists and objects.
   * @example
   * Object.keys(new nn.MultiHeadAttention(4, 2).children())
   * // => ['queryProj', 'keyProj', 'valueProj', 'outProj']
   */
  children(): ModuleTree {
    return this.filterAndMap(mayHoldModules, undefined, (_m, _k, value) => isModule(value)) as ModuleTree
  }

  /** The modules without submodules, at any depth, as a tree of the model's structure. */
  leafModules(): ModuleTree {
    return this.filterAndMap(
      mayHoldModules,
      undefined,
      (_m, _k, value) => isModule(value) && modulesBelow(value).length === 0,
    ) as ModuleTree
  }

  /** This module and all submodules. */
  modules(): Module[] {
    return this.namedModules().map(([, module]) => module)
  }

  /**
   * This module and all submodules, with their dotted paths.
   * @example
   * new nn.Sequential(new nn.ReLU()).namedModules().map(([name]) => name) // => ['', 'layers.0']
   */
  namedModules(): [string, Module][] {
    const found: [string, Module][] = []
    this.applyToModules((name, module) => found.push([name, module]))
    return found
  }

  /**
   * A tree of the module's members that satisfy `filter`, each mapped by `map`. Members that satisfy `isLeaf` are mapped as a whole; by
   * default, everything but modules, lists and objects.
   */
  filterAndMap(
    filter: ModuleFilter,
    map: (value: never) => unknown = (value) => value,
    isLeaf: ModuleFilter = (_m, _k, value) => !isContainer(value),
  ): Record<string, unknown> {
    check("filterAndMap", filtering, filter, map, isLeaf)
    const entered: Module[] = []
    const unwrap = (module: Module, key: string, value: unknown): unknown => {
      if (isLeaf(module, key, value)) return map(value as never)
      if (isModule(value)) return members(value, key)
      const inside = (name: string | number, child: unknown): unknown => {
        const path = `${key}.${name}`
        return filter(module, path, child) ? unwrap(module, path, child) : {}
      }
      if (isList(value)) return value.map((child, i) => inside(i, child))
      if (isPlainObject(value))
        return Object.fromEntries(Object.keys(value).map((name) => [name, inside(name, value[name])]))
      throw new ArgumentError(
        "filterAndMap",
        `the member "${key}" is ${describe(value)}, which isLeaf does not accept`,
      )
    }
    const members = (module: Module, at: string): Record<string, unknown> => {
      enter("filterAndMap", entered, module, at)
      const out: Record<string, unknown> = {}
      for (const key of memberNames(module)) {
        const value = own(module)[key]
        if (filter(module, key, value)) setOwn(out, key, unwrap(module, key, value))
      }
      entered.pop()
      return out
    }
    return members(this, "")
  }

  /**
   * Replaces parameters by those of a tree, which may be partial.
   * @param options - `strict` (default true): unknown names, and values other than arrays, are errors
   * @example
   * new nn.Linear(1, 1).update({ bias: mx.array([3]) }).bias.tolist() // => [3]
   */
  update(parameters: object, options?: boolean | { strict?: boolean }): this {
    return this.replaceParameters("update", parameters, strictOf("update", options))
  }

  private replaceParameters(op: string, parameters: object, strict: boolean): this {
    const apply = (target: unknown, source: unknown, path: string): void => {
      if (!isContainer(source)) {
        if (strict)
          throw new ArgumentError(
            op,
            `expected a tree of parameters${path && ` for "${path}"`}, received ${describe(source)}`,
          )
        return
      }
      for (const key of keysOf(source)) {
        const at = path === "" ? key : `${path}.${key}`
        const current = memberOf(target, key)
        const value = (source as Members)[key]
        if (current instanceof mx.Array) {
          if (strict && !(value instanceof mx.Array))
            throw new ArgumentError(op, `expected an array for "${at}", received ${describe(value)}`)
          ;(target as Members)[key] = value
        } else if (isContainer(current)) apply(current, value, at)
        else if (strict && !isEmpty(value)) throw unknownName(op, "parameter", at, this.parameters())
      }
    }
    apply(this, parameters, "")
    return this
  }

  /**
   * Replaces submodules by those of a tree, which may be partial.
   * @param options - `strict` (default true): unknown names, and values other than modules, are errors
   */
  updateModules(modules: object, options?: boolean | { strict?: boolean }): this {
    const strict = strictOf("updateModules", options)
    const apply = (target: unknown, source: unknown, path: string): void => {
      if (!isContainer(source)) {
        if (strict)
          throw new ArgumentError("updateModules", `expected a tree of modules, received ${describe(source)}`)
        return
      }
      for (const key of keysOf(source)) {
        const at = path === "" ? key : `${path}.${key}`
        const current = memberOf(target, key)
        const value = (source as Members)[key]
        if (isModule(current) && isModule(value)) (target as Members)[key] = value
        else if (isContainer(current)) apply(current, value, at)
        else if (strict && !isEmpty(value)) {
          if (current === undefined) throw unknownName("updateModules", "submodule", at, this.children())
          throw new ArgumentError("updateModules", `"${at}" must be a module, but is ${describe(current)}`)
        }
      }
    }
    apply(this, modules, "")
    return this
  }

  /**
   * Replaces every parameter by the result of a function.
   * @example
   * new nn.Linear(1, 1).apply((p) => mx.zerosLike(p)).weight.tolist() // => [[0]]
   */
  apply(map: (parameter: mx.Array) => mx.Array, filter: ModuleFilter = holdsParameters): this {
    check("apply", mapping, map, filter)
    return this.replaceParameters("apply", this.filterAndMap(filter, map as (value: never) => unknown), true)
  }

  /** Calls `visit` with the dotted path and module of this module and every submodule. */
  applyToModules(visit: (name: string, module: Module) => unknown): this {
    check("applyToModules", visiting, visit)
    const stack: Visit[] = [{ name: "", module: this, above: null }]
    for (let next = stack.pop(); next; next = stack.pop()) {
      const { name: prefix, module } = next
      for (let above = next.above; above; above = above.above)
        if (above.module === module) refuseCycle("applyToModules", prefix)
      visit(prefix, module)
      for (const [name, child] of modulesBelow(module))
        stack.push({ name: prefix === "" ? name : `${prefix}.${name}`, module: child, above: next })
    }
    return this
  }

  /**
   * Freezes parameters: excludes them from `trainableParameters()`.
   * @example
   * Object.keys(new nn.Linear(2, 3).freeze().trainableParameters()) // => []
   */
  freeze(options: FreezeOptions = {}): this {
    const { recurse, keys, strict } = freezing("freeze", options)
    const freezeOne = (_name: string, module: Module): void => {
      const local: string[] = keys === null ? [] : checkedKeys("freeze", module, keys, strict)
      if (keys === null) {
        const isOwn: ModuleFilter = (m, k, v) => !isModule(v) && holdsParameters(m, k, v)
        forEachLeaf(module.filterAndMap(isOwn), (_leaf, path) => local.push(path))
      }
      for (const key of local) module._noGrad.add(key)
    }
    if (recurse) return this.applyToModules(freezeOne)
    freezeOne("", this)
    return this
  }

  /**
   * Unfreezes parameters.
   * @example
   * Object.keys(new nn.Linear(2, 3).freeze().unfreeze({ keys: 'bias' }).trainableParameters()) // => ['bias']
   */
  unfreeze(options: FreezeOptions = {}): this {
    const { recurse, keys, strict } = freezing("unfreeze", options)
    const unfreezeOne = (_name: string, module: Module): void => {
      if (keys === null) module._noGrad.clear()
      else for (const key of checkedKeys("unfreeze", module, keys, strict)) module._noGrad.delete(key)
    }
    if (recurse) return this.applyToModules(unfreezeOne)
    unfreezeOne("", this)
    return this
  }

  /**
   * Sets the training mode of this module and all submodules.
   * @example
   * new nn.Dropout(0.5).train(false).forward(mx.ones([2])).tolist() // => [1, 1]
   */
  train(mode = true): this {
    check("train", training, mode)
    return this.applyToModules((_name, module) => module._setTraining(mode))
  }

  /** Sets this module's own mode; overridden by layers that depend on it. @internal */
  _setTraining(mode: boolean): void {
    this._training = mode
  }

  /** The same as `train(false)`. */
  eval(): this {
    return this.train(false)
  }

  /**
   * Converts the parameters to a dtype.
   * @param predicate - selects the dtypes to convert: by default the floating ones; null selects all
   * @example
   * new nn.Linear(1, 1).setDtype(mx.float16).weight.dtype.name // => 'float16'
   */
  setDtype(
    dtype: mx.Dtype,
    predicate: ((dtype: mx.Dtype) => boolean) | null = (d) => d.kind === "floating",
  ): this {
    check("setDtype", { dtype: "dtype", predicate: "function?" }, dtype, predicate)
    return this.apply((x) => (predicate === null || predicate(x.dtype) ? x.astype(dtype) : x))
  }

  /**
   * Saves the parameters to a `.safetensors` or `.npz` file, under the names of MLX's checkpoints: the field `inProj` is `in_proj`.
   * @throws ArgumentError for another extension
   */
  saveWeights(file: mx.FilePath): this {
    check("saveWeights", { file: aFile }, file)
    writeWeights(namedParameters("saveWeights", this), file)
    return this
  }

  /**
   * Loads the parameters from a file or from a list of names and arrays. Names are those of checkpoints (`in_proj.weight`) or fields
   * (`inProj.weight`).
   * @param options - `strict` (default true): the names and shapes must match the parameters exactly
   * @throws ArgumentError for missing and unknown names, and for a file without weights; ShapeError for a wrong shape
   * @example
   * const layer = new nn.Linear(1, 1, { bias: false })
   * layer.loadWeights([['weight', mx.array([[5]])]]).weight.tolist() // => [[5]]
   */
  loadWeights(
    fileOrWeights: mx.FilePath | Iterable<readonly [string, mx.Array]> | Record<string, mx.Array>,
    options?: boolean | { strict?: boolean },
  ): this {
    const strict = strictOf("loadWeights", options)
    const weights = weightsOf(fileOrWeights)
    const parameters = namedParameters("loadWeights", this)
    for (const [parameter, value] of matched(parameters, weights, strict)) parameter.set(value)
    return this
  }

  /** The text in the parentheses of the printed form, such as `dims=4`. Subclasses override it. */
  protected extraRepr(): string {
    return ""
  }

  /**
   * The class, its options and its submodules, one per line.
   * @example
   * new nn.Sequential(new nn.Linear(2, 3)).toString()
   * // => 'Sequential(\n  (layers.0): Linear(inputDims=2, outputDims=3, bias=true)\n)'
   */
  toString(): string {
    return this.printed([])
  }

  private printed(above: readonly Module[]): string {
    const { name } = this.constructor
    if (above.includes(this)) return `${name}(…)`
    const lines = modulesBelow(this).map(([path, child]) =>
      `(${path}): ${child.printed([...above, this])}`.replace(/^/gm, "  "),
    )
    const below = lines.length > 0 ? `\n${lines.join("\n")}\n` : ""
    return `${name}(${this.extraRepr()}${below})`
  }

  [INSPECT](): string {
    return this.toString()
  }

  /** See {@link Module.isModule}; for filters that use `this`. */
  isModule(value: unknown): value is Module {
    return isModule(value)
  }

  /** See {@link Module.validChildFilter}. */
  validChildFilter(module: Module, key: string, value: unknown): boolean {
    return mayHoldModules(module, key, value)
  }

  /**
   * See {@link Module.validParameterFilter}.
   * @example
   * const layer = new nn.Linear(2, 3)
   * Object.keys(layer.filterAndMap(layer.validParameterFilter)) // => ['weight', 'bias']
   */
  validParameterFilter(module: Module, key: string, value: unknown): boolean {
    return asFilter("validParameterFilter", holdsParameters)(module, key, value)
  }

  /** See {@link Module.trainableParameterFilter}. */
  trainableParameterFilter(module: Module, key: string, value: unknown): boolean {
    return asFilter("trainableParameterFilter", isTrainable)(module, key, value)
  }

  /** True if a value is a module. */
  static isModule(this: void, value: unknown): value is Module {
    return isModule(value)
  }

  /** The filter of `children()`: modules, lists and objects. */
  static validChildFilter(this: void, module: Module, key: string, value: unknown): boolean {
    return mayHoldModules(module, key, value)
  }

  /** The filter of `parameters()`: public members that contain arrays. */
  static validParameterFilter(this: void, module: Module, key: string, value: unknown): boolean {
    return asFilter("validParameterFilter", holdsParameters)(module, key, value)
  }

  /** The filter of `trainableParameters()`: public members that are not frozen. */
  static trainableParameterFilter(this: void, module: Module, key: string, value: unknown): boolean {
    return asFilter("trainableParameterFilter", isTrainable)(module, key, value)
  }
}

// The class must not refer to itself by name: bundlers would then rename it, which would change `toString`.

function isModule(value: unknown): value is Module {
  return value instanceof Module
}
const mayHoldModules: ModuleFilter = (_module, _key, value) => isContainer(value)
const holdsParameters: ModuleFilter = (_module, key, value) =>
  isPublic(key) && (value instanceof mx.Array || isContainer(value))
const isTrainable: ModuleFilter = (module, key, value) =>
  holdsParameters(module, key, value) && !module._noGrad.has(key)

/** Validates a filter's arguments. @throws ArgumentError */
const asFilter =
  (op: string, filter: ModuleFilter): ModuleFilter =>
  (module, key, value) => {
    check(op, { module: aModule, key: "string" }, module, key)
    return filter(module, key, value)
  }

registerTreeNode(Module, {
  flatten: (module) => {
    const out: Record<string, unknown> = {}
    for (const key of Object.keys(module)) {
      const value = own(module)[key]
      if (isPublic(key) && holdsArrays(value)) setOwn(out, key, value)
    }
    return out
  },
  unflatten: (module, children) => {
    const copy = Object.create(Object.getPrototypeOf(module) as object) as Module
    return Object.assign(copy, module, { _noGrad: new Set(module._noGrad) }, children)
  },
})

const filtering = parametersOf({ filter: "function", map: "function", isLeaf: "function" })
const mapping = parametersOf({ map: "function", filter: "function" })
const visiting = parametersOf({ visit: "function" })
const training = parametersOf({ mode: "bool" })
/** The names in a tree; for a module those of its parameters and children. */
function keysOf(container: Members | unknown[] | Module): string[] {
  return container instanceof Module ? memberNames(container) : Object.keys(container)
}

/** @internal */
export function memberOf(container: unknown, key: string): unknown {
  return Object.hasOwn(container as object, key) ? (container as Members)[key] : undefined
}

const isEmpty = (value: unknown): boolean =>
  value === undefined || (isContainer(value) && !holdsArrays(value))

/** The direct submodules with their dotted paths. */
function modulesBelow(module: Module): [string, Module][] {
  const found: [string, Module][] = []
  const walk = (value: unknown, path: string): void => {
    if (value instanceof Module) found.push([path, value])
    else if (isList(value)) value.forEach((child, i) => walk(child, `${path}.${i}`))
    else if (isPlainObject(value)) for (const key of Object.keys(value)) walk(value[key], `${path}.${key}`)
  }
  for (const key of memberNames(module)) walk(own(module)[key], key)
  return found
}

function checkedKeys(
  op: string,
  module: Module,
  keys: string | readonly string[],
  strict: boolean,
): string[] {
  const list = typeof keys === "string" ? [keys] : [...keys]
  if (strict)
    for (const key of list)
      if (memberOf(module, key) === undefined)
        throw new ArgumentError(op, `${module.constructor.name} has no member "${key}"`)
  return list
}

/** @internal */
export function unknownName(
  op: string,
  kind: "parameter" | "submodule",
  path: string,
  known: object,
): ArgumentError {
  const paths: string[] = []
  forEachLeaf(known, (_leaf, at) => paths.push(at))
  const near = nearest(path, paths)
  return new ArgumentError(
    op,
    `the module has no ${kind} named "${path}"`,
    near ? { hint: `Did you mean "${near}"?` } : {},
  )
}

function namedParameters(op: string, root: Module): NamedParameter[] {
  const parameters: NamedParameter[] = []
  const entered: Module[] = []
  const walk = (container: Module | Members | unknown[], name: string, field: string): void => {
    if (container instanceof Module) enter(op, entered, container, field)
    for (const key of keysOf(container)) {
      if (container instanceof Module && !isPublic(key)) continue
      const value = (container as Members)[key]
      const at = (prefix: string, last: string): string => (prefix === "" ? last : `${prefix}.${last}`)
      const [nextName, nextField] = [at(name, fileName(key)), at(field, key)]
      if (value instanceof mx.Array) {
        const set = (next: mx.Array): void => {
          ;(container as Members)[key] = next
        }
        parameters.push({ name: nextName, field: nextField, value, set })
      } else if (isContainer(value)) walk(value, nextName, nextField)
    }
    if (container instanceof Module) entered.pop()
  }
  walk(root, "", "")
  return parameters
}
