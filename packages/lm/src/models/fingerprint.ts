/**
 * Fingerprints of weights, which tell networks of the same shape apart without reading all of them.
 */
import { createHash } from "node:crypto"
import * as mx from "@lazuli/core"

/** Values of each weight in a fingerprint. */
const SAMPLED = 16

/** Names, shapes and dtypes of weights, and the first values of each, as a hash: fine-tuning may change any of them. */
export function fingerprintOf(parameters: object): string {
  const weights = mx.treeFlatten(parameters) as [string, mx.Array][]
  const hash = createHash("sha256")
  for (const [name, { shape, dtype }] of weights) hash.update(`${name} ${dtype.name} ${shape.join(",")};`)
  const parts = weights
    .filter(([, { ndim }]) => ndim > 0)
    .map(([, weight]) => weight.index(...weight.shape.slice(1).map(() => 0), mx.s(0, SAMPLED)).view(mx.uint8))
  if (parts.length > 0) hash.update(mx.concatenate(parts).toTypedArray() as Uint8Array)
  return hash.digest("hex")
}
