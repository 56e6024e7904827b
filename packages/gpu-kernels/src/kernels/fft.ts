/**
 * Fourier transforms of any length, by Stockham's algorithm: one pass for each factor of the length, and no bit reversal. The axis may lie
 * anywhere. Real transforms run on the whole spectrum. Lines that fit threadgroup memory are read and written once; of longer ones each
 * pass goes through memory.
 */
import { type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Kernel, Location } from "../dispatch"
import { type Families, isCountable } from "../family"
import {
  fillSource,
  LINE,
  lineSource,
  primeStageSource,
  rootsSource,
  smallStageSource,
  stageSource,
  storeSource,
} from "../fft-source"
import { viewOf } from "../layout"
import { withRowMajor } from "./copy"
import { dispatchEach } from "./moves"
import { targetOf } from "./reduce"

/** The factors of a length: fours and twos first, then odd primes. */
export function radices(n: number): number[] {
  const found: number[] = []
  let rest = n
  for (const p of [4, 2]) for (; rest % p === 0; rest /= p) found.push(p)
  for (let p = 3; p * p <= rest; p += 2) for (; rest % p === 0; rest /= p) found.push(p)
  if (rest > 1) found.push(rest)
  return found
}

/** Factors of {@link smallStageSource}. */
const SMALL = 4
const LINE_THREADS = 256
/** More than the factors of any such length: 729 has six. */
const MAX_FACTORS = 8

const kernelOf = (name: string, key: string, source: () => string): Kernel => ({
  key: `${name} ${key}`,
  name,
  source,
})

/** Elements on the way, and their type in Metal. */
interface Values {
  readonly location: Location
  readonly type: string
}

const behind = (shape: readonly number[], axis: number): number => sizeOf(shape.slice(axis + 1))

/** The passes of one application, with the memory between them. */
class Passes {
  private readonly buffers: Storage[] = []

  constructor(
    private readonly queue: DispatchQueue,
    private readonly inverse: boolean,
  ) {}

  /** Memory for complex elements until {@link drop}. */
  scratch(elements: number): Location {
    const storage = this.queue.allocate(elements * 8)
    this.buffers.push(storage)
    return { storage, offset: 0 }
  }

  drop(): void {
    for (const storage of this.buffers) storage.drop()
  }

  private each(kernel: Kernel, args: readonly Argument[], to: Location, threads: number): void {
    dispatchEach(this.queue, "fft", kernel, args, [to.storage], threads)
  }

  fill(
    { location, type }: Values,
    shape: readonly number[],
    axis: number,
    given: number,
    hermitian: boolean,
  ): Location {
    const threads = sizeOf(shape)
    const to = this.scratch(threads)
    this.each(
      kernelOf("fft_fill", `${type} ${hermitian}`, () => fillSource(type, hermitian)),
      [location, to, Uint32Array.of(threads, shape[axis], given, behind(shape, axis))],
      to,
      threads,
    )
    return to
  }

  private rootsOf(size: number): Location {
    const roots = this.scratch(size)
    this.each(
      kernelOf("fft_roots", "", () => rootsSource),
      [roots, Uint32Array.of(size)],
      roots,
      size,
    )
    return roots
  }

  /** Transforms along an axis, a pass for each factor, which write over `from` too. */
  transform(from: Location, shape: readonly number[], axis: number): Location {
    const { inverse } = this
    const size = shape[axis]
    const elements = sizeOf(shape)
    let roots: Location | null = null
    let [now, next] = [from, this.scratch(elements)]
    let done = 1
    for (const p of radices(size)) {
      if (p <= SMALL) {
        const threads = elements / p
        this.each(
          kernelOf("fft_small", `${p} ${inverse}`, () => smallStageSource(p, inverse)),
          [now, next, Uint32Array.of(threads, size, behind(shape, axis), done)],
          next,
          threads,
        )
      } else if (p <= LINE) {
        this.primeStage(now, next, [elements / p, size, behind(shape, axis), p, done])
      } else {
        roots ??= this.rootsOf(size)
        this.each(
          kernelOf("fft_stage", String(inverse), () => stageSource(inverse)),
          [now, next, roots, Uint32Array.of(elements, size, behind(shape, axis), p, done)],
          next,
          elements,
        )
      }
      ;[now, next] = [next, now]
      done *= p
    }
    return now
  }

  private primeStage(from: Location, to: Location, sizes: readonly number[]): void {
    const { inverse } = this
    const [transforms, , , p] = sizes
    const together = Math.min(transforms, Math.floor(LINE / p))
    const group = Math.min(LINE_THREADS, Math.ceil((together * p) / 32) * 32)
    this.queue.dispatch({
      op: "fft",
      kernel: kernelOf("fft_prime", String(inverse), () => primeStageSource(inverse)),
      arguments: [from, to, Uint32Array.of(...sizes, together)],
      writes: [to.storage],
      grid: [Math.ceil(transforms / together) * group, 1, 1],
      threadgroup: [group, 1, 1],
    })
  }

  store(
    from: Location,
    to: Values,
    size: number,
    shape: readonly number[],
    axis: number,
    scale: number,
  ): void {
    const threads = sizeOf(shape)
    this.each(
      kernelOf("fft_store", to.type, () => storeSource(to.type)),
      [
        from,
        to.location,
        Uint32Array.of(threads, size, shape[axis], behind(shape, axis)),
        Float32Array.of(scale),
      ],
      to.location,
      threads,
    )
  }

  /** Transforms whole lines in one pass. */
  lines(
    from: Values,
    to: Values,
    shape: readonly number[],
    axis: number,
    given: number,
    kept: number,
    hermitian: boolean,
    factor: number,
  ): void {
    const { inverse } = this
    const size = shape[axis]
    const lines = sizeOf(shape) / size
    const together = Math.min(lines, Math.max(1, Math.floor(LINE / size)))
    const factors = size === 1 ? [] : radices(size)
    const padding = new Array<number>(MAX_FACTORS - factors.length).fill(0)
    const group = Math.min(LINE_THREADS, Math.ceil((together * size) / 32) * 32)
    this.queue.dispatch({
      op: "fft",
      kernel: kernelOf("fft_line", `${from.type} ${to.type} ${hermitian} ${inverse}`, () =>
        lineSource(from.type, to.type, hermitian, inverse),
      ),
      arguments: [
        from.location,
        to.location,
        Uint32Array.of(lines, size, given, kept, behind(shape, axis), together, ...factors, ...padding),
        Float32Array.of(factor),
      ],
      writes: [to.location.storage],
      grid: [Math.ceil(lines / together) * group, 1, 1],
      threadgroup: [group, 1, 1],
    })
  }
}

function encode(node: Node, queue: DispatchQueue): void {
  const [x] = node.inputs
  const { axes, inverse, real, n, scale } = node.params as {
    axes: readonly number[]
    inverse: boolean
    real: boolean
    n: number
    scale: number
  }
  if (sizeOf(node.shape) === 0) return
  const last = axes[axes.length - 1]
  const whole = x.shape.map((size, i) => (real && i === last ? n : size))
  const typeOf = ({ dtype }: Node): string => (dtype.kind === "complex" ? "float2" : "float")
  const passes = new Passes(queue, inverse)
  withRowMajor(queue, viewOf(x), (location) => {
    const target = { location: targetOf(node), type: typeOf(node) }
    // A half spectrum is completed once only the last axis is left.
    const halfed = real && inverse
    let shape: readonly number[] = x.shape
    let now: Values = { location, type: typeOf(x) }
    axes.forEach((axis, i) => {
      const isLast = i === axes.length - 1
      const hermitian = isLast && halfed
      const given = shape[axis]
      if (isLast) shape = whole
      if (shape[axis] <= LINE) {
        const result = isLast ? target : { location: passes.scratch(sizeOf(shape)), type: "float2" }
        const kept = isLast ? node.shape[axis] : given
        passes.lines(now, result, shape, axis, given, kept, hermitian, isLast ? scale : 1)
        now = result
        return
      }
      // The passes write over what they read.
      const own =
        i > 0 && given === shape[axis] ? now.location : passes.fill(now, shape, axis, given, hermitian)
      now = { location: passes.transform(own, shape, axis), type: "float2" }
      if (isLast) passes.store(now.location, target, shape[axis], node.shape, axis, scale)
    })
  })
  passes.drop()
}

/** Fourier transforms. */
export const fourier: Families = {
  fft: {
    supports: (node) =>
      (node.inputs[0].dtype.name === "complex64" || node.inputs[0].dtype.name === "float32") &&
      isCountable(node),
    encode,
  },
}
