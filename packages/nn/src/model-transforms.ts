/**
 * Transforms of functions that use a model: gradients with respect to its parameters, and checkpointing of a layer.
 */
import * as transforms from "@lazuli/transforms"
import { aModule, callable, check } from "./arguments"
import type { Model, Module } from "./module"
import type { ParametersOf } from "./parameter-tree"
import { withParameters } from "./with-parameters"

/**
 * A function that returns the value of `fn` and its gradient with respect to the model's trainable parameters, as a tree like
 * `model.trainableParameters()`. `fn` returns a scalar array, or a list that starts with one.
 *
 * @throws TransformError if the loss is not a scalar
 * @example
 * const model = new nn.Linear(1, 1, { bias: false })
 * const [loss, grads] = nn.valueAndGrad(model, (x) => model.forward(x).sum())(mx.array([[3]]))
 * grads.weight.tolist() // => [[3]]
 */
export function valueAndGrad<M extends Module, A extends unknown[], R>(
  model: M,
  fn: (...args: A) => R,
): (...args: A) => [value: R, grads: ParametersOf<M>] {
  check("valueAndGrad", { model: aModule, fn: "function" }, model, fn)
  const run = transforms.valueAndGrad((parameters: object, ...args: A) =>
    withParameters(model, parameters, () => fn(...args)),
  )
  return (...args) => run(model.trainableParameters(), ...args) as [R, ParametersOf<M>]
}

/**
 * Gradient checkpointing: a function like `fn` (by default the module's `forward`) that stores no intermediate values for the gradient, but
 * recomputes them. Also differentiates with respect to the module's trainable parameters.
 *
 * @example
 * const layer = new nn.Linear(2, 3)
 * nn.utils.checkpoint(layer)(mx.ones([1, 2])).shape // => [1, 3]
 */
export function checkpoint<A extends unknown[], R>(
  module: Model<A, R>,
  fn: (...args: A) => R = (...args) => module.forward(...args),
): (...args: A) => R {
  check("checkpoint", { module: callable, fn: "function" }, module, fn)
  const run = transforms.checkpoint((parameters: object, ...args: A) =>
    withParameters(module, parameters, () => fn(...args)),
  )
  return (...args) => run(module.trainableParameters(), ...args) as R
}
