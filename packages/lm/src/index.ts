/**
 * Language models on Lazuli arrays: `import * as lm from "@lazuli/lm"`.
 */
export type { Progress } from "./formats/folder"
export type { StoredFormat } from "./formats/gguf-stored"
export type { GgufType } from "./formats/gguf-write"
export type { HubOptions } from "./formats/hub"
export { fromConfig, type LoadedModel, type LoadModelOptions, load } from "./formats/load"
export { type QuantizeModelOptions, quantize, type SaveOptions, save } from "./formats/save"
export { Batcher, BusyError } from "./generate/batch"
export type { BatchOptions } from "./generate/batch-options"
export { type CacheOptions, loadPromptCache, makeCache, savePromptCache } from "./generate/caches"
export { type EmbedOptions, embed, rerank } from "./generate/embed"
export type { GenerateOptions } from "./generate/options"
export { PrefixStore } from "./generate/prefixes"
export type { Prompt } from "./generate/prompts"
export type { Choice, SamplingOptions } from "./generate/sampler"
export type { StepOptions } from "./generate/steps"
export { generate, stream } from "./generate/stream"
export type { FinishReason, Piece } from "./generate/writer"
export { type AttentionRules, attend, Pass } from "./models/attend"
export {
  type Cache,
  type CacheState,
  cacheBytes,
  cacheLength,
  type LayerCache,
  type LayerShape,
} from "./models/cache"
export { Decoder, type DecoderPlan, type NormOrder } from "./models/decoder"
export { type ExpertSizes, SparseFeedForward, stackExperts } from "./models/experts"
export {
  attentionSizesOf,
  llamaPlan,
  rmsNorm,
  sanitizeDecoder,
  windowsOf,
} from "./models/families/llama"
export {
  type Activation,
  Attention,
  type AttentionSizes,
  activationOf,
  GatedFeedForward,
  type MakeNorm,
} from "./models/layers"
export {
  CausalNetwork,
  EncoderNetwork,
  type Family,
  type Network,
  type PeftNames,
  type Weights,
} from "./models/network"
export { modelTypes, registerFamily } from "./models/registry"
export { type Rope, type RopeChoice, ropeOf } from "./models/rope"
export { type Json, type JsonObject, Settings } from "./models/settings"
export { type ShardModelOptions, shardModel } from "./models/tensor-parallel"
export { createServer, type LanguageServer } from "./server/server"
export type { ServerOptions } from "./server/server-options"
export { Detokenizer } from "./text/detokenizer"
export { type ChatOptions, type Message, Tokenizer, type TokenizerFiles } from "./text/tokenizer"
export { type AdapterForm, loadAdapters, saveAdapters } from "./tune/adapter-files"
export { type DatasetOptions, type Example, readDataset } from "./tune/dataset"
export {
  addAdapters,
  type FuseOptions,
  type FuseReport,
  fuseAdapters,
  type LoraOptions,
} from "./tune/lora"
export { LoraLinear } from "./tune/lora-layers"
export { evaluate, type StepReport, type TrainOptions, train } from "./tune/train"
