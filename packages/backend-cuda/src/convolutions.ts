/**
 * Convolutions: in float32 by exact-convolutions.ts where that takes an application, otherwise by cuDNN: which applications it takes, and
 * how they are described to it. Gradients are convolutions too, and are recognized: of the images by a kernel that is read backwards, of
 * the kernel by one that spans the results.
 */
import { determinism, flagFrom, float32, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import {
  type DispatchQueue,
  encodeCopy,
  type Families,
  isCountable,
  type Location,
  locationOf,
  permuted,
  type View,
  viewOf,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import { type ConvolutionParams, encodeExact, isExact } from "./exact-convolutions"

/** The command's code; native/cuda/device.cc has the same. */
const CONVOLUTION = 33

/** `cudnnDataType_t` by dtype. */
const TYPES: Readonly<Record<string, number>> = { float32: 0, float64: 1, float16: 2, bfloat16: 9 }
/** `cudnnMathType_t`: tensor cores for 16 bits, and for float32 (by 19 bits) where somebody asks for that. */
const [ANY, TENSOR_CORES, EXACT] = [0, 1, 3]
const isShort = (): boolean => flagFrom("LAZULI_CUDA_TF32") === true
const mathOf = (dtype: string): number => {
  if (dtype === "float32") return isShort() ? ANY : EXACT
  return dtype === "float64" ? ANY : TENSOR_CORES
}

/** The array that is made; native/cuda/convolutions.h has the same. */
enum Form {
  Results = 0,
  Images = 1,
  Kernel = 2,
}

/** A convolution as the library has it: sizes of locations alone, channels and batch apart. */
interface Plain {
  readonly form: Form
  readonly batch: number
  readonly channels: number
  readonly outputs: number
  readonly images: readonly number[]
  readonly kernel: readonly number[]
  readonly results: readonly number[]
  readonly padding: readonly number[]
  readonly stride: readonly number[]
  readonly dilation: readonly number[]
}

const locations = ({ shape }: Node): readonly number[] => shape.slice(1, -1)
const isOnes = (list: readonly number[]): boolean => list.every((n) => n === 1)

/** True if images of these sizes have results of those, with the same padding on both sides. */
const isConsistent = ({ images, kernel, results, padding, stride, dilation }: Plain): boolean =>
  padding.every((n) => n >= 0) &&
  images.every(
    (n, i) =>
      1 + Math.floor((n + 2 * padding[i] - (kernel[i] - 1) * dilation[i] - 1) / stride[i]) === results[i],
  )

/** The convolution behind an application; null where the library has none. */
function plainOf(node: Node): Plain | null {
  const [x, w] = node.inputs
  const { stride, low, kernelDilation, inputDilation, groups, flip } =
    node.params as unknown as ConvolutionParams
  const last = node.shape.length - 1
  const [kernel, results] = [locations(w), locations(node)]
  let plain: Plain
  if (
    !flip &&
    isOnes(inputDilation) &&
    groups === 1 &&
    sizeOf(kernel) > sizeOf(results) &&
    sizeOf(kernel) > 64
  )
    plain = {
      form: Form.Kernel,
      batch: x.shape[last],
      channels: x.shape[0],
      outputs: w.shape[0],
      images: locations(x),
      kernel: results,
      results: kernel,
      padding: low,
      stride: kernelDilation,
      dilation: stride,
    }
  else if (!flip && isOnes(inputDilation))
    plain = {
      form: Form.Results,
      batch: x.shape[0],
      channels: x.shape[last],
      outputs: w.shape[0],
      images: locations(x),
      kernel,
      results,
      padding: low,
      stride,
      dilation: kernelDilation,
    }
  else if (flip && isOnes(stride) && groups === 1)
    plain = {
      form: Form.Images,
      batch: x.shape[0],
      channels: w.shape[0],
      outputs: x.shape[last],
      images: results,
      kernel,
      results: locations(x),
      padding: kernel.map((n, i) => (n - 1) * kernelDilation[i] - low[i]),
      stride: inputDilation,
      dilation: kernelDilation,
    }
  else return null
  return isConsistent(plain) ? plain : null
}

const MOST = 2 ** 31

function isPossible(node: Node): boolean {
  const { length } = (node.params as unknown as ConvolutionParams).stride
  return (
    length <= 3 &&
    Object.hasOwn(TYPES, node.dtype.name) &&
    node.inputs.every((input) => input.dtype === node.dtype && sizeOf(input.shape) > 0) &&
    node.size > 0 &&
    node.size < MOST &&
    isCountable(node)
  )
}

/** A row-major view of these sizes, where a location is. */
const packed = (location: Location, { itemsize }: View, shape: readonly number[]): View => ({
  storage: location.storage,
  itemsize,
  shape,
  strides: shape.map((_, i) => sizeOf(shape.slice(i + 1))),
  offset: location.offset / itemsize,
})

/** Sizes and strides of a packed array of batch, locations and channels, as the library lists them: channels behind the batch. */
function described(batch: number, sizes: readonly number[], channels: number): number[] {
  const two = sizes.length === 1 ? [1, ...sizes] : sizes
  const steps = two.map((_, i) => sizeOf(two.slice(i + 1)) * channels)
  const five = (list: readonly number[]): number[] => [...list, 0].slice(0, 5)
  return [...five([batch, channels, ...two]), ...five([sizeOf(two) * channels, 1, ...steps])]
}

/** The integers of a convolution; native/cuda/convolutions.h has the same order. */
function wordsOf(node: Node, plain: Plain): Int32Array {
  const { form, batch, channels, outputs, images, kernel, results, padding, stride, dilation } = plain
  const { groups } = node.params as unknown as ConvolutionParams
  // Of one axis two are made, the first of size 1.
  const two = (list: readonly number[], more: number): readonly number[] =>
    list.length === 1 ? [more, ...list] : list
  const three = (list: readonly number[], more: number): number[] => [...two(list, more), 0].slice(0, 3)
  return Int32Array.from([
    ...[form, TYPES[node.dtype.name], mathOf(node.dtype.name), Math.max(2, stride.length), groups],
    Number(determinism.isAsked),
    ...described(batch, images, channels),
    ...[outputs, channels / groups, ...two(kernel, 1), 0].slice(0, 5),
    ...described(batch, results, outputs),
    ...[...three(padding, 0), ...three(stride, 1), ...three(dilation, 1)],
  ])
}

/** A convolution as the library takes it. */
interface Described {
  readonly plain: Plain
  readonly words: Int32Array
}

function encode(node: Node, queue: DispatchQueue, { plain, words }: Described): void {
  const { form } = plain
  const last = node.shape.length - 1
  const swapped = [last, ...plain.stride.map((_, i) => i + 1), 0]
  const target = viewOf(node)
  const [x, w] = node.inputs.map(viewOf)
  const call = (images: View, kernel: View, results: View): void =>
    queue.call({
      op: "conv",
      code: CONVOLUTION,
      words,
      arguments: [images, kernel, results].map(locationOf),
      writes: [[results, images, kernel][form].storage],
    })
  const withPacked = (view: View, body: (view: View) => void): void =>
    withRowMajor(queue, view, (location) => body(packed(location, view, view.shape)))

  if (form === Form.Results)
    withPacked(x, (images) => withPacked(w, (kernel) => call(images, kernel, target)))
  else if (form === Form.Images)
    withPacked(x, (results) => withPacked(permuted(w, swapped), (kernel) => call(target, kernel, results)))
  else
    withPacked(permuted(x, swapped), (images) =>
      withPacked(permuted(w, swapped), (results) => {
        const storage: Storage = queue.allocate(node.size * node.dtype.size)
        const made = packed({ storage, offset: 0 }, target, permuted(target, swapped).shape)
        call(images, made, results)
        encodeCopy(queue, permuted(made, swapped), locationOf(target))
        storage.drop()
      }),
    )
}

/**
 * The family; `library` is cuDNN's test of a convolution, or null where the library is not there, `isModern` tells whether the GPU has
 * tensor cores of Ampere or later, and `processors` how many it has.
 */
export function convolutionFamilies(
  library: () => ((words: Int32Array) => boolean) | null,
  isModern: () => boolean,
  processors: () => number,
): Families {
  const takesExactly = (node: Node): boolean =>
    node.dtype === float32 && !isShort() && isModern() && isExact(node, processors())
  /** By sizes and parameters; null where the library does not take it. */
  const known = new Map<string, Described | null>()
  const describedAs = (node: Node): Described | null => {
    const test = library()
    if (test === null) return null
    const [x, w] = node.inputs
    const p = node.params as unknown as ConvolutionParams
    const key = `${node.dtype.name} ${mathOf(node.dtype.name)} ${determinism.isAsked} ${x.shape} ${w.shape} ${p.stride} ${p.low} ${p.high} ${p.kernelDilation} ${p.inputDilation} ${p.groups} ${p.flip}`
    let described = known.get(key)
    if (described === undefined) {
      const plain = plainOf(node)
      const words = plain && wordsOf(node, plain)
      described = plain && words && test(words) ? { plain, words } : null
      known.set(key, described)
    }
    return described
  }
  return {
    conv: {
      supports: (node) => isPossible(node) && (takesExactly(node) || describedAs(node) !== null),
      encode(node, queue) {
        if (takesExactly(node)) encodeExact(node, queue)
        else encode(node, queue, describedAs(node) as Described)
      },
    },
  }
}
