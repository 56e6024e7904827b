/**
 * Modules that call other modules.
 */
import type * as mx from "@lazuli/core"
import { ArgumentError, describe, withOwnHandles } from "@lazuli/core/engine"
import { checkArrays } from "../arguments"
import { type Model, Module } from "../module"

/** A module or function of one array. */
export type Layer = Model | ((x: mx.Array) => mx.Array)

/**
 * Applies modules or functions in sequence, each to the result of the previous one.
 * @example
 * new nn.Sequential(new nn.Linear(2, 8), nn.relu, new nn.Linear(8, 1)).forward(mx.ones([3, 2])).shape
 * // => [3, 1]
 */
export class Sequential extends Module {
  layers: Layer[]

  constructor(...modules: Layer[]) {
    super()
    modules.forEach((layer, i) => {
      if (
        typeof layer !== "function" &&
        typeof (layer as { forward?: unknown } | null)?.forward !== "function"
      )
        throw new ArgumentError(
          "Sequential",
          `layer ${i} must be a module with a forward, or a function, received ${describe(layer)}`,
        )
    })
    this.layers = modules
  }

  forward(x: mx.Array): mx.Array {
    checkArrays(this, { x })
    let y = x
    for (const layer of this.layers) y = typeof layer === "function" ? layer(y) : layer.forward(y)
    return withOwnHandles(y, [x])
  }
}
