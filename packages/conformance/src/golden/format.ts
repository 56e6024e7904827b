/**
 * The format of golden vectors: recorded calls of MLX with its answers, a JSON file a family. What values look like is in values.ts, what
 * a case asks for in replay.ts.
 */

/** A JSON value. */
export type Json = null | boolean | string | number | Json[] | { [key: string]: Json }
/** A JSON object. */
export type JsonObject = { [key: string]: Json }

/** A recorded array: raw little-endian bytes, row-major; with `view`, the input is derived from them and is not contiguous. */
export interface EncodedArray {
  readonly dtype: string
  readonly shape: number[]
  readonly b64: string
  readonly view?: "transpose" | "stride2" | "reversed" | "broadcast"
  /** The shape of a broadcast view. */
  readonly to?: number[]
}

/** A recorded call. */
export interface GoldenCall {
  readonly fn: string
  readonly args?: Json[]
  readonly kwargs?: JsonObject
}

/** The tolerance of an answer: |got − want| ≤ atol + rtol · |want|, or equal. */
export interface Tolerance {
  readonly rtol: number
  readonly atol: number
  readonly exact?: boolean
}

/** A transform around the call. */
export interface TransformSpec {
  readonly kind: string
  readonly argnums?: number[]
  readonly cotangents?: EncodedArray[]
  readonly tangents?: EncodedArray[]
  readonly tangents2?: EncodedArray[]
  readonly weights?: EncodedArray[]
  readonly in_axes?: (number | null)[] | (number | null)[][]
  readonly out_axes?: number | number[] | (number | number[])[]
  readonly wrap?: string
}

/** Results that are unique only up to a choice, and what holds for them instead. */
export interface UniqueUpTo {
  readonly kind: string
  readonly kth?: number
  readonly axis?: number | null
  readonly bits?: number
}

/** One recorded case. */
export interface GoldenCase extends GoldenCall, Tolerance {
  readonly id: string
  readonly seed?: number
  readonly outputs?: Json[]
  /** The class of MLX's error, where the call must raise. */
  readonly raises?: string
  readonly message?: string
  readonly then?: GoldenCall[]
  readonly transform?: TransformSpec
  readonly compare?: UniqueUpTo
  readonly tags?: string[]
  /** Factories and layers: the call of what was made. */
  readonly call?: GoldenCall
  readonly calls?: GoldenCall[]
  readonly parameters?: JsonObject
  readonly params?: JsonObject
  readonly params_after?: JsonObject
  readonly train?: boolean
  readonly apply?: GoldenCall
  readonly method?: string
  readonly grad?: Tolerance & {
    readonly params: JsonObject
    readonly inputs: Json[]
    readonly input_argnums: number[]
    readonly cotangents: Json[]
  }
  /** Optimizers: the gradients of each step. */
  readonly grads?: Json[]
  readonly learning_rate?: Json
  readonly state?: JsonObject
}

/** Thrown for a function that does not exist here. */
export class Missing extends Error {}
/** Thrown where an answer differs. */
export class Mismatch extends Error {}

/** True if a value is a recorded array. */
export function isEncodedArray(v: unknown): v is EncodedArray & JsonObject {
  return typeof v === "object" && v !== null && "b64" in v && "dtype" in v
}

/** `conv_transpose1d` → `convTranspose1d`, `bool_` → `bool`. */
export function camelCase(name: string): string {
  return name.replace(/_+([a-z0-9])/g, (_, c: string) => c.toUpperCase()).replace(/_$/, "")
}

/** `inProj` → `in_proj`: the name of a field in MLX and in checkpoints. */
export function snakeCase(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, (_, before: string, c: string) => `${before}_${c.toLowerCase()}`)
}
