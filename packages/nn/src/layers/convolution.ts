/**
 * Convolutional layers, channels last: Conv1d to Conv3d, and their transposes, which upsample.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, type Kind, type Signature } from "@lazuli/core/engine"
import { called, named, optional, perAxisOf } from "../arguments"
import { Module } from "../module"

/** One number for all spatial axes, or one for each. */
type Sizes = number | readonly number[]

/** Options of convolutions; `S` is the type of sizes: a number or, over several axes, also one per axis. */
export interface ConvOptions<S = Sizes> {
  /** Distance between the elements of the kernel; 1 by default. */
  stride?: S
  /** Zeros added at both ends; 0 by default. */
  padding?: S
  /** Distance between neighbours in the kernel; 1 by default. */
  dilation?: S
  /** Add a bias; true by default. */
  bias?: boolean
}
/** Options of grouped convolutions. */
export interface GroupedConvOptions<S = Sizes> extends ConvOptions<S> {
  /** The number of groups of independent channels; 1 by default. */
  groups?: number
}
/** Options of transposed convolutions. */
export interface ConvTransposeOptions<S = Sizes> extends ConvOptions<S> {
  /** Additional size at the high end of the output; 0 by default. */
  outputPadding?: S
}

type Given = [
  inChannels: number,
  outChannels: number,
  kernelSize: Sizes,
  stride?: Sizes,
  padding?: Sizes,
  dilation?: Sizes,
  ...rest: unknown[],
]

/** The base of convolutional layers. */
abstract class Convolution extends Module {
  weight: mx.Array
  bias?: mx.Array
  stride: number[]
  padding: number[]
  dilation: number[]
  groups: number
  /** Used by the transposed layers. */
  protected readonly outputPadding: number[]

  /** `order` lists the positional arguments after the dilation, as in MLX. */
  constructor(op: string, axes: number, order: readonly string[], args: readonly unknown[]) {
    super()
    const sizes = (least: number): Kind => optional(perAxisOf(axes, least))
    const last: Signature = { groups: "count?", bias: "bool?", outputPadding: sizes(0) }
    const signature: Record<string, Signature[string]> = {
      inChannels: "count",
      outChannels: "count",
      kernelSize: perAxisOf(axes, 1),
      stride: sizes(1),
      padding: sizes(0),
      dilation: sizes(1),
    }
    for (const name of order) signature[name] = last[name]
    const [inputs, outputs, kernelSize, stride = 1, padding = 0, dilation = 1, ...rest] = named<Given>(
      op,
      signature,
      args,
    )
    const own = (name: string): unknown => rest[order.indexOf(name)]
    const perAxis = (value: Sizes): number[] =>
      typeof value === "number" ? Array.from({ length: axes }, () => value) : [...value]
    const size = perAxis(kernelSize)
    this.stride = perAxis(stride)
    this.padding = perAxis(padding)
    this.dilation = perAxis(dilation)
    this.groups = (own("groups") ?? 1) as number
    for (const [name, n] of [
      ["inChannels", inputs],
      ["outChannels", outputs],
    ] as const)
      if (n % this.groups !== 0)
        throw new ArgumentError(op, `${name} ${n} cannot be divided into ${this.groups} groups`)
    const scale = Math.sqrt(1 / size.reduce((product, n) => product * n, inputs))
    this.weight = mx.random.uniform(-scale, scale, [outputs, ...size, inputs / this.groups])
    if (own("bias") ?? true) this.bias = mx.zeros([outputs])
    this.outputPadding = perAxis((own("outputPadding") ?? 0) as Sizes)
  }

  /** The convolution itself. */
  protected abstract convolve(x: mx.Array): mx.Array

  /** @param x - [batch, …, inChannels] */
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => {
      const y = this.convolve(x)
      return this.bias ? y.add(this.bias) : y
    })
  }

  protected override extraRepr(): string {
    const { weight, stride, padding, dilation, groups } = this
    const { shape } = weight
    return [
      `inChannels=${shape[shape.length - 1] * groups}`,
      `outChannels=${shape[0]}`,
      `kernelSize=[${shape.slice(1, -1)}]`,
      `stride=[${stride}]`,
      `padding=[${padding}]`,
      `dilation=[${dilation}]`,
      ...(this.outputPadding.some((n) => n > 0) ? [`outputPadding=[${this.outputPadding}]`] : []),
      `groups=${groups}`,
      `bias=${this.bias !== undefined}`,
    ].join(", ")
  }
}

const one = ([n]: readonly number[]): number => n

/**
 * Convolution over [batch, length, channels]. `weight` is [outChannels, kernelSize, inChannels / groups] and starts uniform on
 * ±1/√(inChannels · kernelSize); `bias` is [outChannels] and starts at 0.
 * @throws ArgumentError unless sizes are positive integers and channels divisible by the groups
 * @example
 * new nn.Conv1d(3, 8, 5, { padding: 2 }).forward(mx.ones([2, 16, 3])).shape // => [2, 16, 8]
 */
export class Conv1d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number,
    stride?: number,
    padding?: number,
    dilation?: number,
    groups?: number,
    bias?: boolean,
  )
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number,
    options: GroupedConvOptions<number>,
  )
  constructor(
    options: { inChannels: number; outChannels: number; kernelSize: number } & GroupedConvOptions<number>,
  )
  // By hand: the base class takes the order of the arguments after the dilation.
  constructor(...args: unknown[]) {
    super("Conv1d", 1, ["groups", "bias"], args)
  }
  protected convolve(x: mx.Array): mx.Array {
    return mx.conv1d(x, this.weight, one(this.stride), one(this.padding), one(this.dilation), this.groups)
  }
}

/**
 * Convolution over [batch, height, width, channels]. `weight` is [outChannels, height, width, inChannels / groups] and starts uniform on
 * ±1/√(inChannels · kernel size); `bias` is [outChannels] and starts at 0.
 * @throws ArgumentError unless sizes are positive integers and channels divisible by the groups
 * @example
 * new nn.Conv2d(3, 8, 3, { stride: 2, padding: 1 }).forward(mx.ones([1, 16, 16, 3])).shape // => [1, 8, 8, 8]
 */
export class Conv2d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Sizes,
    stride?: Sizes,
    padding?: Sizes,
    dilation?: Sizes,
    groups?: number,
    bias?: boolean,
  )
  constructor(inChannels: number, outChannels: number, kernelSize: Sizes, options: GroupedConvOptions)
  constructor(options: { inChannels: number; outChannels: number; kernelSize: Sizes } & GroupedConvOptions)
  // By hand: the base class takes the order of the arguments after the dilation.
  constructor(...args: unknown[]) {
    super("Conv2d", 2, ["groups", "bias"], args)
  }
  protected convolve(x: mx.Array): mx.Array {
    return mx.conv2d(x, this.weight, this.stride, this.padding, this.dilation, this.groups)
  }
}

/**
 * Convolution over [batch, depth, height, width, channels]. `weight` is [outChannels, depth, height, width, inChannels] and starts uniform
 * on ±1/√(inChannels · kernel size); `bias` is [outChannels] and starts at 0.
 * @throws ArgumentError unless sizes are positive integers
 * @example
 * new nn.Conv3d(1, 4, [1, 3, 3]).forward(mx.ones([1, 2, 8, 8, 1])).shape // => [1, 2, 6, 6, 4]
 */
export class Conv3d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Sizes,
    stride?: Sizes,
    padding?: Sizes,
    dilation?: Sizes,
    bias?: boolean,
  )
  constructor(inChannels: number, outChannels: number, kernelSize: Sizes, options: ConvOptions)
  constructor(options: { inChannels: number; outChannels: number; kernelSize: Sizes } & ConvOptions)
  // By hand: the base class takes the order of the arguments after the dilation.
  constructor(...args: unknown[]) {
    super("Conv3d", 3, ["bias"], args)
  }
  protected convolve(x: mx.Array): mx.Array {
    return mx.conv3d(x, this.weight, this.stride, this.padding, this.dilation)
  }
}

/**
 * Transposed convolution over [batch, length, channels], which upsamples by its stride; see `mx.convTranspose1d`. `weight` is [outChannels,
 * kernelSize, inChannels] and starts uniform on ±1/√(inChannels · kernelSize); `bias` is [outChannels] and starts at 0.
 * @throws ArgumentError unless sizes are positive integers
 * @example
 * new nn.ConvTranspose1d(3, 8, 2, { stride: 2 }).forward(mx.ones([2, 16, 3])).shape // => [2, 32, 8]
 */
export class ConvTranspose1d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number,
    stride?: number,
    padding?: number,
    dilation?: number,
    outputPadding?: number,
    bias?: boolean,
  )
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number,
    options: ConvTransposeOptions<number>,
  )
  constructor(
    options: { inChannels: number; outChannels: number; kernelSize: number } & ConvTransposeOptions<number>,
  )
  // By hand: the base class takes the order of the arguments after the dilation.
  constructor(...args: unknown[]) {
    super("ConvTranspose1d", 1, ["outputPadding", "bias"], args)
  }
  protected convolve(x: mx.Array): mx.Array {
    const [stride, padding, dilation] = [one(this.stride), one(this.padding), one(this.dilation)]
    return mx.convTranspose1d(x, this.weight, stride, padding, dilation, one(this.outputPadding))
  }
}

/**
 * Transposed convolution over [batch, height, width, channels], which upsamples by its stride; see `mx.convTranspose2d`. `weight` is
 * [outChannels, height, width, inChannels] and starts uniform on ±1/√(inChannels · kernel size); `bias` is [outChannels] and starts at 0.
 * @throws ArgumentError unless sizes are positive integers
 * @example
 * new nn.ConvTranspose2d(3, 8, 2, { stride: 2 }).forward(mx.ones([1, 4, 4, 3])).shape // => [1, 8, 8, 8]
 */
export class ConvTranspose2d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Sizes,
    stride?: Sizes,
    padding?: Sizes,
    dilation?: Sizes,
    outputPadding?: Sizes,
    bias?: boolean,
  )
  constructor(inChannels: number, outChannels: number, kernelSize: Sizes, options: ConvTransposeOptions)
  constructor(options: { inChannels: number; outChannels: number; kernelSize: Sizes } & ConvTransposeOptions)
  // By hand: the base class takes the order of the arguments after the dilation.
  constructor(...args: unknown[]) {
    super("ConvTranspose2d", 2, ["outputPadding", "bias"], args)
  }
  protected convolve(x: mx.Array): mx.Array {
    return mx.convTranspose2d(x, this.weight, this.stride, this.padding, this.dilation, this.outputPadding)
  }
}

/**
 * Transposed convolution over [batch, depth, height, width, channels], which upsamples by its stride; see `mx.convTranspose3d`. `weight` is
 * [outChannels, depth, height, width, inChannels] and starts uniform on ±1/√(inChannels · kernel size); `bias` is [outChannels] and starts
 * at 0.
 * @throws ArgumentError unless sizes are positive integers
 * @example
 * new nn.ConvTranspose3d(1, 2, 2, { stride: 2 }).forward(mx.ones([1, 2, 3, 3, 1])).shape // => [1, 4, 6, 6, 2]
 */
export class ConvTranspose3d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Sizes,
    stride?: Sizes,
    padding?: Sizes,
    dilation?: Sizes,
    outputPadding?: Sizes,
    bias?: boolean,
  )
  constructor(inChannels: number, outChannels: number, kernelSize: Sizes, options: ConvTransposeOptions)
  constructor(options: { inChannels: number; outChannels: number; kernelSize: Sizes } & ConvTransposeOptions)
  // By hand: the base class takes the order of the arguments after the dilation.
  constructor(...args: unknown[]) {
    super("ConvTranspose3d", 3, ["outputPadding", "bias"], args)
  }
  protected convolve(x: mx.Array): mx.Array {
    return mx.convTranspose3d(x, this.weight, this.stride, this.padding, this.dilation, this.outputPadding)
  }
}
