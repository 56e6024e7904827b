/**
 * Language models on Lazuli arrays: `import * as lm from "@lazuli/lm"`.
 */
export type { Progress } from "./formats/folder"
export { type LoadedModel, type LoadModelOptions, load } from "./formats/load"
export type { Choice, SamplingOptions } from "./generate/sampler"
export {
  type FinishReason,
  type GenerateOptions,
  generate,
  type Piece,
  type Prompt,
  stream,
} from "./generate/stream"
export { CausalNetwork, EncoderNetwork, type Family, type Network, type Weights } from "./models/network"
export { modelTypes, registerFamily } from "./models/registry"
export { Detokenizer } from "./text/detokenizer"
export { type ChatOptions, type Message, Tokenizer, type TokenizerFiles } from "./text/tokenizer"
