/**
 * Gradient checkpointing block by block: of each block only the input is kept for the gradient, and the rest computed again when the
 * gradient reaches it. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016: https://arxiv.org/abs/1604.06174
 */
import type * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import type { Network } from "../models/network"

type Block = nn.Model<[x: mx.Array, ...rest: unknown[]]>

/** Lists of blocks are fields named `layers` or `h`. */
const BLOCK = /(^|\.)(layers|h)\.\d+$/

/** Makes the blocks of a network checkpoints. Gives what makes them as they were. */
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
    // The class's own method comes to light again.
    for (const block of blocks) Reflect.deleteProperty(block, "forward")
  }
}
