/**
 * The convolution primitive, over the spatial axes of [batch, …, channels]. Its derivatives are convolutions, too. The public functions are
 * in convolutions.ts.
 */
import { DTypeError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, sizeOf } from "../graph/shape"
import { zeros } from "./creation"
import { sliceRange } from "./slice"
import { moveToFront } from "./view"

/** One number per spatial axis. `low` and `high` are padding and may be negative. */
export type ConvParams = {
  readonly stride: readonly number[]
  readonly low: readonly number[]
  readonly high: readonly number[]
  readonly kernelDilation: readonly number[]
  readonly inputDilation: readonly number[]
  readonly groups: number
  /** Flip the kernel, as in the mathematical convolution. */
  readonly flip: boolean
}

/** The dilated length: n elements with `dilation` − 1 zeros in between. */
const dilated = (n: number, dilation: number): number => (n === 0 ? 0 : (n - 1) * dilation + 1)

/**
 * The output's shape: for each axis 1 + ⌊(dilated input + low + high − dilated kernel) / stride⌋.
 * @internal
 * @throws ShapeError, DTypeError
 */
export function convShape(op: string, x: Meta, w: Meta, p: ConvParams): number[] {
  if (x.dtype.kind !== "floating")
    throw new DTypeError(op, `the input must be floating, received ${x.dtype.name}`)
  if (w.dtype.kind === "complex")
    throw new DTypeError(op, `the weight must be real, received ${w.dtype.name}`)
  const [a, b] = [x.shape, w.shape]
  const axes = p.stride.length
  const layout = ["one axis", "two axes", "three axes"][axes - 1] ?? `${axes} axes`
  if (a.length !== axes + 2)
    throw new ShapeError(
      op,
      `the input must be [batch, ${layout}, channels], of ${axes + 2} dimensions, received shape ${format(a)}`,
    )
  if (b.length !== axes + 2)
    throw new ShapeError(
      op,
      `the weight must be [output channels, ${layout}, channels / groups], of ${axes + 2} dimensions, received shape ${format(b)}`,
    )
  const [channels, perGroup, outputs] = [a[axes + 1], b[axes + 1], b[0]]
  if (channels % p.groups !== 0)
    throw new ShapeError(
      op,
      `${channels} input channels cannot be divided into ${p.groups} groups: input ${format(a)}`,
    )
  if (outputs % p.groups !== 0)
    throw new ShapeError(
      op,
      `${outputs} output channels cannot be divided into ${p.groups} groups: weight ${format(b)}`,
    )
  if (perGroup * p.groups !== channels)
    throw new ShapeError(
      op,
      `the weight takes ${perGroup} channels${p.groups > 1 ? ` in each of ${p.groups} groups` : ""}, but the input has ${channels}: input ${format(a)}, weight ${format(b)}`,
      { hint: "Channels are the last axis of both" },
    )
  const shape = [a[0]]
  for (let i = 0; i < axes; i++) {
    const kernel = dilated(b[i + 1], p.kernelDilation[i])
    const span = dilated(a[i + 1], p.inputDilation[i]) + p.low[i] + p.high[i]
    if (kernel === 0) throw new ShapeError(op, `the kernel is empty along axis ${i + 1}: weight ${format(b)}`)
    if (kernel > span)
      throw new ShapeError(
        op,
        `the kernel spans ${kernel} along axis ${i + 1}, more than the input's ${span} with padding: input ${format(a)}, weight ${format(b)}`,
      )
    shape.push(1 + Math.floor((span - kernel) / p.stride[i]))
  }
  shape.push(outputs)
  return shape
}

/**
 * y[n, o, c] = Σ x[n, i, …] · w[c, k, …] over the pairs of kernel position k and input position i with i · inputDilation = o · stride +
 * k · kernelDilation − low, and over the channels of c's group.
 * @internal
 */
export const conv: Apply<ConvParams> = definePrimitive({
  name: "conv",
  params: {
    stride: "i64[]",
    low: "i64[]",
    high: "i64[]",
    kernelDilation: "i64[]",
    inputDilation: "i64[]",
    groups: "i64",
    flip: "bool",
  },
  infer: ([x, w], params) => ({ shape: convShape("conv", x, w, params), dtype: x.dtype }),
  reference: ([x, w], [out], params) => convolveHost(x, w, out, params),
  vjp: ({ inputs: [x, w], cotangents: [g], params, wanted }) => [
    wanted[0] ? inputGradient(x, w, g, params) : null,
    wanted[1] ? weightGradient(x, w, g, params) : null,
  ],
  jvp: ({ inputs: [x, w], tangents: [tx, tw], params }) => {
    const left = tx && conv([tx, w], params)
    const right = tw && conv([x, tw], params)
    return [left && right ? left.add(right) : (left ?? right)]
  },
  vmap: ({ inputs: [x, w], axes: [xAxis, wAxis], params, size }) => {
    const { groups } = params
    if (wAxis === null) {
      const examples = moveToFront(x, xAxis as number)
      const y = conv([examples.flatten(0, 1), w], params)
      return { outputs: [y.unflatten(0, [size, examples.shape[1]])], axes: [0] }
    }
    const kernels = moveToFront(w, wAxis)
    if (xAxis === null) {
      // Concatenates the examples' output channels within each group.
      const [, outputs, ...rest] = kernels.shape
      const inGroup = outputs / groups
      const merged = kernels
        .reshape([size, groups, inGroup, ...rest])
        .swapaxes(0, 1)
        .reshape([size * outputs, ...rest])
      const y = conv([x, merged], params)
      const last = y.ndim - 1
      const parted = y.reshape([...y.shape.slice(0, -1), groups, size, inGroup]).moveaxis(last + 1, 0)
      return { outputs: [parted.flatten(-2, -1)], axes: [0] }
    }
    // Each example becomes a group, or several.
    const examples = moveToFront(x, xAxis).moveaxis(0, -2)
    const y = conv([examples.flatten(-2, -1), kernels.flatten(0, 1)], { ...params, groups: groups * size })
    return { outputs: [y.unflatten(-1, [size, kernels.shape[1]])], axes: [y.ndim - 1] }
  },
})

const range = (n: number): number[] => globalThis.Array.from({ length: n }, (_, i) => i)

/** Swaps the kernel's input and output channels within each group. */
function transposeKernel(w: Array, groups: number): Array {
  if (groups === 1) return w.swapaxes(0, -1)
  return w
    .unflatten(0, [groups, w.shape[0] / groups])
    .swapaxes(1, -1)
    .flatten(0, 1)
}

/**
 * dx[i] = Σ g[o] · w[k] over o · stride = i · inputDilation + low − k · kernelDilation. With the kernel flipped, that is a convolution of g
 * with stride and input dilation swapped.
 */
function inputGradient(x: Array, w: Array, g: Array, p: ConvParams): Array {
  if (x.size === 0 || w.size === 0 || g.size === 0) return zeros(x.shape, x.dtype)
  const axes = p.stride.map((stride, i) => {
    const reach = (w.shape[i + 1] - 1) * p.kernelDilation[i]
    const low = reach - p.low[i]
    const length = dilated(x.shape[i + 1], p.inputDilation[i]) + reach
    return { low, high: length - low - dilated(g.shape[i + 1], stride) }
  })
  return conv([g, transposeKernel(w, p.groups)], {
    ...p,
    stride: p.inputDilation,
    inputDilation: p.stride,
    low: axes.map(({ low }) => low),
    high: axes.map(({ high }) => high),
    flip: !p.flip,
  })
}

/**
 * dw[k] = Σ x[i] · g[o] over the same triples: a convolution of x with the kernel g, with stride and kernel dilation swapped, channels as
 * the batch, and a sum over the batch. With groups, the batch is a spatial axis of x and g, so that both are views.
 */
function weightGradient(x: Array, w: Array, g: Array, p: ConvParams): Array {
  if (x.size === 0 || w.size === 0 || g.size === 0) return zeros(w.shape, w.dtype)
  const grouped = p.groups > 1
  const high = p.stride.map((stride, i) => {
    const length = dilated(g.shape[i + 1], stride) + (w.shape[i + 1] - 1) * p.kernelDilation[i]
    return length - p.low[i] - dilated(x.shape[i + 1], p.inputDilation[i])
  })
  const withGroups = (first: number, list: readonly number[]): readonly number[] =>
    grouped ? [first, ...list] : list
  const images = grouped
    ? moveToFront(x.unflatten(-1, [p.groups, x.shape[x.ndim - 1] / p.groups]), x.ndim)
    : x.swapaxes(0, -1)
  const kernels = grouped ? moveToFront(g, g.ndim - 1).expandDims(-1) : g.swapaxes(0, -1)
  let dw = conv([images, kernels], {
    stride: withGroups(1, p.kernelDilation),
    low: withGroups(0, p.low),
    high: withGroups(0, high),
    kernelDilation: withGroups(1, p.stride),
    inputDilation: withGroups(1, p.inputDilation),
    groups: p.groups,
    flip: false,
  })
  if (grouped) dw = dw.squeeze(1)
  dw = dw.swapaxes(0, -1)
  return p.flip ? reverseKernel(dw) : dw
}

/** Flips the spatial axes. */
function reverseKernel(w: Array): Array {
  const inner = (i: number): boolean => i > 0 && i < w.ndim - 1
  return sliceRange(
    w,
    w.shape.map((n, i) => (inner(i) ? n - 1 : 0)),
    w.shape.map((n, i) => (inner(i) ? -1 : n)),
    w.shape.map((_, i) => (inner(i) ? -1 : 1)),
  )
}

/** The pairs of kernel and input positions that contribute to each output position of an axis. */
function tapsAlong(
  x: HostArray,
  w: HostArray,
  out: HostArray,
  p: ConvParams,
  axis: number,
): [number, number][][] {
  const [n, kernel] = [x.shape[axis + 1], w.shape[axis + 1]]
  return range(out.shape[axis + 1]).map((o) =>
    range(kernel).flatMap((k): [number, number][] => {
      const at = o * p.stride[axis] + k * p.kernelDilation[axis] - p.low[axis]
      const i = at / p.inputDilation[axis]
      return Number.isInteger(i) && i >= 0 && i < n ? [[p.flip ? kernel - 1 - k : k, i]] : []
    }),
  )
}

function convolveHost(x: HostArray, w: HostArray, out: HostArray, p: ConvParams): void {
  if (out.data.length === 0) return
  const axes = p.stride.length
  const pairs = range(axes).map((axis) => tapsAlong(x, w, out, p, axis))
  const [outputs, perGroup] = [w.shape[0], w.shape[axes + 1]]
  const channels = perGroup * p.groups
  const inGroup = outputs / p.groups
  const positions = sizeOf(out.shape.slice(1, -1))
  const [image, kernel] = [sizeOf(x.shape.slice(1)), sizeOf(w.shape.slice(1))]
  for (let o = 0; o < positions; o++) {
    // The kernel and input elements of this output position, as offsets into one kernel and one image.
    let taps: [number, number][] = [[0, 0]]
    let rest = o
    let size = positions
    for (let axis = 0; axis < axes; axis++) {
      size /= out.shape[axis + 1]
      const along = pairs[axis][Math.floor(rest / size)]
      rest %= size
      taps = taps.flatMap(([k0, i0]) =>
        along.map(([k, i]): [number, number] => [k0 * w.shape[axis + 1] + k, i0 * x.shape[axis + 1] + i]),
      )
    }
    for (let n = 0; n < out.shape[0]; n++)
      for (let c = 0; c < outputs; c++) {
        const first = n * image + Math.floor(c / inGroup) * perGroup
        let sum = 0
        for (const [k, i] of taps)
          for (let j = 0; j < perGroup; j++)
            sum += x.data[first + i * channels + j] * w.data[c * kernel + k * perGroup + j]
        out.data[(n * positions + o) * outputs + c] = sum
      }
  }
}
