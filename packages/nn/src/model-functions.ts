/**
 * `nn.utils`: functions on models and gradients.
 */
export { averageGradients, clipGradNormSharded } from "./gradient-exchange"
export { checkpoint, valueAndGrad } from "./model-transforms"
