/**
 * Fourier transforms of any length, by Stockham's algorithm: one pass for each factor of the length, and no bit reversal. The axis may lie
 * anywhere. Real transforms run on the whole spectrum.
 */
import { type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Kernel, Location } from "../dispatch"
import { type Families, isCountable } from "../family"
import { viewOf } from "../layout"
import { METAL_HEADER } from "../metal-types"
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

/** Makes elements complex along an axis; those beyond the given ones are zero, or the conjugates that a real result asks for. */
const fillSource = (type: string, hermitian: boolean): string => `${METAL_HEADER}
kernel void fft_fill(device const ${type}* x [[buffer(0)]], device float2* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  // Threads, length, given length, elements behind the axis.
  if (i >= sizes[0]) return;
  uint n = sizes[1], given = sizes[2], inner = sizes[3], k = i / inner % n, outer = i / inner / n;
  uint from = ${hermitian ? "k < given ? k : n - k" : "k"};
  float2 value = float2(0.0f, 0.0f);
  if (from < given) value = ${type === "float" ? "float2(x[(outer * given + from) * inner + i % inner], 0.0f)" : "x[(outer * given + from) * inner + i % inner]"};
${hermitian ? "  if (k >= given) value.y = -value.y;\n" : ""}  y[i] = value;
}
`
/** The n-th roots of unity. */
const rootsSource = `${METAL_HEADER}
kernel void fft_roots(device float2* roots [[buffer(0)]], constant uint* sizes [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  // Of the nearest eighth of the circle, where the angle is small and so exact.
  uint n = sizes[0], eighth = (8 * i + n / 2) / n;
  float angle = 6.283185307179586f * (float(int(8 * i) - int(eighth * n)) / (8.0f * float(n)));
  float c = precise::cos(angle), s = precise::sin(angle), h = 0.70710678118654752f;
  float a = eighth % 8 == 0 ? 1.0f : eighth % 8 == 1 || eighth % 8 == 7 ? h : eighth % 8 == 2 || eighth % 8 == 6 ? 0.0f : eighth % 8 == 4 ? -1.0f : -h;
  uint turned = (eighth + 6) % 8;
  float b = turned == 0 ? 1.0f : turned == 1 || turned == 7 ? h : turned == 2 || turned == 6 ? 0.0f : turned == 4 ? -1.0f : -h;
  roots[i] = float2(a * c - b * s, a * s + b * c);
}
`
/** One factor: y[d + r·done] = Σ_q x[j + q·n/p] · root(q · …), of j = block · done + location and d = block · done · p + location. */
const stageSource = (inverse: boolean): string => `${METAL_HEADER}
kernel void fft_stage(device const float2* x [[buffer(0)]], device float2* y [[buffer(1)]], device const float2* roots [[buffer(2)]],
    constant uint* sizes [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  // Threads, length, elements behind the axis, factor, product of the factors done.
  if (i >= sizes[0]) return;
  uint n = sizes[1], inner = sizes[2], p = sizes[3], done = sizes[4];
  uint at = i / inner % n, base = i / inner / n * n * inner + i % inner;
  uint location = at % done, r = at / done % p, j = at / (done * p) * done + location;
  ulong step = ulong(location) * (n / (done * p)) + ulong(r) * (n / p);
  float2 sum = float2(0.0f, 0.0f);
  for (uint q = 0; q < p; q++) {
    float2 v = x[base + (j + q * (n / p)) * inner], w = roots[uint(ulong(q) * step % n)];
    sum += float2(v.x * w.x ${inverse ? "-" : "+"} v.y * w.y, v.y * w.x ${inverse ? "+" : "-"} v.x * w.y);
  }
  y[i] = sum;
}
`
/** Scales, and keeps the first elements along the axis, or their real parts. */
const storeSource = (type: string): string => `${METAL_HEADER}
kernel void fft_store(device const float2* x [[buffer(0)]], device ${type}* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    constant float& scale [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  uint n = sizes[1], kept = sizes[2], inner = sizes[3], k = i / inner % kept, outer = i / inner / kept;
  float2 value = x[(outer * n + k) * inner + i % inner];
  y[i] = ${type === "float" ? "value.x * scale" : "value * scale"};
}
`

const kernelOf = (name: string, key: string, source: () => string): Kernel => ({
  key: `${name} ${key}`,
  name,
  source,
})

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
  const behind = (shape: readonly number[], axis: number): number => sizeOf(shape.slice(axis + 1))
  const buffers: Storage[] = []
  const scratch = (elements: number): Location => {
    const storage = queue.allocate(elements * 8)
    buffers.push(storage)
    return { storage, offset: 0 }
  }
  const fill = (
    from: Location,
    type: string,
    shape: readonly number[],
    given: number,
    hermitian: boolean,
  ): Location => {
    const to = scratch(sizeOf(shape))
    const threads = sizeOf(shape)
    dispatchEach(
      queue,
      "fft",
      kernelOf("fft_fill", `${type} ${hermitian}`, () => fillSource(type, hermitian)),
      [from, to, Uint32Array.of(threads, shape[last], given, behind(shape, last))],
      [to.storage],
      threads,
    )
    return to
  }
  const transform = (from: Location, shape: readonly number[], axis: number): Location => {
    const size = shape[axis]
    if (size === 1) return from
    const roots = scratch(size)
    dispatchEach(
      queue,
      "fft",
      kernelOf("fft_roots", "", () => rootsSource),
      [roots, Uint32Array.of(size)],
      [roots.storage],
      size,
    )
    const threads = sizeOf(shape)
    let [now, next] = [from, scratch(threads)]
    let done = 1
    for (const p of radices(size)) {
      dispatchEach(
        queue,
        "fft",
        kernelOf("fft_stage", String(inverse), () => stageSource(inverse)),
        [now, next, roots, Uint32Array.of(threads, size, behind(shape, axis), p, done)],
        [next.storage],
        threads,
      )
      ;[now, next] = [next, now]
      done *= p
    }
    return now
  }
  withRowMajor(queue, viewOf(x), (location) => {
    const type = x.dtype.kind === "complex" ? "float2" : "float"
    const halfed = real && inverse
    // A half spectrum is completed once only the last axis is left.
    let shape: readonly number[] = halfed ? x.shape : whole
    let now = fill(location, type, shape, x.shape[last], false)
    for (const axis of axes.slice(0, -1)) now = transform(now, shape, axis)
    if (halfed) {
      now = fill(now, "float2", whole, x.shape[last], true)
      shape = whole
    }
    now = transform(now, shape, last)
    const target = targetOf(node)
    const to = node.dtype.kind === "complex" ? "float2" : "float"
    const threads = sizeOf(node.shape)
    dispatchEach(
      queue,
      "fft",
      kernelOf("fft_store", to, () => storeSource(to)),
      [
        now,
        target,
        Uint32Array.of(threads, shape[last], node.shape[last], behind(node.shape, last)),
        Float32Array.of(scale),
      ],
      [target.storage],
      threads,
    )
  })
  for (const storage of buffers) storage.drop()
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
