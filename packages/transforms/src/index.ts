/**
 * The public names of @lazuli/transforms.
 */
export { vmapLoops } from "./batch"
export { checkpoint } from "./checkpoint"
export { type Cotangents, type CustomFunction, customFunction, type Packed } from "./custom"
export { type Gradients, type GradOptions, grad, valueAndGrad } from "./grad"
export { hessian, type Jacobian, jacfwd, jacrev } from "./jacobian"
export { jvp } from "./jvp"
export { linearize } from "./linearize"
export { type Outputs, vjp } from "./vjp"
export { type Axes, type VmapOptions, vmap } from "./vmap"
