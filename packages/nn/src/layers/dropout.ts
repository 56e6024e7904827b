/**
 * Dropout: in training mode, zeros random elements or whole channels and scales up the rest; in evaluation mode, the identity.
 */
import * as mx from "@lazuli/core"
import { asCall, format, ShapeError, withOwnHandles } from "@lazuli/core/engine"
import { belowOne, called, named, optional } from "../arguments"
import { Module } from "../module"

/** Keeps elements with probability `keep` and scales them by 1 / keep, with one mask for the `whole` axes before the last. */
const drop = asCall("@lazuli/nn/dropout", (x: mx.Array, keep: number, whole: number): mx.Array => {
  const shape = x.shape.map((n, i) => (i < x.ndim - 1 && i >= x.ndim - 1 - whole ? 1 : n))
  return mx.random
    .bernoulli(keep, shape)
    .multiply(x)
    .multiply(1 / keep)
})

/** The base of dropout layers. */
abstract class DropoutBase extends Module {
  p: number

  constructor(op: string, args: readonly unknown[]) {
    super()
    const [p = 0.5] = named<[number?]>(op, { p: optional(belowOne) }, args)
    this.p = p
  }

  /** True if dropout is the identity. */
  protected get idle(): boolean {
    return this.p === 0 || !this.training
  }

  /** Drops whole channels of an array with `axes` spatial axes, with or without a batch axis. */
  protected dropChannels(x: mx.Array, axes: number): mx.Array {
    return called(this, { x }, () => {
      const { shape } = x.node
      if (shape.length !== axes + 1 && shape.length !== axes + 2)
        throw new ShapeError(
          this.constructor.name,
          `expects an array of ${axes + 1} or ${axes + 2} dimensions, received shape ${format(shape)}`,
        )
      return this.idle ? withOwnHandles(x, [x]) : drop(x, 1 - this.p, axes)
    })
  }

  protected override extraRepr(): string {
    return `p=${this.p}`
  }
}

/**
 * Zeros each element with probability p and scales the others by 1 / (1 − p). https://jmlr.org/papers/v15/srivastava14a.html
 * @throws ArgumentError unless 0 ≤ p < 1
 * @example
 * new nn.Dropout(0.5).eval().forward(mx.array([1, 2])).tolist() // => [1, 2]
 */
export class Dropout extends DropoutBase {
  constructor(p?: number)
  constructor(options: { p?: number })
  constructor(...args: unknown[]) {
    super("Dropout", args)
  }

  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => (this.idle ? withOwnHandles(x, [x]) : drop(x, 1 - this.p, 0)))
  }
}

/**
 * Zeros whole channels of images [N, H, W, C] or [H, W, C] with probability p and scales the others. https://arxiv.org/abs/1411.4280
 * @throws ArgumentError unless 0 ≤ p < 1; ShapeError for another number of dimensions
 * @example
 * new nn.Dropout2d(0.5).forward(mx.ones([1, 2, 2, 3])).shape // => [1, 2, 2, 3]
 */
export class Dropout2d extends DropoutBase {
  constructor(p?: number)
  constructor(options: { p?: number })
  constructor(...args: unknown[]) {
    super("Dropout2d", args)
  }

  forward(x: mx.Array): mx.Array {
    return this.dropChannels(x, 2)
  }
}

/**
 * Zeros whole channels of volumes [N, D, H, W, C] or [D, H, W, C] with probability p and scales the others.
 * @throws ArgumentError unless 0 ≤ p < 1; ShapeError for another number of dimensions
 * @example
 * new nn.Dropout3d(0.5).forward(mx.ones([1, 2, 2, 2, 3])).shape // => [1, 2, 2, 2, 3]
 */
export class Dropout3d extends DropoutBase {
  constructor(p?: number)
  constructor(options: { p?: number })
  constructor(...args: unknown[]) {
    super("Dropout3d", args)
  }

  forward(x: mx.Array): mx.Array {
    return this.dropChannels(x, 3)
  }
}
