/**
 * Training on several processes. The layers that are spread over members are `nn`'s own.
 */
import "../index"

export { type HasState, hasSharded, loadSharded, saveSharded } from "./checkpoints"
export { type DataParallelOptions, dataParallel, shareParameters } from "./data-parallel"
export { RankSampler, type RankSamplerOptions, type SamplerState } from "./rank-sampler"
