/**
 * Linear, Bilinear and Identity.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, asCall, timesTransposed, withOwnHandles } from "@lazuli/core/engine"
import { called, checkArrays, checkFeatures, named, under } from "../arguments"
import { Module } from "../module"
import {
  QQLinear,
  QuantizedLinear,
  type ToQuantizedOptions,
  toQuantizedArguments,
  withActivations,
} from "./quantized"

/**
 * Returns its input. Constructor arguments are ignored, so that it can replace any layer.
 * @example
 * new nn.Identity().forward(mx.array([1])).tolist() // => [1]
 */
export class Identity extends Module {
  constructor(..._args: unknown[]) {
    super()
  }
  forward(x: mx.Array): mx.Array {
    checkArrays(this, { x })
    return withOwnHandles(x, [x])
  }
}

/**
 * y = x Wᵀ + b, over the last axis of x. `weight` is [outputDims, inputDims], `bias` [outputDims]; both are initialized uniformly on
 * ±1/√inputDims.
 * @example
 * new nn.Linear(2, 3).forward(mx.ones([4, 2])).shape // => [4, 3]
 */
export class Linear extends Module {
  weight: mx.Array
  bias?: mx.Array

  constructor(inputDims: number, outputDims: number, bias?: boolean)
  constructor(inputDims: number, outputDims: number, options: { bias?: boolean })
  constructor(options: { inputDims: number; outputDims: number; bias?: boolean })
  constructor(...args: unknown[]) {
    super()
    const [inputDims, outputDims, bias = true] = named<[number, number, boolean?]>(
      "Linear",
      { inputDims: "count", outputDims: "size", bias: "bool?" },
      args,
    )
    const scale = Math.sqrt(1 / inputDims)
    this.weight = mx.random.uniform(-scale, scale, [outputDims, inputDims])
    if (bias) this.bias = mx.random.uniform(-scale, scale, [outputDims])
  }

  forward(x: mx.Array): mx.Array {
    const { weight, bias } = this
    return called(
      this,
      { x },
      () => timesTransposed(x, weight, bias),
      () => ({ x: weight.node.shape[1] }),
    )
  }

  /**
   * A copy of this layer with quantized weights; with `quantizeInput` (modes nvfp4 and mxfp8), it also quantizes its input.
   * @throws ArgumentError for a format that `mx.quantize` does not have
   * @example
   * new nn.Linear(64, 3).toQuantized({ bits: 8 }).weight.shape // => [3, 16]
   */
  toQuantized(
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
    quantizeInput?: boolean,
  ): QuantizedLinear | QQLinear
  toQuantized(options: ToQuantizedOptions): QuantizedLinear | QQLinear
  toQuantized(...args: unknown[]): QuantizedLinear | QQLinear {
    const { quantizeInput, activations, ...format } = toQuantizedArguments(args)
    if (!quantizeInput)
      return under("toQuantized", () =>
        withActivations(QuantizedLinear.fromLinear(this, format), activations),
      )
    if (format.mode !== "nvfp4" && format.mode !== "mxfp8")
      throw new ArgumentError(
        "toQuantized",
        `inputs are quantized in mode nvfp4 or mxfp8, received ${format.mode}`,
      )
    return under("toQuantized", () => QQLinear.fromLinear(this, format))
  }

  protected override extraRepr(): string {
    const [outputDims, inputDims] = this.weight.shape
    return `inputDims=${inputDims}, outputDims=${outputDims}, bias=${this.bias !== undefined}`
  }
}

const bilinear = asCall("@lazuli/nn/bilinear", (x1: mx.Array, x2: mx.Array, weight: mx.Array): mx.Array => {
  const [out, in2, in1] = weight.shape
  const batch = x1.shape.slice(0, -1)
  const rows = x1.reshape([-1, in1])
  const columns = x2.reshape([-1, 1, in2])
  // One product of x₁ for all outputs leaves a vector of length in2 for each.
  const left = mx.matmul(rows, weight.reshape([out * in2, in1]).T)
  const y = mx.matmul(columns, left.reshape([-1, out, in2]).swapaxes(-2, -1)).squeeze(1)
  return y.reshape([...batch, out])
})

/**
 * yₖ = x₁ᵀ Wₖ x₂ + bₖ, over the last axes of x₁ and x₂. `weight` is [outputDims, input2Dims, input1Dims].
 * @example
 * new nn.Bilinear(2, 3, 4).forward(mx.ones([5, 2]), mx.ones([5, 3])).shape // => [5, 4]
 */
export class Bilinear extends Module {
  weight: mx.Array
  bias?: mx.Array

  constructor(input1Dims: number, input2Dims: number, outputDims: number, bias?: boolean)
  constructor(input1Dims: number, input2Dims: number, outputDims: number, options: { bias?: boolean })
  constructor(options: { input1Dims: number; input2Dims: number; outputDims: number; bias?: boolean })
  constructor(...args: unknown[]) {
    super()
    const [input1Dims, input2Dims, outputDims, bias = true] = named<[number, number, number, boolean?]>(
      "Bilinear",
      { input1Dims: "count", input2Dims: "size", outputDims: "size", bias: "bool?" },
      args,
    )
    const scale = Math.sqrt(1 / input1Dims)
    this.weight = mx.random.uniform(-scale, scale, [outputDims, input2Dims, input1Dims])
    if (bias) this.bias = mx.random.uniform(-scale, scale, [outputDims])
  }

  forward(x1: mx.Array, x2: mx.Array): mx.Array {
    const { weight, bias } = this
    return called(this, { x1, x2 }, () => {
      const [, in2, in1] = weight.node.shape
      checkFeatures(this, { x1, x2 }, { x1: in1, x2: in2 })
      const y = bilinear(x1, x2, weight)
      return bias ? y.add(bias) : y
    })
  }

  protected override extraRepr(): string {
    const [out, in2, in1] = this.weight.shape
    return `input1Dims=${in1}, input2Dims=${in2}, outputDims=${out}, bias=${this.bias !== undefined}`
  }
}
