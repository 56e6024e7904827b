/**
 * Loading a file by what its name ends in.
 */
import { ArgumentError, describe } from "../errors"
import type { Array } from "../graph"
import { withFile } from "./files"
import { parseNpy, parseNpz } from "./npy"
import { readSafetensors } from "./safetensors"

type Arrays = Record<string, Array>
type Format = "npy" | "npz" | "safetensors"

/**
 * The array of an .npy file, or the arrays by name of an .npz or .safetensors file; with `returnMetadata` a pair of them and the
 * metadata (safetensors). The file is read now.
 * @throws FormatError when the file is not what it claims to be; ArgumentError for an unknown format
 * @example
 * mx.save('/tmp/x.npy', mx.array([1, 2])); mx.load('/tmp/x.npy').tolist() // => [1, 2]
 */
export function load(file: `${string}.npy`): Array
export function load(file: `${string}.npz` | `${string}.safetensors`): Arrays
export function load(file: string, options: { format: "npy" }): Array
export function load(
  file: string,
  options: { format?: "safetensors"; returnMetadata: true },
): [Arrays, Record<string, string>]
export function load(file: string, options: { format: "npz" | "safetensors" }): Arrays
export function load(
  file: string,
  options?: { format?: string; returnMetadata?: boolean },
): Array | Arrays | [Arrays, Record<string, string>]
export function load(
  file: string,
  options: { format?: string; returnMetadata?: boolean } = {},
): Array | Arrays | [Arrays, Record<string, string>] {
  if (typeof file !== "string")
    throw new ArgumentError("load", `file must be a path, received ${describe(file)}`)
  const format = (options.format ?? file.slice(file.lastIndexOf(".") + 1)) as Format
  if (!["npy", "npz", "safetensors"].includes(format))
    throw new ArgumentError("load", `the format ${describe(format)} of ${file} is unknown`, {
      hint: "Known are npy, npz and safetensors",
    })
  if (options.returnMetadata && format !== "safetensors")
    throw new ArgumentError("load", `returnMetadata needs a safetensors file, received ${file}`)
  return withFile("load", file, (open) => {
    if (format === "npy") return parseNpy("load", file, open.read(0, open.size))
    if (format === "npz") return parseNpz("load", file, open.read(0, open.size))
    const { arrays, metadata } = readSafetensors(open)
    return options.returnMetadata ? [arrays, metadata] : arrays
  })
}
