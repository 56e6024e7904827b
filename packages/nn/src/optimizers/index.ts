/**
 * The public names of @lazuli/nn/optimizers: `optim.*`.
 */
export { AdaDelta, type AdaDeltaOptions } from "./adadelta"
export { Adafactor, type AdafactorOptions } from "./adafactor"
export { Adagrad } from "./adagrad"
export {
  Adam,
  Adamax,
  type AdamaxOptions,
  type AdamOptions,
  AdamW,
  type AdamWOptions,
  type Betas,
} from "./adam"
export { clipGradNorm } from "./clip"
export { Lion, type LionOptions } from "./lion"
export { MultiOptimizer, type ParameterFilter } from "./multi-optimizer"
export { Muon, type MuonOptions } from "./muon"
export { type LearningRate, Optimizer, type OptimizerState, type ParameterState } from "./optimizer"
export { RMSprop, type RMSpropOptions } from "./rmsprop"
export {
  cosineDecay,
  exponentialDecay,
  joinSchedules,
  linearSchedule,
  type Schedule,
  type StepSchedule,
  stepDecay,
} from "./schedulers"
export { SGD, type SGDOptions } from "./sgd"
