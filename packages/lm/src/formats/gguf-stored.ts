/**
 * The types of a GGUF file's tensors: which are held as they are stored, and which are converted.
 */
import * as mx from "@lazuli/core"
import type { GgufEntry } from "@lazuli/core/engine"
import { packedSizes } from "./gguf-blocks"

/** The tensors of one type in a GGUF file. */
export interface StoredFormat {
  /** The type in the file, such as Q4_K. */
  readonly type: string
  /** The number of tensors. */
  readonly tensors: number
  /** Their form in memory: a dtype, or packed weights. */
  readonly held: string
  /** True for packed weights, false for elements of a dtype. */
  readonly packed: boolean
  /** False if the file's elements or codes are held as they are. */
  readonly converted: boolean
}

/** Types of dense tensors, by their dtypes. */
const DENSE = new Map<mx.Dtype, string>([
  [mx.float32, "F32"],
  [mx.float16, "F16"],
  [mx.bfloat16, "BF16"],
])

/** The dtype of weights that are not packed, and of scales: norms are always F32, so any 16-bit tensor decides. */
export function commonDtype(tensors: readonly GgufEntry[], architecture: string): mx.Dtype {
  if (tensors.some(({ dtype }) => dtype === mx.bfloat16)) return mx.bfloat16
  const hasHalves = tensors.some(({ dtype, blocks }) => dtype === mx.float16 || blocks)
  // Gemma's hidden states exceed float16.
  const half = architecture.startsWith("gemma") ? mx.bfloat16 : mx.float16
  return hasHalves ? half : mx.float32
}

/** The formats of a file's tensors, of which floating-point ones are held in one dtype. */
export function storedFormats(tensors: readonly GgufEntry[], all: mx.Dtype): StoredFormat[] {
  const found = new Map<string, StoredFormat>()
  for (const tensor of tensors) {
    const one = storedFormat(tensor, all)
    found.set(one.type, { ...one, tensors: (found.get(one.type)?.tensors ?? 0) + 1 })
  }
  return [...found.values()].sort((a, b) => b.tensors - a.tensors)
}

function storedFormat({ dtype, blocks }: GgufEntry, all: mx.Dtype): StoredFormat {
  if (blocks) {
    const [bits, group] = packedSizes[blocks.name]
    // The first digit of a type is its number of bits.
    const converted = Number(/\d/.exec(blocks.name)?.[0]) !== bits
    const held = `${bits} bits in groups of ${group}`
    return { type: blocks.name, tensors: 1, held, packed: true, converted }
  }
  const own = dtype as mx.Dtype
  const held = own.kind === "floating" ? all : own
  const type = DENSE.get(own) ?? own.name
  return { type, tensors: 1, held: held.name, packed: false, converted: held !== own }
}

/** The same in words, such as "Q4_K stays packed, 4 bits in groups of 32: 14 tensors; F32 is converted to float16: 5 tensors". */
export const storedText = (formats: readonly StoredFormat[]): string =>
  formats
    .map(({ type, tensors, held, packed, converted }) => {
      const verb = converted ? "is converted to" : packed ? "stays packed," : "stays"
      return `${type} ${verb} ${held}: ${tensors} ${tensors === 1 ? "tensor" : "tensors"}`
    })
    .join("; ")
