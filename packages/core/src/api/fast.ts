/**
 * `mx.fast`: compound functions with kernels and derivatives of their own.
 */

export { type AttentionOptions, scaledDotProductAttention } from "../ops/attention"
export { layerNorm, type RopeOptions, rmsNorm, rope } from "../ops/norm"
export { cudaKernel } from "./cuda-kernel"
export { metalKernel } from "./metal-kernel"
