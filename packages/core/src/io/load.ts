/**
 * Loading a file in the format that its extension names.
 */
import { isPlainObject } from "../graph/args"
import { ArgumentError, describe, nearest } from "../graph/errors"
import type { Array } from "../graph/graph"
import { asPath, type BoundedFile, type FilePath, withFile } from "./files"
import { type GgufValue, readGguf } from "./gguf"
import { readNpy } from "./npy"
import { readNpz } from "./npz"
import { readSafetensors } from "./safetensors"

type Arrays = Record<string, Array>
type Named = { readonly arrays: Arrays; readonly metadata: Record<string, GgufValue> }

const one = { npy: readNpy }
const several: Record<string, (file: BoundedFile) => Named> = {
  npz: (file) => ({ arrays: readNpz(file), metadata: {} }),
  safetensors: readSafetensors,
  gguf: readGguf,
}
const FORMATS = [...Object.keys(one), ...Object.keys(several)]
const PARAMETERS = ["format", "returnMetadata", "maxBytes", "stream"]

/** Options of {@link load}. */
export interface LoadOptions {
  /** The format of the file; by default its extension. */
  readonly format?: string | null
  /** Also return the metadata. */
  readonly returnMetadata?: boolean
  /**
   * The largest allowed uncompressed size in bytes. By default only compressed archives are limited: one that would expand to more than 256
   * MiB and more than 200 times its size on disk is rejected.
   */
  readonly maxBytes?: number | null
}
type Limit = Pick<LoadOptions, "maxBytes">
/** Options with which the extension determines the type of the result. */
type Plain = Limit & { readonly format?: null; readonly returnMetadata?: false }

/**
 * Loads the array of an .npy file, or an object of the named arrays of an .npz, .safetensors or .gguf file; with `returnMetadata`, a pair
 * of these and the metadata (safetensors: strings; gguf: strings, lists of strings, arrays). The file is read immediately, each array
 * directly into its memory. GGUF tensors of type Q4_0, Q4_1 and Q8_0 stay quantized (`x.weight` comes with `x.scales` and `x.biases`, in
 * groups of 32); other block formats are dequantized to float16. A file whose uncompressed size exceeds `maxBytes` is rejected before it is
 * read. Without that option, a compressed .npz archive is rejected if it would expand to more than 256 MiB and more than 200 times its size
 * (as archives of almost only zeros do). An .npy file with data after its array, as NumPy writes when several arrays are saved to one
 * stream, is rejected; use `savez` for several arrays.
 * @throws FormatError if the file is malformed or too large; ArgumentError for an unknown format
 * @example
 * mx.save('/tmp/x.npy', mx.array([1, 2])); mx.load('/tmp/x.npy').tolist() // => [1, 2]
 */
export function load(file: `${string}.npy`, options?: Plain): Array
export function load(
  file: `${string}.npz` | `${string}.safetensors` | `${string}.gguf`,
  options?: Plain,
): Arrays
export function load(file: FilePath, format: "npy"): Array
export function load(file: FilePath, format: "npz" | "safetensors" | "gguf"): Arrays
export function load(file: FilePath, options: Limit & { format: "npy"; returnMetadata?: false }): Array
export function load(
  file: FilePath,
  format: "safetensors",
  returnMetadata: true,
): [Arrays, Record<string, string>]
export function load(
  file: FilePath,
  options: Limit & { format: "safetensors"; returnMetadata: true },
): [Arrays, Record<string, string>]
export function load(
  file: `${string}.safetensors`,
  options: Limit & { returnMetadata: true },
): [Arrays, Record<string, string>]
export function load(
  file: FilePath,
  format: "gguf" | null | undefined,
  returnMetadata: true,
): [Arrays, Record<string, GgufValue>]
export function load(
  file: FilePath,
  options: Limit & { format?: "gguf" | null; returnMetadata: true },
): [Arrays, Record<string, GgufValue>]
export function load(
  file: FilePath,
  options: Limit & { format: "npz" | "safetensors" | "gguf"; returnMetadata?: false },
): Arrays
export function load(
  file: FilePath,
  format?: string | null | LoadOptions,
  returnMetadata?: boolean,
): Array | Arrays | [Arrays, Record<string, GgufValue>]
export function load(
  file: FilePath,
  formatOrOptions: string | null | LoadOptions = null,
  returnMetadata = false,
): Array | Arrays | [Arrays, Record<string, GgufValue>] {
  const options: LoadOptions = isPlainObject(formatOrOptions)
    ? formatOrOptions
    : { format: formatOrOptions, returnMetadata }
  for (const key of Object.keys(options))
    if (!PARAMETERS.includes(key)) {
      const near = nearest(key, PARAMETERS)
      throw new ArgumentError(
        "load",
        `has no parameter "${key}"; it takes ${PARAMETERS.join(", ")}`,
        near ? { hint: `Did you mean "${near}"?` } : {},
      )
    }
  const path = asPath("load", file)
  const extension = /\.([^./\\]*)$/.exec(path)?.[1]
  const format = options.format ?? extension
  if (format === undefined || !FORMATS.includes(format)) {
    const known = `${FORMATS.slice(0, -1).join(", ")} or ${FORMATS.at(-1)}`
    const received = format === undefined ? "a name without an extension" : describe(format)
    throw new ArgumentError("load", `the format of ${path} must be ${known}, received ${received}`, {
      hint: "The extension decides, or { format }",
    })
  }
  if (options.returnMetadata && format !== "safetensors" && format !== "gguf")
    throw new ArgumentError("load", `returnMetadata needs a safetensors or gguf file, received ${path}`)
  const { maxBytes = null } = options
  if (maxBytes !== null && !(typeof maxBytes === "number" && maxBytes >= 0))
    throw new ArgumentError(
      "load",
      `maxBytes must be a number of bytes, at least 0, received ${describe(maxBytes)}`,
    )
  const read = (open: BoundedFile): Array | Arrays | [Arrays, Record<string, GgufValue>] => {
    if (format === "npy") return readNpy(open)
    const { arrays, metadata } = several[format](open)
    return options.returnMetadata ? [arrays, metadata] : arrays
  }
  return withFile("load", path, read, maxBytes)
}
