/**
 * Modules that call other modules.
 */
import type * as mx from "@lazuli/core"
import { withOwnHandles } from "@lazuli/core/engine"
import { Module } from "../module"

/** A module of one array, or a function of one. */
export type Layer = (Module & { forward(x: mx.Array): mx.Array }) | ((x: mx.Array) => mx.Array)

/**
 * Calls its modules one after the other, each with the result of the one before. Functions may stand among them.
 * @example
 * new nn.Sequential(new nn.Linear(2, 8), nn.relu, new nn.Linear(8, 1)).forward(mx.ones([3, 2])).shape
 * // => [3, 1]
 */
export class Sequential extends Module {
  layers: Layer[]

  constructor(...modules: Layer[]) {
    super()
    this.layers = modules
  }

  forward(x: mx.Array): mx.Array {
    let y = x
    for (const layer of this.layers) y = layer instanceof Module ? layer.forward(y) : layer(y)
    return withOwnHandles(y, [x])
  }
}
