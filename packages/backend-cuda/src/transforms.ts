/**
 * Fourier transforms by cuFFT, of up to three axes. The library's axes are the last ones; arrays with other axes are copied there and back.
 * So those are the work of gpu-kernels' kernels where lines are short, and so are short lines of half a spectrum, which the library writes
 * over: these kernels read and write them once.
 */
import { type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  encodeCopy,
  type Families,
  isCountable,
  isRowMajor,
  type Location,
  permuted,
  type View,
  viewOf,
} from "@lazuli/gpu-kernels"
import { nativeSource } from "./native-source"

/** The command's code; native/cuda/device.cc has the same. */
const TRANSFORM = 40
/** `cufftType`. */
const [COMPLEX, TO_COMPLEX, TO_REAL] = [0x29, 0x2a, 0x2c]
const MOST_AXES = 3
/** Bytes at whose multiples the library's arrays begin. */
const ALIGNMENT = 16
const COMPLEX_BYTES = 8
const THREADS = 256

/** Lines of at most so many elements, without larger prime factors, are short. */
const LINE = 1024
const LARGEST_FACTOR = 13

interface Params {
  readonly axes: readonly number[]
  readonly inverse: boolean
  readonly real: boolean
  readonly n: number
  readonly scale: number
}
const paramsOf = ({ params }: Node): Params => params as unknown as Params

function largestFactor(n: number): number {
  let [largest, rest] = [1, n]
  for (let p = 2; p * p <= rest; p++) for (; rest % p === 0; rest /= p) largest = p
  return Math.max(largest, rest)
}

/** Sizes of the transformed axes of the real or the whole array. */
function sizesOf(node: Node): number[] {
  const { axes, real, n } = paramsOf(node)
  return axes.map((axis, i) => (real && i === axes.length - 1 ? n : node.inputs[0].shape[axis]))
}

/** True if nothing is copied on the way. */
function isReady(node: Node): boolean {
  const { axes, real, inverse } = paramsOf(node)
  const first = node.inputs[0].shape.length - axes.length
  return axes.every((axis, i) => axis === first + i) && !(real && inverse)
}

function takes(node: Node): boolean {
  const [x] = node.inputs
  return (
    (x.dtype.name === "complex64" || x.dtype.name === "float32") &&
    paramsOf(node).axes.length <= MOST_AXES &&
    sizeOf(x.shape) > 0 &&
    node.size > 0 &&
    (isReady(node) || sizesOf(node).some((n) => n > LINE || largestFactor(n) > LARGEST_FACTOR)) &&
    isCountable(node)
  )
}

/** The transforms of one application, with the memory between them. */
class Transforms {
  private readonly kept: Storage[] = []
  constructor(private readonly queue: DispatchQueue) {}

  scratch(bytes: number): Location {
    const storage = this.queue.allocate(bytes)
    this.kept.push(storage)
    return { storage, offset: 0 }
  }
  drop(): void {
    for (const storage of this.kept) storage.drop()
  }

  /** A row-major copy. */
  copied(view: View): Location {
    const to = this.scratch(sizeOf(view.shape) * view.itemsize)
    encodeCopy(this.queue, view, to, "fft")
    return to
  }
  /** Where the elements lie row-major. */
  located(view: View): Location {
    const { storage, itemsize } = view
    const offset = view.offset * itemsize
    return isRowMajor(view) && offset % ALIGNMENT === 0 ? { storage, offset } : this.copied(view)
  }

  run(
    type: number,
    inverse: boolean,
    sizes: readonly number[],
    batch: number,
    from: Location,
    to: Location,
  ): void {
    this.queue.call({
      op: "fft",
      code: TRANSFORM,
      words: Int32Array.of(
        ...[type, Number(inverse), sizes.length, batch],
        ...[...sizes, 0, 0].slice(0, MOST_AXES),
      ),
      arguments: [from, to],
      // The input of a transform to real numbers is written over.
      writes: type === TO_REAL && from.storage !== to.storage ? [to.storage, from.storage] : [to.storage],
    })
  }

  dispatch(name: string, args: readonly Argument[], { storage }: Location, threads: number): void {
    this.queue.dispatch({
      op: "fft",
      kernel: {
        key: `cuda transforms ${name}`,
        name,
        source: () => nativeSource("transforms.cu", ""),
        isNative: true,
      },
      arguments: args,
      writes: [storage],
      grid: [Math.ceil(threads / THREADS) * THREADS, 1, 1],
      threadgroup: [THREADS, 1, 1],
    })
  }
}

/** A row-major view where a location is. */
const packed = ({ storage, offset }: Location, itemsize: number, shape: readonly number[]): View => ({
  storage,
  itemsize,
  shape,
  strides: shape.map((_, i) => sizeOf(shape.slice(i + 1))),
  offset: offset / itemsize,
})
/** Puts axes back that were taken in an order. */
const inverseOf = (order: readonly number[]): number[] => order.map((_, i) => order.indexOf(i))

function encode(node: Node, queue: DispatchQueue): void {
  const { axes, inverse, real, scale } = paramsOf(node)
  const view = viewOf(node.inputs[0])
  const sizes = sizesOf(node)
  const rest = [...view.shape.keys()].filter((axis) => !axes.includes(axis))
  const order = [...rest, ...axes]
  const batch = sizeOf(rest.map((axis) => view.shape[axis]))
  const target = { storage: node.storage as Storage, offset: node.offset * node.dtype.size }
  const work = new Transforms(queue)
  const isInPlace = order.every((axis, i) => axis === i) && target.offset % ALIGNMENT === 0
  const to = isInPlace ? target : work.scratch(node.size * node.dtype.size)
  if (real && inverse) {
    const half = spectrumOf(work, view, rest, axes, sizes)
    const n = sizes[sizes.length - 1]
    const lines = node.size / n
    const counts = [Int32Array.of(Math.floor(n / 2) + 1), Int32Array.of(Number(n % 2 === 0))]
    work.dispatch("make_real", [half, ...counts, BigInt64Array.of(BigInt(lines))], half, lines)
    work.run(TO_REAL, true, [n], lines, half, to)
  } else work.run(real ? TO_COMPLEX : COMPLEX, inverse, sizes, batch, work.located(permuted(view, order)), to)
  const floats = (node.size * node.dtype.size) / Float32Array.BYTES_PER_ELEMENT
  if (scale !== 1)
    work.dispatch("scale", [to, Float32Array.of(scale), BigInt64Array.of(BigInt(floats))], to, floats)
  if (!isInPlace) {
    const made = packed(to, node.dtype.size, permuted(viewOf(node), order).shape)
    encodeCopy(queue, permuted(made, inverseOf(order)), target, "fft")
  }
  work.drop()
}

/** A copy of half a spectrum that is transformed along all of its axes but the last, which lies innermost. */
function spectrumOf(
  work: Transforms,
  view: View,
  rest: readonly number[],
  axes: readonly number[],
  sizes: readonly number[],
): Location {
  const last = axes[axes.length - 1]
  const leading = axes.slice(0, -1)
  if (leading.length === 0) return work.copied(permuted(view, [...rest, last]))
  const outer = [...rest, last]
  const first = permuted(view, [...outer, ...leading])
  const at = work.copied(first)
  const batch = sizeOf(outer.map((axis) => view.shape[axis]))
  work.run(COMPLEX, true, sizes.slice(0, -1), batch, at, at)
  const inner = [...leading.keys()].map((i) => outer.length + i)
  return work.copied(
    permuted(packed(at, COMPLEX_BYTES, first.shape), [...rest.keys(), ...inner, outer.length - 1]),
  )
}

/** The family; `present` tells whether the library is there. */
export function transformFamilies(present: () => boolean): Families {
  return { fft: { supports: (node) => takes(node) && present(), encode } }
}
