/**
 * The public names of @lazuli/transforms.
 */
export { type Gradients, type GradOptions, grad, valueAndGrad } from './grad'
export { jvp } from './jvp'
export { type Outputs, vjp } from './vjp'
