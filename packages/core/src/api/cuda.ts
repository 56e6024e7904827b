/**
 * `mx.cuda`: whether CUDA is there.
 */
import { listBackends } from "../graph/backend"

/**
 * True if a CUDA backend is there.
 * @example
 * typeof mx.cuda.isAvailable() // => 'boolean'
 */
export const isAvailable = (): boolean => listBackends().some(({ name }) => name === "cuda")
