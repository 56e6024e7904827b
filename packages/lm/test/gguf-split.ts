/** GGUF files of several parts, as llama-gguf-split writes them: the metadata is in the first, and each says which one it is. */
import { join } from "node:path"
import * as mx from "@lazuli/core"

type Metadata = Record<string, mx.Array | string | string[]>

/** The name of a part. */
export const partName = (name: string, at: number, count: number): string => {
  const place = (n: number): string => String(n).padStart(5, "0")
  return `${name}-${place(at)}-of-${place(count)}.gguf`
}

/**
 * Divides a GGUF file of dense tensors. Returns the paths of the parts, in order.
 * @param changed - other metadata of a part, by its place
 */
export function splitGguf(
  file: string,
  folder: string,
  count: number,
  changed: Readonly<Record<number, Metadata>> = {},
): string[] {
  const [arrays, metadata] = mx.load(file as "x.gguf", { returnMetadata: true })
  const tensors = Object.entries(arrays)
  const each = Math.ceil(tensors.length / count)
  return Array.from({ length: count }, (_, i) => {
    const path = join(folder, partName("model", i + 1, count))
    mx.saveGguf(path, Object.fromEntries(tensors.slice(i * each, (i + 1) * each)), {
      ...(i === 0 ? metadata : {}),
      "split.no": mx.array(i, mx.uint16),
      "split.count": mx.array(count, mx.uint16),
      "split.tensors.count": mx.array(tensors.length, mx.int32),
      ...changed[i],
    })
    return path
  })
}
