/**
 * The names of dtypes in Metal.
 */
import type { Dtype } from "@lazuli/core/engine"

const names: Record<string, string> = {
  bool_: "bool",
  uint8: "uchar",
  uint16: "ushort",
  uint32: "uint",
  uint64: "ulong",
  int8: "char",
  int16: "short",
  int32: "int",
  int64: "long",
  float16: "half",
  float32: "float",
  bfloat16: "bfloat",
  complex64: "float2",
  // Of the CUDA section of the prelude: Metal has none.
  float64: "lz_double",
}

/** The type of an element in memory, or undefined where Metal has none: float64. Complex numbers are pairs. */
export function metalType(dtype: Dtype): string | undefined {
  return dtype.name === "float64" ? undefined : names[dtype.name]
}

/** Its type where float64 is there too. */
export const elementType = (dtype: Dtype): string | undefined => names[dtype.name]

/** The type in which a kernel computes: sixteen-bit floats widen, and so do small integers. */
export function computeType(dtype: Dtype): string {
  if (dtype.kind === "complex") return "float2"
  if (dtype.kind === "floating") return dtype.size === 8 ? "lz_double" : "float"
  if (dtype.kind === "bool") return "bool"
  if (dtype.size === 8) return dtype.kind === "signed" ? "long" : "ulong"
  return dtype.kind === "signed" ? "int" : "uint"
}

const words: Record<number, string> = { 1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "uint4" }

/** The unsigned type of so many bytes, for what only moves elements. */
export const wordType = (bytes: number): string => words[bytes]

/** The beginning of every source. */
export const METAL_HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
