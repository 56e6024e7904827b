/**
 * The public names of @lazuli/nn: `nn.*`.
 */
export * from "./activations"
export { type AverageGradientsOptions, averageGradients } from "./gradient-exchange"
export * as init from "./init"
export * from "./layers/activations"
export { type AttentionOptions, MultiHeadAttention } from "./layers/attention"
export { type Layer, Sequential } from "./layers/containers"
export * from "./layers/convolution"
export { Dropout, Dropout2d, Dropout3d } from "./layers/dropout"
export { Embedding } from "./layers/embedding"
export { FullyShardedModule, type FullyShardOptions, fullyShard } from "./layers/fully-sharded"
export { Bilinear, Identity, Linear } from "./layers/linear"
export { BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm } from "./layers/normalization"
export * from "./layers/pooling"
export { ALiBi, RoPE, SinusoidalPositionalEncoding } from "./layers/positional-encoding"
export {
  QQLinear,
  type QuantizationOptions,
  QuantizedEmbedding,
  QuantizedLinear,
  type QuantizePredicate,
  quantize,
  type ToQuantizedOptions,
} from "./layers/quantized"
export { GRU, LSTM, RNN } from "./layers/recurrent"
export { groupsOverlap, lengthOfPart, partOf, type Shard } from "./layers/shard"
export {
  AllToShardedLinear,
  QuantizedAllToShardedLinear,
  QuantizedShardedToAllLinear,
  type ShardedParameters,
  ShardedToAllLinear,
  type Sharding,
  type ShardOptions,
  shardLinear,
  sumGradients,
} from "./layers/sharded"
export { shardedModules } from "./layers/sharded-modules"
export * from "./layers/transformer"
export { Upsample, type UpsampleMode, type UpsampleOptions } from "./layers/upsample"
export * as losses from "./losses"
export * as utils from "./model-functions"
export { valueAndGrad } from "./model-transforms"
export { type Model, Module, type ModuleFilter, type ModuleTree } from "./module"
export type { FreezeOptions } from "./module-options"
export type { ParametersOf, ParameterTree } from "./parameter-tree"
