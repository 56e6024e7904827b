/**
 * A model's config.json, read by name with types: what is missing or of another kind is an error that names the key.
 */
import { describe, FormatError, isPlainObject } from "@lazuli/core/engine"

/** A value of JSON. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }
/** An object of JSON. */
export type JsonObject = { readonly [key: string]: Json }

/**
 * Values of a config.json by name. A getter takes a default for what may be missing or null.
 * @example
 * const settings = new Settings({ hidden_size: 64 })
 * settings.number('hidden_size') // => 64
 * settings.number('rope_theta', 10000) // => 10000
 */
export class Settings {
  constructor(
    readonly values: JsonObject,
    /** The file or part of one that errors name. */
    readonly source = "config.json",
  ) {}

  number(key: string, otherwise?: number): number {
    return this.get(key, "a number", (v) => typeof v === "number" && Number.isFinite(v), otherwise)
  }
  /** A positive whole number. */
  count(key: string, otherwise?: number): number {
    const isCount = (v: Json): boolean => Number.isSafeInteger(v) && (v as number) > 0
    return this.get(key, "a positive whole number", isCount, otherwise)
  }
  boolean(key: string, otherwise?: boolean): boolean {
    return this.get(key, "true or false", (v) => typeof v === "boolean", otherwise)
  }
  string(key: string, otherwise?: string): string {
    return this.get(key, "a string", (v) => typeof v === "string", otherwise)
  }
  /** A positive whole number, or null where there is none. */
  optionalCount(key: string): number | null {
    return this.has(key) ? this.count(key) : null
  }
  /** A number, or null where there is none. */
  optionalNumber(key: string): number | null {
    return this.has(key) ? this.number(key) : null
  }
  numbers(key: string, otherwise?: readonly number[]): readonly number[] {
    const isList = (v: Json): boolean => Array.isArray(v) && v.every((x) => typeof x === "number")
    return this.get(key, "a list of numbers", isList, otherwise)
  }
  /** A list of strings, or null where there is none. */
  optionalStrings(key: string): readonly string[] | null {
    const isList = (v: Json): boolean => Array.isArray(v) && v.every((x) => typeof x === "string")
    return this.has(key) ? this.get<readonly string[]>(key, "a list of strings", isList) : null
  }
  /** An object within this one, or null where there is none. */
  part(key: string): Settings | null {
    if (!this.has(key)) return null
    return new Settings(this.get<JsonObject>(key, "an object", isPlainObject), `${this.source}, ${key}`)
  }
  has(key: string): boolean {
    return Object.hasOwn(this.values, key) && this.values[key] !== null
  }
  /** The values of a part over those here: a model's text_config. */
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
