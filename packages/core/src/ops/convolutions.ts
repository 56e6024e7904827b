/**
 * Convolutions and transposed convolutions over one, two and three spatial axes, channels last; and the convolution of sequences. It is
 * long because there are many overloads.
 */
import { asArrayArgument, isList, operation, type StreamOptions } from "../graph/args"
import { promote } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { format } from "../graph/shape"
import { toDtype } from "./constant"
import { type ConvParams, conv, convShape } from "./conv"

/** A parameter as one number per axis. @throws ArgumentError */
function perAxis(op: string, name: string, value: unknown, axes: number, least: number): number[] {
  const list = isList(value) ? value : globalThis.Array.from({ length: axes }, () => value)
  if (list.length !== axes || !list.every((n) => Number.isSafeInteger(n) && (n as number) >= least)) {
    const bound = least > Number.MIN_SAFE_INTEGER ? ` of at least ${least}` : ""
    throw new ArgumentError(
      op,
      `${name} must be an integer${bound}${axes > 1 || isList(value) ? `, or a list of ${axes}` : ""}, received ${isList(value) ? `[${value.map(plain).join(", ")}]` : describe(value)}`,
    )
  }
  return list as number[]
}

/** Formats an element of a list for an error. */
const plain = (value: unknown): string => (typeof value === "number" ? String(value) : describe(value))

function checkGroups(op: string, groups: unknown): number {
  if (Number.isSafeInteger(groups) && (groups as number) >= 1) return groups as number
  throw new ArgumentError(op, `groups must be an integer of at least 1, received ${describe(groups)}`)
}

/** Validates both arrays, promotes them to one dtype and convolves. */
function apply(op: string, input: unknown, weight: unknown, params: ConvParams): Array {
  const x = asArrayArgument(op, "input", input)
  const w = asArrayArgument(op, "weight", weight)
  convShape(op, x, w, params)
  const dtype = promote(x.dtype, w.dtype)
  return conv([toDtype(x, dtype), toDtype(w, dtype)], params)
}

const ones = (axes: number): number[] => globalThis.Array.from({ length: axes }, () => 1)

/** The body of conv1d, conv2d or conv3d. */
function forward<S>(op: string, axes: number): (args: readonly unknown[]) => Array {
  return operation(
    op,
    {
      input: "array",
      weight: "array",
      stride: "integers?",
      padding: "any?",
      dilation: "integers?",
      groups: "integer?",
    },
    (input: Array, weight: Array, stride?: S, padding?: S, dilation?: S, groups: number = 1) => {
      const pad = perAxis(op, "padding", padding ?? 0, axes, 0)
      return apply(op, input, weight, {
        stride: perAxis(op, "stride", stride ?? 1, axes, 1),
        low: pad,
        high: pad,
        kernelDilation: perAxis(op, "dilation", dilation ?? 1, axes, 1),
        inputDilation: ones(axes),
        groups: checkGroups(op, groups ?? 1),
        flip: false,
      })
    },
  )
}

/**
 * The body of convTranspose1d, 2d or 3d: a convolution with a flipped kernel of the input dilated by the stride, padded by the kernel's
 * extent minus the padding.
 */
function backward<S>(op: string, axes: number): (args: readonly unknown[]) => Array {
  return operation(
    op,
    {
      input: "array",
      weight: "array",
      stride: "integers?",
      padding: "any?",
      dilation: "integers?",
      outputPadding: "integers?",
      groups: "integer?",
    },
    (
      input: Array,
      weight: Array,
      stride?: S,
      padding?: S,
      dilation?: S,
      outputPadding?: S,
      groups: number = 1,
    ) => {
      const pad = perAxis(op, "padding", padding ?? 0, axes, 0)
      const more = perAxis(op, "outputPadding", outputPadding ?? 0, axes, 0)
      const kernelDilation = perAxis(op, "dilation", dilation ?? 1, axes, 1)
      const { shape } = weight
      const low = pad.map((n, i) => kernelDilation[i] * ((shape[i + 1] ?? 1) - 1) - n)
      return apply(op, input, weight, {
        stride: ones(axes),
        low,
        high: low.map((n, i) => n + more[i]),
        kernelDilation,
        inputDilation: perAxis(op, "stride", stride ?? 1, axes, 1),
        groups: checkGroups(op, groups ?? 1),
        flip: true,
      })
    },
  )
}

const conv1dArgs = forward<number>("conv1d", 1)
const conv2dArgs = forward<number | readonly number[]>("conv2d", 2)
const conv3dArgs = forward<number | readonly number[]>("conv3d", 3)
const convTranspose1dArgs = backward<number>("convTranspose1d", 1)
const convTranspose2dArgs = backward<number | readonly number[]>("convTranspose2d", 2)
const convTranspose3dArgs = backward<number | readonly number[]>("convTranspose3d", 3)

/**
 * 1-d convolution: input [batch, length, channels], weight [output channels, size, channels / groups], result
 * [batch, 1 + ⌊(length + 2 · padding − dilation · (size − 1) − 1) / stride⌋, output channels]. The kernel is not flipped
 * (cross-correlation). 16-bit floats are accumulated in float32.
 * @throws ShapeError if the channels do not match or the kernel is larger than the padded input; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1 or a negative padding
 * @example
 * const x = mx.array([1, 2, 3, 4]).reshape([1, 4, 1])
 * mx.conv1d(x, mx.array([1, -1]).reshape([1, 2, 1])).flatten().tolist() // => [-1, -1, -1]
 */
export function conv1d(
  input: Array,
  weight: Array,
  stride?: number,
  padding?: number,
  dilation?: number,
  groups?: number,
  options?: StreamOptions,
): Array
export function conv1d(
  input: Array,
  weight: Array,
  stride: number,
  options: { padding?: number; dilation?: number; groups?: number } & StreamOptions,
): Array
export function conv1d(
  input: Array,
  weight: Array,
  options: { stride?: number; padding?: number; dilation?: number; groups?: number } & StreamOptions,
): Array
export function conv1d(...args: unknown[]): Array {
  return conv1dArgs(args)
}

/**
 * 2-d convolution: input [batch, height, width, channels], weight [output channels, height, width, channels / groups], result
 * [batch, height, width, output channels] with the sizes of {@link conv1d} for each axis. Parameters are one number, or one per axis.
 * @throws ShapeError if the channels do not match or the kernel is larger than the padded input; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1 or a negative padding
 * @example
 * mx.conv2d(mx.ones([8, 32, 32, 3]), mx.ones([16, 3, 3, 3]), { padding: 1, stride: 2 }).shape // => [8, 16, 16, 16]
 */
export function conv2d(
  input: Array,
  weight: Array,
  stride?: number | readonly number[],
  padding?: number | readonly number[],
  dilation?: number | readonly number[],
  groups?: number,
  options?: StreamOptions,
): Array
export function conv2d(
  input: Array,
  weight: Array,
  stride: number | readonly number[],
  options: {
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function conv2d(
  input: Array,
  weight: Array,
  options: {
    stride?: number | readonly number[]
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function conv2d(...args: unknown[]): Array {
  return conv2dArgs(args)
}

/**
 * 3-d convolution: input [batch, depth, height, width, channels], weight [output channels, depth, height, width, channels /
 * groups]. Parameters are one number, or one per axis; see {@link conv1d} for the sizes of the result.
 * @throws ShapeError if the channels do not match or the kernel is larger than the padded input; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1 or a negative padding
 * @example
 * mx.conv3d(mx.ones([1, 4, 8, 8, 2]), mx.ones([5, 2, 3, 3, 2]), { padding: [0, 1, 1] }).shape // => [1, 3, 8, 8, 5]
 */
export function conv3d(
  input: Array,
  weight: Array,
  stride?: number | readonly number[],
  padding?: number | readonly number[],
  dilation?: number | readonly number[],
  groups?: number,
  options?: StreamOptions,
): Array
export function conv3d(
  input: Array,
  weight: Array,
  stride: number | readonly number[],
  options: {
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function conv3d(
  input: Array,
  weight: Array,
  options: {
    stride?: number | readonly number[]
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function conv3d(...args: unknown[]): Array {
  return conv3dArgs(args)
}

/**
 * Transposed 1-d convolution: the transpose of {@link conv1d} as a linear map of its input, with the kernel's input and output channels
 * swapped. Input [batch, length, channels], weight [output channels, size, channels / groups], result of length (length − 1) · stride − 2 ·
 * padding + dilation · (size − 1) + 1 + outputPadding, where outputPadding selects one of the lengths that the stride maps to the same
 * output length.
 * @throws ShapeError if the channels do not match or the padding leaves nothing; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1 or a negative padding
 * @example
 * const x = mx.array([1, 2]).reshape([1, 2, 1])
 * mx.convTranspose1d(x, mx.ones([1, 2, 1]), { stride: 2 }).flatten().tolist() // => [1, 1, 2, 2]
 */
export function convTranspose1d(
  input: Array,
  weight: Array,
  stride?: number,
  padding?: number,
  dilation?: number,
  outputPadding?: number,
  groups?: number,
  options?: StreamOptions,
): Array
export function convTranspose1d(
  input: Array,
  weight: Array,
  stride: number,
  options: { padding?: number; dilation?: number; outputPadding?: number; groups?: number } & StreamOptions,
): Array
export function convTranspose1d(
  input: Array,
  weight: Array,
  options: {
    stride?: number
    padding?: number
    dilation?: number
    outputPadding?: number
    groups?: number
  } & StreamOptions,
): Array
export function convTranspose1d(...args: unknown[]): Array {
  return convTranspose1dArgs(args)
}

/**
 * Transposed 2-d convolution: the transpose of {@link conv2d}. Input [batch, height, width, channels], weight [output channels, height,
 * width, channels / groups]. The size of each axis is that of {@link convTranspose1d}.
 * @throws ShapeError if the channels do not match or the padding leaves nothing; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1 or a negative padding
 * @example
 * mx.convTranspose2d(mx.ones([1, 8, 8, 4]), mx.ones([2, 3, 3, 4]), { stride: 2, padding: 1, outputPadding: 1 }).shape // => [1, 16, 16, 2]
 */
export function convTranspose2d(
  input: Array,
  weight: Array,
  stride?: number | readonly number[],
  padding?: number | readonly number[],
  dilation?: number | readonly number[],
  outputPadding?: number | readonly number[],
  groups?: number,
  options?: StreamOptions,
): Array
export function convTranspose2d(
  input: Array,
  weight: Array,
  stride: number | readonly number[],
  options: {
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    outputPadding?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function convTranspose2d(
  input: Array,
  weight: Array,
  options: {
    stride?: number | readonly number[]
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    outputPadding?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function convTranspose2d(...args: unknown[]): Array {
  return convTranspose2dArgs(args)
}

/**
 * Transposed 3-d convolution: the transpose of {@link conv3d}. Input [batch, depth, height, width, channels], weight [output channels,
 * depth, height, width, channels / groups]. The size of each axis is that of {@link convTranspose1d}.
 * @throws ShapeError if the channels do not match or the padding leaves nothing; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1 or a negative padding
 * @example
 * mx.convTranspose3d(mx.ones([1, 2, 4, 4, 3]), mx.ones([1, 2, 2, 2, 3]), 2).shape // => [1, 4, 8, 8, 1]
 */
export function convTranspose3d(
  input: Array,
  weight: Array,
  stride?: number | readonly number[],
  padding?: number | readonly number[],
  dilation?: number | readonly number[],
  outputPadding?: number | readonly number[],
  groups?: number,
  options?: StreamOptions,
): Array
export function convTranspose3d(
  input: Array,
  weight: Array,
  stride: number | readonly number[],
  options: {
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    outputPadding?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function convTranspose3d(
  input: Array,
  weight: Array,
  options: {
    stride?: number | readonly number[]
    padding?: number | readonly number[]
    dilation?: number | readonly number[]
    outputPadding?: number | readonly number[]
    groups?: number
  } & StreamOptions,
): Array
export function convTranspose3d(...args: unknown[]): Array {
  return convTranspose3dArgs(args)
}

const convGeneralArgs = operation(
  "convGeneral",
  {
    input: "array",
    weight: "array",
    stride: "integers?",
    padding: "any?",
    kernelDilation: "integers?",
    inputDilation: "integers?",
    groups: "integer?",
    flip: "bool?",
  },
  (
    x: Array,
    weight: Array,
    stride: number | readonly number[] = 1,
    padding: number | readonly number[] | readonly [low: readonly number[], high: readonly number[]] = 0,
    kernelDilation: number | readonly number[] = 1,
    inputDilation: number | readonly number[] = 1,
    groups: number = 1,
    flip: boolean = false,
  ): Array => {
    const op = "convGeneral"
    const axes = x.ndim - 2
    if (axes < 1 || axes > 3)
      throw new ShapeError(
        op,
        `the input must be [batch, one to three axes, channels], received shape ${format(x.shape)}`,
      )
    const any = Number.MIN_SAFE_INTEGER
    const pair = isList(padding) && padding.some(isList)
    if (pair && (padding.length !== 2 || !padding.every(isList)))
      throw new ArgumentError(
        op,
        `padding must be a number, a list of ${axes}, or a pair of such lists for the low and the high ends, received a list of ${padding.length}`,
      )
    const ends = pair ? padding : [padding ?? 0, padding ?? 0]
    // A list of one element is for all axes.
    const numbers = (name: string, value: unknown, least: number): number[] =>
      perAxis(op, name, isList(value) && value.length === 1 ? value[0] : value, axes, least)
    return apply(op, x, weight, {
      stride: numbers("stride", stride ?? 1, 1),
      low: numbers("padding", ends[0], any),
      high: numbers("padding", ends[1], any),
      kernelDilation: numbers("kernelDilation", kernelDilation ?? 1, 1),
      inputDilation: numbers("inputDilation", inputDilation ?? 1, 1),
      groups: checkGroups(op, groups ?? 1),
      flip: Boolean(flip),
    })
  },
)
/**
 * General convolution over one to three spatial axes: input [batch, …, channels], weight [output channels, …, channels / groups].
 * Parameters are one number, or one per axis.
 * `inputDilation` inserts zeros between the input's elements. `padding` may be a pair of lists, for the low and high ends of the axes;
 * negative padding crops. `flip` flips the kernel.
 * @throws ShapeError if the channels do not match or the kernel is larger than the padded input; DTypeError unless the input is floating
 * and the weight real; ArgumentError for a stride or dilation below 1
 * @example
 * const x = mx.array([1, 2, 3]).reshape([1, 3, 1])
 * const w = mx.array([1, 10]).reshape([1, 2, 1])
 * mx.convGeneral(x, w, { padding: [[1], [0]], flip: true }).flatten().tolist() // => [1, 12, 23]
 */
export function convGeneral(
  input: Array,
  weight: Array,
  stride?: number | readonly number[],
  padding?: number | readonly number[] | readonly [low: readonly number[], high: readonly number[]],
  kernelDilation?: number | readonly number[],
  inputDilation?: number | readonly number[],
  groups?: number,
  flip?: boolean,
  options?: StreamOptions,
): Array
export function convGeneral(
  input: Array,
  weight: Array,
  stride: number | readonly number[],
  options: {
    padding?: number | readonly number[] | readonly [low: readonly number[], high: readonly number[]]
    kernelDilation?: number | readonly number[]
    inputDilation?: number | readonly number[]
    groups?: number
    flip?: boolean
  } & StreamOptions,
): Array
export function convGeneral(
  input: Array,
  weight: Array,
  options: {
    stride?: number | readonly number[]
    padding?: number | readonly number[] | readonly [low: readonly number[], high: readonly number[]]
    kernelDilation?: number | readonly number[]
    inputDilation?: number | readonly number[]
    groups?: number
    flip?: boolean
  } & StreamOptions,
): Array
export function convGeneral(...args: unknown[]): Array {
  return convGeneralArgs(args)
}

const convolveArgs = operation(
  "convolve",
  { a: "array", v: "array", mode: ["full", "valid", "same"] },
  (first: Array, second: Array, mode: "full" | "valid" | "same" = "full"): Array => {
    const op = "convolve"
    let a = first
    let v = second
    for (const [name, x] of [
      ["a", a],
      ["v", v],
    ] as const) {
      if (x.ndim !== 1)
        throw new ShapeError(op, `${name} must have one dimension, received shape ${format(x.shape)}`)
      if (x.size === 0) throw new ShapeError(op, `${name} is empty`)
    }
    if (mode !== "full" && mode !== "valid" && mode !== "same")
      throw new ArgumentError(op, `mode must be "full", "valid" or "same", received ${describe(mode)}`)
    if (a.size < v.size) [a, v] = [v, a]
    if (a.dtype.kind !== "floating")
      throw new DTypeError(op, `a, or v if it is longer, must be floating, received ${a.dtype.name}`)
    const n = v.size
    const [low, high] =
      mode === "full" ? [n - 1, n - 1] : mode === "valid" ? [0, 0] : [n >> 1, n - 1 - (n >> 1)]
    return apply(op, a.reshape([1, -1, 1]), v.reshape([1, -1, 1]), {
      stride: [1],
      low: [low],
      high: [high],
      kernelDilation: [1],
      inputDilation: [1],
      groups: 1,
      flip: true,
    }).flatten()
  },
)
/**
 * The convolution of two sequences, Σⱼ a[i − j] · v[j], as NumPy's `convolve`. `'full'` returns every position where they overlap,
 * `'valid'` those where they overlap completely, `'same'` the middle part, of the length of the longer one.
 * @throws ShapeError unless both are 1-d and not empty; DTypeError unless the longer one is floating and the other real;
 * ArgumentError for another mode
 * @example
 * mx.convolve(mx.array([1, 2, 3]), mx.array([1, 1])).tolist() // => [1, 3, 5, 3]
 */
export function convolve(a: Array, v: Array, mode?: "full" | "valid" | "same", options?: StreamOptions): Array
export function convolve(
  a: Array,
  v: Array,
  options: { mode?: "full" | "valid" | "same" } & StreamOptions,
): Array
export function convolve(...args: unknown[]): Array {
  return convolveArgs(args)
}
