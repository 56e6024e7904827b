/**
 * `mx.fast`: compound functions with kernels and derivatives of their own.
 */

export {
  type MetalKernel,
  type MetalKernelCall,
  type MetalKernelOptions,
  metalKernel,
  type TemplateValue,
} from "./metal-kernel"
export { type AttentionOptions, scaledDotProductAttention } from "./ops/attention"
export { layerNorm, type RopeOptions, rmsNorm, rope } from "./ops/norm"
