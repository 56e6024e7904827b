/**
 * `nn.utils`: functions of models and of their gradients.
 */
export { averageGradients, clipGradNormSharded } from "./gradient-exchange"
export { checkpoint, valueAndGrad } from "./model-transforms"
