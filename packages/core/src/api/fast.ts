/**
 * `mx.fast`: fused operations with their own kernels and gradients.
 */

export { type AttentionOptions, scaledDotProductAttention } from "../ops/attention"
export { layerNorm, type RopeOptions, rmsNorm, rope } from "../ops/norm"
export { cudaKernel } from "./cuda-kernel"
export { metalKernel } from "./metal-kernel"
