/**
 * Layers with quantized weights, and `quantize`, which converts the layers of a model. The formats are those of `mx.quantize`.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  asCall,
  describe,
  type Kind,
  LazuliError,
  ofUser,
  resolveFormat,
} from "@lazuli/core/engine"
import { about, aModule, called, named, under } from "../arguments"
import { Module } from "../module"

/** A quantization format; by default, group size and bits are those of the mode. */
export interface QuantizationOptions {
  /** The number of elements that share a scale. */
  groupSize?: number | null
  /** Bits per element. */
  bits?: number | null
  mode?: mx.QuantizationMode
}
/** Options of quantizing a layer. */
export interface ToQuantizedOptions extends QuantizationOptions {
  /** True if a linear layer also quantizes its input; only in modes nvfp4 and mxfp8. */
  quantizeInput?: boolean
  /** The rounding of the layer's input; see the layer's `activations`. */
  activations?: mx.ProductActivations
}
/** The arrays of a linear layer. */
interface LinearLike extends Module {
  weight: mx.Array
  bias?: mx.Array
}
/** One row for each element of x, in the shape of x. */
const inShapeOf = asCall(
  "@lazuli/nn/inShapeOf",
  (rows: mx.Array, x: mx.Array): mx.Array => rows.reshape([...x.shape, rows.shape[1]]),
)
type Format = ReturnType<typeof resolveFormat>

// Classes must not refer to themselves by name: bundlers would then rename them, which would change errors and `toString`. Functions
// outside of a class create its instances instead.

/** The parameters of a format. @internal */
export const FORMAT = {
  groupSize: "count?",
  bits: "count?",
  mode: ["affine", "mxfp4", "nvfp4", "mxfp8"],
} as const
const ACTIVATIONS = ["exact", "int8"] as const

/** A layer with a matrix of weights. */
const weighted: Kind = {
  expected: "a layer with a weight of two dimensions",
  accepts: (value: unknown) => value instanceof Module && (value as { weight?: mx.Array }).weight?.ndim === 2,
}

/** A matrix of packed weights: the base of QuantizedLinear and QuantizedEmbedding. */
class Packed extends Module {
  readonly groupSize: number
  readonly bits: number
  readonly mode: mx.QuantizationMode
  weight: mx.Array
  scales: mx.Array
  biases?: mx.Array
  /** The rounding of the layer's input, as in `mx.quantizedMatmul`; none by default. May be set at any time. */
  activations: mx.ProductActivations = "exact"

  constructor(weight: mx.Array, { groupSize, bits, mode }: Format) {
    super()
    this.groupSize = groupSize
    this.bits = bits
    this.mode = mode
    const [packed, scales, biases] = under(new.target.name, () =>
      mx.quantize(weight, { groupSize, bits, mode }),
    )
    this.weight = packed
    this.scales = scales
    if (biases) this.biases = biases
  }

  /** @internal */
  protected format(): Format {
    const { groupSize, bits, mode } = this
    return { groupSize, bits, mode }
  }
  /** Features of the rows that are packed. @internal */
  protected get inputs(): number {
    return (this.weight.node.shape[1] * 32) / this.bits
  }
  /** x Wᵀ. @internal */
  protected multiply(x: mx.Array): mx.Array {
    const { weight, scales, biases, activations } = this
    return mx.quantizedMatmul(x, weight, scales, biases, { ...this.format(), activations })
  }
  /** @internal */
  protected formatRepr(): string {
    const rounding = this.activations === "exact" ? "" : `, activations=${this.activations}`
    return `groupSize=${this.groupSize}, bits=${this.bits}, mode=${this.mode}${rounding}`
  }
}

/** A layer created by `make`, with its weights replaced by those of another layer. */
function repack<L extends Packed>(layer: L, weight: mx.Array): L {
  const { groupSize, bits, mode } = layer
  const [packed, scales, biases] = mx.quantize(weight, { groupSize, bits, mode })
  layer.weight = packed
  layer.scales = scales
  if (biases) layer.biases = biases
  return layer
}

/**
 * {@link Linear} with a quantized weight, whose parameters are frozen. `weight`, `scales` and `biases` are those of `mx.quantize`,
 * `bias` is [outputDims].
 * @example
 * const layer = new nn.QuantizedLinear(64, 3, { bits: 8 })
 * Object.keys(layer.parameters()) // => ['weight', 'scales', 'biases', 'bias']
 * layer.forward(mx.ones([2, 64])).shape // => [2, 3]
 */
export class QuantizedLinear extends Packed {
  bias?: mx.Array

  constructor(
    inputDims: number,
    outputDims: number,
    bias?: boolean,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
  )
  constructor(inputDims: number, outputDims: number, options: { bias?: boolean } & QuantizationOptions)
  constructor(options: { inputDims: number; outputDims: number; bias?: boolean } & QuantizationOptions)
  constructor(...args: unknown[]) {
    const [inputDims, outputDims, bias = true, groupSize, bits, mode = "affine"] = named<
      [number, number, boolean?, (number | null)?, (number | null)?, mx.QuantizationMode?]
    >("QuantizedLinear", { inputDims: "count", outputDims: "size", bias: "bool?", ...FORMAT }, args)
    const format = resolveFormat(new.target.name, groupSize, bits, mode)
    const scale = Math.sqrt(1 / inputDims)
    super(mx.random.uniform(-scale, scale, [outputDims, inputDims]), format)
    if (bias) this.bias = mx.zeros([outputDims])
    this.freeze()
  }

  forward(x: mx.Array): mx.Array {
    return called(
      this,
      { x },
      () => {
        const y = this.multiply(x)
        return this.bias ? y.add(this.bias) : y
      },
      () => ({ x: this.inputs }),
    )
  }

  protected override extraRepr(): string {
    const [outputDims, words] = this.weight.shape
    return `inputDims=${(words * 32) / this.bits}, outputDims=${outputDims}, bias=${this.bias !== undefined}, ${this.formatRepr()}`
  }

  /**
   * A linear layer, quantized.
   * @example
   * nn.QuantizedLinear.fromLinear(new nn.Linear(64, 3), { bits: 2 }).weight.shape // => [3, 4]
   */
  static fromLinear(
    layer: LinearLike,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
  ): QuantizedLinear
  static fromLinear(layer: LinearLike, options: QuantizationOptions): QuantizedLinear
  static fromLinear(...args: unknown[]): QuantizedLinear {
    return quantizedLinear(args)
  }
}

function quantizedLinear(args: readonly unknown[]): QuantizedLinear {
  const [layer, groupSize, bits, mode = "affine"] = named<
    [LinearLike, number?, number?, mx.QuantizationMode?]
  >("fromLinear", { layer: weighted, ...FORMAT }, args)
  const [outputDims, inputDims] = layer.weight.shape
  const made = under("fromLinear", () =>
    repack(new QuantizedLinear(inputDims, outputDims, false, groupSize, bits, mode), layer.weight),
  )
  if (layer.bias) made.bias = layer.bias
  return made
}

/**
 * {@link Embedding} with quantized weights, whose parameters are frozen.
 * @example
 * new nn.QuantizedEmbedding(10, 64).forward(mx.array([1, 5, 1], mx.int32)).shape // => [3, 64]
 */
export class QuantizedEmbedding extends Packed {
  constructor(
    numEmbeddings: number,
    dims: number,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
  )
  constructor(numEmbeddings: number, dims: number, options: QuantizationOptions)
  constructor(options: { numEmbeddings: number; dims: number } & QuantizationOptions)
  constructor(...args: unknown[]) {
    const [numEmbeddings, dims, groupSize, bits, mode = "affine"] = named<
      [number, number, (number | null)?, (number | null)?, mx.QuantizationMode?]
    >("QuantizedEmbedding", { numEmbeddings: "size", dims: "count", ...FORMAT }, args)
    const format = resolveFormat("QuantizedEmbedding", groupSize, bits, mode)
    const table = mx.random.normal([numEmbeddings, dims], { scale: Math.sqrt(1 / dims) })
    super(table, format)
    this.freeze()
  }

  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => {
      const rows = x.flatten()
      const at = (a: mx.Array): mx.Array => mx.take(a, rows, 0)
      const { weight, scales, biases } = this
      const y = mx.dequantize(at(weight), at(scales), biases && at(biases), this.format())
      return inShapeOf(y, x)
    })
  }

  /**
   * x Wᵀ: the embedding as an output projection with tied weights.
   * @example
   * new nn.QuantizedEmbedding(10, 64).asLinear(mx.ones([2, 64])).shape // => [2, 10]
   */
  asLinear(x: mx.Array): mx.Array {
    return called(
      this,
      { x },
      () => this.multiply(x),
      () => ({ x: this.inputs }),
    )
  }

  protected override extraRepr(): string {
    const [numEmbeddings, words] = this.weight.shape
    return `${numEmbeddings}, ${(words * 32) / this.bits}, ${this.formatRepr()}`
  }

  /** A quantized copy of an embedding. */
  static fromEmbedding(
    layer: Module & { weight: mx.Array },
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
  ): QuantizedEmbedding
  static fromEmbedding(layer: Module & { weight: mx.Array }, options: QuantizationOptions): QuantizedEmbedding
  static fromEmbedding(...args: unknown[]): QuantizedEmbedding {
    return quantizedEmbedding(args)
  }
}

function quantizedEmbedding(args: readonly unknown[]): QuantizedEmbedding {
  const [layer, groupSize, bits, mode = "affine"] = named<
    [Module & { weight: mx.Array }, number?, number?, mx.QuantizationMode?]
  >("fromEmbedding", { layer: weighted, ...FORMAT }, args)
  const [numEmbeddings, dims] = layer.weight.shape
  return under("fromEmbedding", () =>
    repack(new QuantizedEmbedding(numEmbeddings, dims, groupSize, bits, mode), layer.weight),
  )
}

/**
 * {@link Linear} that quantizes both its input and its weight; see `mx.qqmm`. In training mode the weight is an unpacked, trainable matrix,
 * rounded in each call; `eval()` packs it and `train()` unpacks it. Created without a bias, but the bias of a converted layer is kept.
 * @example
 * const layer = new nn.QQLinear(32, 3, { mode: 'mxfp8' })
 * layer.eval()
 * Object.keys(layer.parameters()) // => ['weight', 'scales']
 * layer.forward(mx.ones([2, 32])).shape // => [2, 3]
 */
export class QQLinear extends Module {
  readonly groupSize: number
  readonly bits: number
  readonly mode: mx.QuantizationMode
  weight: mx.Array
  scales?: mx.Array
  bias?: mx.Array
  private _dtype: mx.Dtype

  constructor(
    inputDims: number,
    outputDims: number,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
  )
  constructor(inputDims: number, outputDims: number, options: QuantizationOptions)
  constructor(options: { inputDims: number; outputDims: number } & QuantizationOptions)
  constructor(...args: unknown[]) {
    super()
    const [inputDims, outputDims, groupSize, bits, mode = "nvfp4"] = named<
      [number, number, (number | null)?, (number | null)?, mx.QuantizationMode?]
    >("QQLinear", { inputDims: "count", outputDims: "size", ...FORMAT }, args)
    const format = resolveFormat("QQLinear", groupSize, bits, mode)
    if (mode === "affine")
      throw new ArgumentError("QQLinear", "quantizes to floats: mode must be nvfp4, mxfp8 or mxfp4")
    this.groupSize = format.groupSize
    this.bits = format.bits
    this.mode = format.mode
    const scale = Math.sqrt(1 / inputDims)
    this.weight = mx.random.uniform(-scale, scale, [outputDims, inputDims])
    this._dtype = this.weight.dtype
  }

  forward(x: mx.Array): mx.Array {
    const { groupSize, bits, mode, scales, bias } = this
    return called(
      this,
      { x },
      () => {
        const y = mx.qqmm(x, this.weight, { scales, groupSize, bits, mode })
        return bias ? y.add(bias) : y
      },
      () => ({ x: this.inputs }),
    )
  }

  /** The number of features per row of the weight, packed or not. */
  private get inputs(): number {
    const columns = this.weight.node.shape[1]
    return this.scales ? (columns * 32) / this.bits : columns
  }

  /** Packs the weight, if unpacked. */
  quantize(): this {
    if (this.scales) return this
    const { groupSize, bits, mode } = this
    const [weight, scales] = under(this.constructor.name, () =>
      mx.quantize(this.weight, { groupSize, bits, mode }),
    )
    this._dtype = this.weight.dtype
    this.weight = weight
    this.scales = scales
    return this
  }

  /** Unpacks the weight into its original dtype, if packed. */
  dequantize(): this {
    const { groupSize, bits, mode, scales, _dtype: dtype } = this
    if (!scales) return this
    this.weight = mx.dequantize(this.weight, scales, { groupSize, bits, mode, dtype })
    delete this.scales
    return this
  }

  /** @internal */
  override _setTraining(mode: boolean): void {
    super._setTraining(mode)
    if (mode) this.dequantize()
    else this.quantize()
  }

  protected override extraRepr(): string {
    return `inputDims=${this.inputs}, outputDims=${this.weight.shape[0]}, bias=${this.bias !== undefined}, groupSize=${this.groupSize}, bits=${this.bits}, mode=${this.mode}`
  }

  /** A copy of a linear layer that also quantizes its input, in the same training mode. */
  static fromLinear(
    layer: LinearLike,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
  ): QQLinear
  static fromLinear(layer: LinearLike, options: QuantizationOptions): QQLinear
  static fromLinear(...args: unknown[]): QQLinear {
    return qqLinear(args)
  }
}

function qqLinear(args: readonly unknown[]): QQLinear {
  const [layer, groupSize, bits, mode = "nvfp4"] = named<
    [LinearLike, number?, number?, mx.QuantizationMode?]
  >("fromLinear", { layer: weighted, ...FORMAT }, args)
  const [outputDims, inputDims] = layer.weight.shape
  const made = under("fromLinear", () => new QQLinear(inputDims, outputDims, groupSize, bits, mode))
  made.weight = layer.weight
  if (layer.bias) made.bias = layer.bias
  return made.train(layer.training)
}

/** A layer that {@link quantize} can replace. */
interface Quantizable extends Module {
  toQuantized(options: ToQuantizedOptions): Module
}
const isQuantizable = (module: Module): module is Quantizable =>
  typeof (module as { toQuantized?: unknown }).toQuantized === "function"

/** Selects modules by path: false, true, or options for this module. */
export type QuantizePredicate = (path: string, module: Module) => boolean | ToQuantizedOptions

/**
 * Replaces layers of a model by quantized ones, in place: all with a method `toQuantized`, such as {@link Linear} and {@link Embedding}, or
 * those that `classPredicate` selects. Returns the model.
 * @throws ArgumentError if the predicate selects a layer without a quantized form
 * @example
 * const model = new nn.Sequential(new nn.Linear(64, 64), new nn.ReLU(), new nn.Linear(64, 2))
 * nn.quantize(model, { bits: 8, classPredicate: (path) => path === 'layers.0' })
 * model.layers.map((layer) => layer.constructor.name) // => ['QuantizedLinear', 'ReLU', 'Linear']
 */
export function quantize<M extends Module>(
  model: M,
  groupSize?: number | null,
  bits?: number | null,
  options?: Omit<ToQuantizedOptions, "groupSize" | "bits"> & { classPredicate?: QuantizePredicate | null },
): M
export function quantize<M extends Module>(
  model: M,
  options: ToQuantizedOptions & { classPredicate?: QuantizePredicate | null },
): M
export function quantize(...args: unknown[]): Module {
  const [
    model,
    groupSize,
    bits,
    mode,
    quantizeInput,
    classPredicate = (_, m) => isQuantizable(m),
    activations,
  ] = named<
    [Module, number?, number?, mx.QuantizationMode?, boolean?, QuantizePredicate?, mx.ProductActivations?]
  >(
    "quantize",
    {
      model: aModule,
      ...FORMAT,
      quantizeInput: "bool?",
      classPredicate: "function?",
      activations: ACTIVATIONS,
    },
    args,
  )
  const common: ToQuantizedOptions = { groupSize, bits, mode, quantizeInput, activations }
  // Also validated if no layer is replaced.
  resolveFormat("quantize", groupSize, bits, mode ?? "affine")
  const replace = (path: string, module: Module): Module => {
    const answer = ofUser(() => classPredicate(path, module))
    if (answer === false) return module
    if (answer !== true && (typeof answer !== "object" || answer === null))
      throw new ArgumentError(
        "quantize",
        `classPredicate must return a boolean or options, received ${describe(answer)} for "${path}"`,
      )
    if (!isQuantizable(module))
      throw new ArgumentError("quantize", `"${path}" (${module.constructor.name}) has no quantized form`)
    try {
      return module.toQuantized(answer === true ? common : answer)
    } catch (error) {
      if (!(error instanceof LazuliError)) throw error
      throw about(error, "quantize", `"${path}" (${module.constructor.name})`)
    }
  }
  const leaves = mx.treeMapWithPath(replace, model.leafModules(), Module.isModule)
  return model.updateModules(leaves)
}

/**
 * The arguments of the layers' `toQuantized`.
 * @internal
 */
export function toQuantizedArguments(
  args: readonly unknown[],
): Required<Pick<ToQuantizedOptions, "mode" | "quantizeInput" | "activations">> & QuantizationOptions {
  const [groupSize, bits, mode = "affine", quantizeInput = false, activations = "exact"] = named<
    [number?, number?, mx.QuantizationMode?, boolean?, mx.ProductActivations?]
  >("toQuantized", { ...FORMAT, quantizeInput: "bool?", activations: ACTIVATIONS }, args)
  if (quantizeInput && activations !== "exact")
    throw new ArgumentError("toQuantized", "quantizeInput and activations exclude each other")
  return { groupSize, bits, mode, quantizeInput, activations }
}

/** A layer that may round its input. @internal */
export function withActivations<L extends Packed>(layer: L, activations: mx.ProductActivations): L {
  layer.activations = activations
  return layer
}
