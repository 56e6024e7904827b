/**
 * Typed access to config.json: missing values and wrong types are errors that name the key.
 */
import { describe, FormatError, isPlainObject } from "@lazuli/core/engine"
import { checkKind, type Kind, OBJECT } from "../argument-kinds"

/** A JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }
/** A JSON object. */
export type JsonObject = { readonly [key: string]: Json }

/**
 * Typed access to the values of a config.json. Getters take a default for values that are missing or null.
 * @example
 * const settings = new Settings({ hidden_size: 64 })
 * settings.number('hidden_size') // => 64
 * settings.number('rope_theta', 10000) // => 10000
 */
export class Settings {
  constructor(
    readonly values: JsonObject,
    /** The file, and part of it, for error messages. */
    readonly source = "config.json",
  ) {
    checkKind("Settings", "values", values, OBJECT)
  }

  number(key: string, otherwise?: number): number {
    return this.get(key, "a number", (v) => typeof v === "number" && Number.isFinite(v), otherwise)
  }
  /** A positive number. */
  positive(key: string, otherwise?: number): number {
    const isPositive = (v: Json): boolean => typeof v === "number" && v > 0 && v < Infinity
    return this.get(key, "a positive number", isPositive, otherwise)
  }
  /** A positive integer. */
  count(key: string, otherwise?: number, most = Number.MAX_SAFE_INTEGER): number {
    const isCount = (v: Json): boolean =>
      Number.isSafeInteger(v) && (v as number) > 0 && (v as number) <= most
    const bound = most === Number.MAX_SAFE_INTEGER ? "" : ` of at most ${most}`
    return this.get(key, `a positive integer${bound}`, isCount, otherwise)
  }
  /** A number of layers, which are created before weights are checked. */
  layers(key: string): number {
    return this.count(key, undefined, 10_000)
  }
  /** Features per head. */
  headDim(hidden: string, heads: string): number {
    const [size, count] = [this.count(hidden), this.count(heads)]
    if (size % count !== 0)
      throw new FormatError(
        "load",
        `${this.source}: "${hidden}" ${size} is not divisible by "${heads}" ${count}`,
      )
    return size / count
  }
  boolean(key: string, otherwise?: boolean): boolean {
    return this.get(key, "true or false", (v) => typeof v === "boolean", otherwise)
  }
  string(key: string, otherwise?: string): string {
    return this.get(key, "a string", (v) => typeof v === "string", otherwise)
  }
  /** A positive integer, or null if missing. */
  optionalCount(key: string): number | null {
    return this.has(key) ? this.count(key) : null
  }
  /** A positive number, or null if missing. */
  optionalPositive(key: string): number | null {
    return this.has(key) ? this.positive(key) : null
  }
  /** A number, or null if missing. */
  optionalNumber(key: string): number | null {
    return this.has(key) ? this.number(key) : null
  }
  numbers(key: string, otherwise?: readonly number[]): readonly number[] {
    const isList = (v: Json): boolean => Array.isArray(v) && v.every((x) => typeof x === "number")
    return this.get(key, "a list of numbers", isList, otherwise)
  }
  /** A list of strings, or null if missing. */
  optionalStrings(key: string): readonly string[] | null {
    const isList = (v: Json): boolean => Array.isArray(v) && v.every((x) => typeof x === "string")
    return this.has(key) ? this.get<readonly string[]>(key, "a list of strings", isList) : null
  }
  /** A nested object, or null if missing. */
  part(key: string): Settings | null {
    if (!this.has(key)) return null
    return new Settings(this.get<JsonObject>(key, "an object", isPlainObject), `${this.source}, ${key}`)
  }
  /** @throws FormatError for values that change the mathematics in ways that are not supported: others than these, if they are there */
  only(values: JsonObject): void {
    for (const [key, value] of Object.entries(values))
      if (this.has(key) && this.values[key] !== value)
        throw new FormatError(
          "load",
          `${this.source}: "${key}" ${JSON.stringify(this.values[key])} is not supported for this model_type`,
        )
  }
  has(key: string): boolean {
    return Object.hasOwn(this.values, key) && this.values[key] !== null
  }
  /** These settings, overridden by those of a nested object such as `text_config`. */
  within(key: string): Settings {
    const part = this.part(key)
    return part ? new Settings({ ...this.values, ...part.values }, part.source) : this
  }

  private get<T extends Json>(
    key: string,
    expected: string,
    accepts: (v: Json) => boolean,
    otherwise?: T,
  ): T {
    if (!this.has(key)) {
      if (otherwise !== undefined) return otherwise
      throw new FormatError("load", `${this.source} lacks "${key}", expected ${expected}`)
    }
    const value = this.values[key]
    if (!accepts(value))
      throw new FormatError(
        "load",
        `${this.source}: "${key}" must be ${expected}, received ${describe(value)}`,
      )
    return value as T
  }
}

/** The settings of a config as an argument. */
export const SETTINGS: Kind = {
  expected: "Settings",
  accepts: (value) => value instanceof Settings,
}
