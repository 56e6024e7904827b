/**
 * Parameters of primitives: plain data described by a schema. The TypeScript type, equality, printing, cache keys and the kernel's
 * parameter words are all derived from the schema.
 */
import { type Dtype, isDtype } from "./dtype"
import { describe, RegistryError } from "./errors"
import { type ScalarProgram, type ScalarValue, valueKey as scalarKey } from "./scalar-program"

/** The type of a parameter, or the list of its allowed strings. A trailing `?` allows null. */
export type ParamType =
  | "f64"
  | "i64"
  | "bool"
  | "string"
  | "dtype"
  | "i64[]"
  | "f64[]"
  | "program"
  | "function"
  | "value"
  | "f64?"
  | "i64?"
  | "dtype?"
  | "i64[]?"
  | "string?"
  | readonly string[]
/** Names and types of a primitive's parameters. */
export type ParamSchema = Readonly<Record<string, ParamType>>

type ValueOf<T> = T extends readonly (infer S)[]
  ? S
  : T extends "f64" | "i64"
    ? number
    : T extends "f64?" | "i64?"
      ? number | null
      : T extends "bool"
        ? boolean
        : T extends "string"
          ? string
          : T extends "string?"
            ? string | null
            : T extends "dtype"
              ? Dtype
              : T extends "dtype?"
                ? Dtype | null
                : T extends "i64[]" | "f64[]"
                  ? readonly number[]
                  : T extends "i64[]?"
                    ? readonly number[] | null
                    : T extends "program"
                      ? SubProgram
                      : T extends "value"
                        ? ScalarValue
                        : T extends "function"
                          ? (...args: never[]) => unknown
                          : never

/** The type of the parameters of a schema. */
export type ParamsOf<S extends ParamSchema> = { readonly [K in keyof S]: ValueOf<S[K]> }

/** A program as a parameter: any object with a key that is equal exactly for equal programs. */
export type SubProgram = ScalarProgram | { readonly key: string }

/** Parameters of any primitive. */
export type AnyParams = Readonly<Record<string, unknown>>

/** The parameters of primitives without parameters. */
export const NO_PARAMS: AnyParams = Object.freeze({})

const checks: Record<string, (v: unknown) => boolean> = {
  f64: (v) => typeof v === "number",
  i64: (v) => Number.isSafeInteger(v),
  bool: (v) => typeof v === "boolean",
  string: (v) => typeof v === "string",
  dtype: isDtype,
  "i64[]": (v) => globalThis.Array.isArray(v) && v.every(Number.isSafeInteger),
  "f64[]": (v) => globalThis.Array.isArray(v) && v.every((x) => typeof x === "number"),
  program: (v) => typeof v === "object" && v !== null && typeof (v as { key?: unknown }).key === "string",
  function: (v) => typeof v === "function",
  value: (v) => ["number", "bigint", "boolean", "object"].includes(typeof v) && v !== null,
}

/** Validates a schema. @throws RegistryError */
export function checkSchema(op: string, schema: unknown): void {
  if (typeof schema !== "object" || schema === null || globalThis.Array.isArray(schema))
    throw new RegistryError(
      op,
      `params must be an object that maps names to kinds, received ${describe(schema)}`,
    )
  for (const [key, type] of Object.entries(schema)) {
    if (globalThis.Array.isArray(type) && type.length > 0 && type.every((each) => typeof each === "string"))
      continue
    if (typeof type === "string" && Object.hasOwn(checks, type.endsWith("?") ? type.slice(0, -1) : type))
      continue
    throw new RegistryError(
      op,
      `the parameter "${key}" must have one of the kinds ${Object.keys(checks).join(", ")}, or a list of strings, received ${describe(type)}`,
    )
  }
}

/** Validates parameters against a schema, for primitives of other packages. @throws RegistryError */
export function checkParams(op: string, schema: ParamSchema, params: AnyParams): void {
  for (const key of Object.keys(params)) {
    if (!(key in schema))
      throw new RegistryError(
        op,
        `has no parameter "${key}"; it has ${Object.keys(schema).join(", ") || "none"}`,
      )
  }
  for (const [key, type] of Object.entries(schema)) {
    const value = params[key]
    if (typeof type !== "string") {
      if (!type.includes(value as string))
        throw new RegistryError(
          op,
          `parameter "${key}" must be one of ${type.join(", ")}, received ${describe(value)}`,
        )
      continue
    }
    const optional = type.endsWith("?")
    if (optional && value === null) continue
    if (!checks[optional ? type.slice(0, -1) : type](value))
      throw new RegistryError(op, `parameter "${key}" must be ${type}, received ${describe(value)}`)
  }
}

let functionCount = 0
const functionIds = new WeakMap<object, number>()

/** A string that is equal exactly for equal parameters: the key of caches and common-subexpression elimination. */
export function paramsKey(schema: ParamSchema, params: AnyParams): string {
  let key = ""
  for (const name of Object.keys(schema)) key += `${name}=${valueKey(params[name])};`
  return key
}

function valueKey(value: unknown): string {
  if (value === null || value === undefined) return "-"
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean")
    return scalarKey(value)
  if (typeof value === "string") return JSON.stringify(value)
  if (isDtype(value)) return value.name
  if (globalThis.Array.isArray(value)) return `[${value.map(valueKey).join(",")}]`
  if (typeof value === "function") {
    let id = functionIds.get(value)
    if (id === undefined) functionIds.set(value, (id = ++functionCount))
    return `f#${id}`
  }
  if (typeof value === "object") {
    if ("key" in value) return `{${(value as { key: string }).key}}`
    return scalarKey(value as ScalarValue)
  }
  return String(value)
}
