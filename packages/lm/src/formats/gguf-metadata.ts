/**
 * Typed access to the metadata of GGUF files.
 */
import * as mx from "@lazuli/core"
import { FormatError } from "@lazuli/core/engine"

export class GgufMetadata {
  constructor(
    readonly values: Readonly<Record<string, mx.Array | string | string[]>>,
    readonly file: string,
  ) {}
  text(key: string): string | null {
    const value = this.values[key]
    return typeof value === "string" ? value : null
  }
  number(key: string): number | null {
    const value = this.values[key]
    return value instanceof mx.Array && value.size === 1 ? Number(value.item()) : null
  }
  /** A number, which may also be given for each layer. @throws FormatError if layers differ */
  same(key: string): number | null {
    const [first, ...others] = this.numbers(key) ?? []
    if (others.some((value) => value !== first))
      throw this.error(`${key} differs by layer, which is not supported`)
    return first ?? this.number(key)
  }
  flag(key: string): boolean | null {
    const value = this.values[key]
    return value instanceof mx.Array && value.size === 1 ? Boolean(value.item()) : null
  }
  numbers(key: string): number[] | null {
    const value = this.values[key]
    return value instanceof mx.Array && value.ndim === 1
      ? Array.from(value.toTypedArray() as never, Number)
      : null
  }
  texts(key: string): string[] | null {
    const value = this.values[key]
    return Array.isArray(value) ? value : null
  }
  error(fact: string, hint?: string): FormatError {
    return new FormatError("load", `${this.file}: ${fact}`, hint ? { hint } : {})
  }
}
