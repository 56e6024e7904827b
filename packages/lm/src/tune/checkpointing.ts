/**
 * Gradient checkpointing: only the input of each block is kept, and its activations are recomputed for the gradient.
 * Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016: https://arxiv.org/abs/1604.06174
 */
import type * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import type { Network } from "../models/network"

type Block = nn.Model<[x: mx.Array, ...rest: unknown[]]>

/** Blocks are in lists named `layers` or `h`. */
const BLOCK = /(^|\.)(layers|h)\.\d+$/

/** Enables checkpointing for a network's blocks. Returns a function that disables it. */
export function checkpointBlocks(network: Network): () => void {
  const blocks = network
    .namedModules()
    .filter(([path]) => BLOCK.test(path))
    .map(([, module]) => module as Block)
  for (const block of blocks) {
    const forward = block.forward.bind(block)
    block.forward = (x, ...rest) =>
      nn.utils.checkpoint(block as nn.Model, (y: mx.Array) => forward(y, ...rest))(x)
  }
  return () => {
    // Uncovers the class's method.
    for (const block of blocks) Reflect.deleteProperty(block, "forward")
  }
}
