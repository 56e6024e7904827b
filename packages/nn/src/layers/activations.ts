/**
 * Activations as layers, for Sequential and wherever a module is required. Each applies the function of the same name in activations.ts.
 */
import * as mx from "@lazuli/core"
import {
  type Activation,
  celu,
  elu,
  gelu,
  geluApprox,
  geluFastApprox,
  glu,
  hardShrink,
  hardswish,
  hardTanh,
  leakyRelu,
  logSigmoid,
  logSoftmax,
  mish,
  prelu,
  relu,
  relu2,
  relu6,
  selu,
  sigmoid,
  silu,
  softmax,
  softmin,
  softplus,
  softshrink,
  softsign,
  step,
  tanh,
} from "../activations"
import { called, named } from "../arguments"
import { Module } from "../module"

/**
 * max(x, 0): {@link relu} as a layer.
 * @example
 * new nn.ReLU().forward(mx.array([-1, 2])).tolist() // => [0, 2]
 */
export class ReLU extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => relu(x))
  }
}

/**
 * max(x, 0)²: {@link relu2} as a layer.
 * @example
 * new nn.ReLU2().forward(mx.array([-1, 2])).tolist() // => [0, 4]
 */
export class ReLU2 extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => relu2(x))
  }
}

/**
 * min(max(x, 0), 6): {@link relu6} as a layer.
 * @example
 * new nn.ReLU6().forward(mx.array([-1, 9])).tolist() // => [0, 6]
 */
export class ReLU6 extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => relu6(x))
  }
}

/**
 * The scaled exponential linear unit: {@link selu} as a layer.
 * @example
 * new nn.SELU().forward(mx.array([0])).tolist() // => [0]
 */
export class SELU extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => selu(x))
  }
}

/**
 * 1 / (1 + e⁻ˣ): {@link sigmoid} as a layer.
 * @example
 * new nn.Sigmoid().forward(mx.array([0])).tolist() // => [0.5]
 */
export class Sigmoid extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => sigmoid(x))
  }
}

/**
 * log sigmoid(x): {@link logSigmoid} as a layer.
 * @example
 * new nn.LogSigmoid().forward(mx.array([1000])).tolist() // => [0]
 */
export class LogSigmoid extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => logSigmoid(x))
  }
}

/**
 * Hyperbolic tangent: {@link tanh} as a layer.
 * @example
 * new nn.Tanh().forward(mx.array([0])).tolist() // => [0]
 */
export class Tanh extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => tanh(x))
  }
}

/**
 * x · sigmoid(x): {@link silu} as a layer.
 * @example
 * new nn.SiLU().forward(mx.array([0])).tolist() // => [0]
 */
export class SiLU extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => silu(x))
  }
}

/**
 * log(1 + eˣ): {@link softplus} as a layer.
 * @example
 * new nn.Softplus().forward(mx.array([1000])).tolist() // => [1000]
 */
export class Softplus extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => softplus(x))
  }
}

/**
 * x / (1 + |x|): {@link softsign} as a layer.
 * @example
 * new nn.Softsign().forward(mx.array([3])).tolist() // => [0.75]
 */
export class Softsign extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => softsign(x))
  }
}

/**
 * min(max(x, −1), 1): {@link hardTanh} as a layer.
 * @example
 * new nn.HardTanh().forward(mx.array([-2, 0.5])).tolist() // => [-1, 0.5]
 */
export class HardTanh extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => hardTanh(x))
  }
}

/**
 * x · min(max(x + 3, 0), 6) / 6: {@link hardswish} as a layer.
 * @example
 * new nn.Hardswish().forward(mx.array([3])).tolist() // => [3]
 */
export class Hardswish extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => hardswish(x))
  }
}

/**
 * x · tanh(softplus(x)): {@link mish} as a layer.
 * @example
 * new nn.Mish().forward(mx.array([0])).tolist() // => [0]
 */
export class Mish extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => mish(x))
  }
}

/**
 * Softmax over the last axis: {@link softmax} as a layer.
 * @example
 * new nn.Softmax().forward(mx.array([0, 0])).tolist() // => [0.5, 0.5]
 */
export class Softmax extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => softmax(x))
  }
}

/**
 * Softmin over the last axis: {@link softmin} as a layer.
 * @example
 * new nn.Softmin().forward(mx.array([0, 0])).tolist() // => [0.5, 0.5]
 */
export class Softmin extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => softmin(x))
  }
}

/**
 * Logarithm of softmax over the last axis: {@link logSoftmax} as a layer.
 * @example
 * new nn.LogSoftmax().forward(mx.array([0, -1000])).tolist() // => [0, -1000]
 */
export class LogSoftmax extends Module {
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => logSoftmax(x))
  }
}

/**
 * max(negativeSlope · x, x): {@link leakyRelu} as a layer.
 * @example
 * new nn.LeakyReLU(0.5).forward(mx.array([-1, 2])).tolist() // => [-0.5, 2]
 */
export class LeakyReLU extends Module {
  negativeSlope: number
  constructor(negativeSlope?: number)
  constructor(options: { negativeSlope?: number })
  constructor(...args: unknown[]) {
    super()
    const [negativeSlope = 0.01] = named<[number?]>("LeakyReLU", { negativeSlope: "number?" }, args)
    this.negativeSlope = negativeSlope
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => leakyRelu(x, this.negativeSlope))
  }
}

/**
 * x for x > 0, otherwise alpha · (eˣ − 1): {@link elu} as a layer.
 * @example
 * new nn.ELU().forward(mx.array([0, 2])).tolist() // => [0, 2]
 */
export class ELU extends Module {
  alpha: number
  constructor(alpha?: number)
  constructor(options: { alpha?: number })
  constructor(...args: unknown[]) {
    super()
    const [alpha = 1] = named<[number?]>("ELU", { alpha: "number?" }, args)
    this.alpha = alpha
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => elu(x, this.alpha))
  }
}

/**
 * max(x, 0) + alpha · (exp(min(x, 0) / alpha) − 1): {@link celu} as a layer.
 * @example
 * new nn.CELU().forward(mx.array([0, 2])).tolist() // => [0, 2]
 */
export class CELU extends Module {
  alpha: number
  constructor(alpha?: number)
  constructor(options: { alpha?: number })
  constructor(...args: unknown[]) {
    super()
    const [alpha = 1] = named<[number?]>("CELU", { alpha: "positive?" }, args)
    this.alpha = alpha
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => celu(x, this.alpha))
  }
}

/**
 * x shrunk towards 0 by lambd, 0 if |x| ≤ lambd: {@link softshrink} as a layer.
 * @example
 * new nn.Softshrink().forward(mx.array([-2, 0.25])).tolist() // => [-1.5, 0]
 */
export class Softshrink extends Module {
  lambd: number
  constructor(lambd?: number)
  constructor(options: { lambd?: number })
  constructor(...args: unknown[]) {
    super()
    const [lambd = 0.5] = named<[number?]>("Softshrink", { lambd: "nonNegative?" }, args)
    this.lambd = lambd
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => softshrink(x, this.lambd))
  }
}

/**
 * x, but 0 if |x| ≤ lambd: {@link hardShrink} as a layer.
 * @example
 * new nn.HardShrink().forward(mx.array([-2, 0.25])).tolist() // => [-2, 0]
 */
export class HardShrink extends Module {
  lambd: number
  constructor(lambd?: number)
  constructor(options: { lambd?: number })
  constructor(...args: unknown[]) {
    super()
    const [lambd = 0.5] = named<[number?]>("HardShrink", { lambd: "nonNegative?" }, args)
    this.lambd = lambd
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => hardShrink(x, this.lambd))
  }
}

/**
 * 1 if x ≥ threshold, otherwise 0, as int32: {@link step} as a layer.
 * @example
 * new nn.Step().forward(mx.array([-1, 2])).tolist() // => [0, 1]
 */
export class Step extends Module {
  threshold: number
  constructor(threshold?: number)
  constructor(options: { threshold?: number })
  constructor(...args: unknown[]) {
    super()
    const [threshold = 0] = named<[number?]>("Step", { threshold: "number?" }, args)
    this.threshold = threshold
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => step(x, this.threshold))
  }
}

/**
 * The gated linear unit: the first half along the axis times the sigmoid of the second: {@link glu} as a layer.
 * @example
 * new nn.GLU().forward(mx.array([3, 0])).tolist() // => [1.5]
 */
export class GLU extends Module {
  axis: number
  constructor(axis?: number)
  constructor(options: { axis?: number })
  constructor(...args: unknown[]) {
    super()
    const [axis = -1] = named<[number?]>("GLU", { axis: "axis?" }, args)
    this.axis = axis
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => glu(x, this.axis))
  }
}

const gelus: Record<string, Activation> = {
  none: gelu,
  precise: geluApprox,
  tanh: geluApprox,
  fast: geluFastApprox,
}
/** The formula of {@link GELU}: exact, with tanh (`precise` or `tanh`), or with a sigmoid (`fast`). */
export type GeluApproximation = "none" | "precise" | "tanh" | "fast"

/**
 * x · Φ(x), exactly or approximated: {@link gelu}, {@link geluApprox} and {@link geluFastApprox} as a layer.
 * @throws ArgumentError for an unknown approximation
 * @example
 * new nn.GELU('fast').forward(mx.array([0])).tolist() // => [0]
 */
export class GELU extends Module {
  approx: GeluApproximation
  constructor(approx?: GeluApproximation)
  constructor(options: { approx?: GeluApproximation })
  constructor(...args: unknown[]) {
    super()
    const [approx = "none"] = named<[GeluApproximation?]>("GELU", { approx: Object.keys(gelus) }, args)
    this.approx = approx
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => gelus[this.approx](x))
  }
}

/**
 * max(x, 0) + weight · min(x, 0) with a learned weight, either shared or per feature: {@link prelu} as a layer.
 * @example
 * new nn.PReLU().forward(mx.array([-4, 2])).tolist() // => [-1, 2]
 */
export class PReLU extends Module {
  weight: mx.Array
  constructor(numParameters?: number, init?: number)
  constructor(numParameters: number, options: { init?: number })
  constructor(options: { numParameters?: number; init?: number })
  constructor(...args: unknown[]) {
    super()
    const [count = 1, init = 0.25] = named<[number?, number?]>(
      "PReLU",
      { numParameters: "count?", init: "number?" },
      args,
    )
    this.weight = mx.full([count], init)
  }
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => prelu(x, this.weight))
  }
}
