/**
 * Fourier transforms of any length, by Stockham's algorithm: one pass for each factor of the length, and no bit reversal. The axis may lie
 * anywhere. Real transforms run on the whole spectrum. Lines that fit threadgroup memory are read and written once; of longer ones each
 * pass goes through memory.
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
/** `lz_root(i, n)`: an n-th root of unity, of the nearest eighth of the circle, where the angle is small and so exact. */
const ROOT = `inline float2 lz_root(uint i, uint n) {
  uint eighth = (8 * i + n / 2) / n;
  float angle = 6.283185307179586f * (float(int(8 * i) - int(eighth * n)) / (8.0f * float(n)));
  float c = precise::cos(angle), s = precise::sin(angle), h = 0.70710678118654752f;
  float a = eighth % 8 == 0 ? 1.0f : eighth % 8 == 1 || eighth % 8 == 7 ? h : eighth % 8 == 2 || eighth % 8 == 6 ? 0.0f : eighth % 8 == 4 ? -1.0f : -h;
  uint turned = (eighth + 6) % 8;
  float b = turned == 0 ? 1.0f : turned == 1 || turned == 7 ? h : turned == 2 || turned == 6 ? 0.0f : turned == 4 ? -1.0f : -h;
  return float2(a * c - b * s, a * s + b * c);
}
`
/** The n-th roots of unity. */
const rootsSource = `${METAL_HEADER}${ROOT}
kernel void fft_roots(device float2* roots [[buffer(0)]], constant uint* sizes [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  roots[i] = lz_root(i, sizes[0]);
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
/** The same for a small factor: a thread computes all outputs of the inputs that it reads, and finds their roots itself. */
const smallStageSource = (p: number, inverse: boolean): string => `${METAL_HEADER}${ROOT}
inline float2 lz_turn(float2 v, float2 w) {
  return float2(v.x * w.x ${inverse ? "-" : "+"} v.y * w.y, v.y * w.x ${inverse ? "+" : "-"} v.x * w.y);
}
kernel void fft_small(device const float2* x [[buffer(0)]], device float2* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  // Threads, length, elements behind the axis, product of the factors done.
  if (i >= sizes[0]) return;
  uint n = sizes[1], inner = sizes[2], done = sizes[3], part = n / ${p};
  uint j = i / inner % part, base = i / inner / part * n * inner + i % inner, location = j % done;
  float2 v[${p}];
  for (uint q = 0; q < ${p}; q++) v[q] = x[base + (j + q * part) * inner];
  for (uint q = 1; q < ${p}; q++) v[q] = lz_turn(v[q], lz_root(q * location * (part / done), n));
  for (uint r = 0; r < ${p}; r++) {
    float2 sum = v[0];
    for (uint q = 1; q < ${p}; q++) sum += lz_turn(v[q], lz_root(q * r % ${p}, ${p}));
    y[base + ((j - location) * ${p} + location + r * done) * inner] = sum;
  }
}
`
/** Factors of {@link smallStageSource}. */
const SMALL = 4

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

/** The longest lines of one threadgroup, and elements of its lines together: they, their successors and their roots take 24 KB. */
const LINE = 1024
const LINE_THREADS = 256
/** More than the factors of any such length: 729 has six. */
const MAX_FACTORS = 8

/** Whole lines: each is filled as {@link fillSource} does, transformed in threadgroup memory, and stored as {@link storeSource} does. */
const lineSource = (
  type: string,
  to: string,
  hermitian: boolean,
  inverse: boolean,
): string => `${METAL_HEADER}${ROOT}
kernel void fft_line(device const ${type}* x [[buffer(0)]], device ${to}* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    constant float& scale [[buffer(3)]], uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]]) {
  // Lines, length, given length, stored length, elements behind the axis, lines of a threadgroup, then the factors up to 0.
  threadgroup float2 now[${LINE}];
  threadgroup float2 next[${LINE}];
  threadgroup float2 roots[${LINE}];
  threadgroup float2* from = now;
  threadgroup float2* to = next;
  uint n = sizes[1], given = sizes[2], kept = sizes[3], inner = sizes[4], first = group * sizes[5], lines = min(sizes[5], sizes[0] - first);
  for (uint i = lane; i < n; i += threads) roots[i] = lz_root(i, n);
  for (uint i = lane; i < lines * n; i += threads) {
    // Neighbours in memory are lines, unless the axis is the last.
    uint line = inner == 1 ? i / n : i % lines, k = inner == 1 ? i % n : i / lines, number = first + line;
${
  hermitian
    ? `    // The conjugates of what other threads read come from them.
    if (k >= given && n - k < given) continue;
`
    : ""
}    float2 value = float2(0.0f, 0.0f);
    if (k < given) {
      uint at = (number / inner * given + k) * inner + number % inner;
      value = ${type === "float" ? "float2(x[at], 0.0f)" : "x[at]"};
    }
    now[line * n + k] = value;
${
  hermitian
    ? "    if (k > 0 && k < given && n - k >= given) now[line * n + n - k] = float2(value.x, -value.y);\n"
    : ""
}  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint done = 1;
  for (uint f = 6; sizes[f] != 0; f++) {
    uint p = sizes[f];
    for (uint i = lane; i < lines * n; i += threads) {
      uint at = i % n, base = i - at;
      uint location = at % done, r = at / done % p, j = at / (done * p) * done + location;
      uint step = location * (n / (done * p)) + r * (n / p);
      float2 sum = float2(0.0f, 0.0f);
      for (uint q = 0; q < p; q++) {
        float2 v = from[base + j + q * (n / p)], w = roots[q * step % n];
        sum += float2(v.x * w.x ${inverse ? "-" : "+"} v.y * w.y, v.y * w.x ${inverse ? "+" : "-"} v.x * w.y);
      }
      to[i] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup float2* other = from;
    from = to;
    to = other;
    done *= p;
  }
  for (uint i = lane; i < lines * kept; i += threads) {
    uint line = inner == 1 ? i / kept : i % lines, k = inner == 1 ? i % kept : i / lines, number = first + line;
    float2 value = from[line * n + k];
    y[(number / inner * kept + k) * inner + number % inner] = ${to === "float" ? "value.x * scale" : "value * scale"};
  }
}
`

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
    { location, type }: Values,
    shape: readonly number[],
    axis: number,
    given: number,
    hermitian: boolean,
  ): Location => {
    const to = scratch(sizeOf(shape))
    const threads = sizeOf(shape)
    dispatchEach(
      queue,
      "fft",
      kernelOf("fft_fill", `${type} ${hermitian}`, () => fillSource(type, hermitian)),
      [location, to, Uint32Array.of(threads, shape[axis], given, behind(shape, axis))],
      [to.storage],
      threads,
    )
    return to
  }
  const rootsOf = (size: number): Location => {
    const roots = scratch(size)
    dispatchEach(
      queue,
      "fft",
      kernelOf("fft_roots", "", () => rootsSource),
      [roots, Uint32Array.of(size)],
      [roots.storage],
      size,
    )
    return roots
  }
  const transform = (from: Location, shape: readonly number[], axis: number): Location => {
    const size = shape[axis]
    const factors = radices(size)
    const elements = sizeOf(shape)
    let roots: Location | null = null
    let [now, next] = [from, scratch(elements)]
    let done = 1
    for (const p of factors) {
      if (p <= SMALL) {
        const threads = elements / p
        dispatchEach(
          queue,
          "fft",
          kernelOf("fft_small", `${p} ${inverse}`, () => smallStageSource(p, inverse)),
          [now, next, Uint32Array.of(threads, size, behind(shape, axis), done)],
          [next.storage],
          threads,
        )
      } else {
        roots ??= rootsOf(size)
        dispatchEach(
          queue,
          "fft",
          kernelOf("fft_stage", String(inverse), () => stageSource(inverse)),
          [now, next, roots, Uint32Array.of(elements, size, behind(shape, axis), p, done)],
          [next.storage],
          elements,
        )
      }
      ;[now, next] = [next, now]
      done *= p
    }
    return now
  }
  const store = (from: Location, target: Location, to: string, shape: readonly number[]): void => {
    const threads = sizeOf(node.shape)
    dispatchEach(
      queue,
      "fft",
      kernelOf("fft_store", to, () => storeSource(to)),
      [
        from,
        target,
        Uint32Array.of(threads, shape[last], node.shape[last], behind(node.shape, last)),
        Float32Array.of(scale),
      ],
      [target.storage],
      threads,
    )
  }
  const transformLines = (
    from: Values,
    to: Values,
    shape: readonly number[],
    axis: number,
    given: number,
    kept: number,
    hermitian: boolean,
    factor: number,
  ): void => {
    const size = shape[axis]
    const lines = sizeOf(shape) / size
    const together = Math.min(lines, Math.max(1, Math.floor(LINE / size)))
    const factors = size === 1 ? [] : radices(size)
    const padding = new Array<number>(MAX_FACTORS - factors.length).fill(0)
    const group = Math.min(LINE_THREADS, Math.ceil((together * size) / 32) * 32)
    queue.dispatch({
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
  withRowMajor(queue, viewOf(x), (location) => {
    const type = x.dtype.kind === "complex" ? "float2" : "float"
    const target = targetOf(node)
    const to = node.dtype.kind === "complex" ? "float2" : "float"
    // A half spectrum is completed once only the last axis is left.
    const halfed = real && inverse
    let shape: readonly number[] = x.shape
    let now: Values = { location, type }
    axes.forEach((axis, i) => {
      const isLast = i === axes.length - 1
      const hermitian = isLast && halfed
      const given = shape[axis]
      if (isLast) shape = whole
      if (shape[axis] <= LINE) {
        const result = isLast
          ? { location: target, type: to }
          : { location: scratch(sizeOf(shape)), type: "float2" }
        const kept = isLast ? node.shape[axis] : given
        transformLines(now, result, shape, axis, given, kept, hermitian, isLast ? scale : 1)
        now = result
        return
      }
      // The passes write over what they read.
      const own = i > 0 && given === shape[axis] ? now.location : fill(now, shape, axis, given, hermitian)
      now = { location: transform(own, shape, axis), type: "float2" }
      if (isLast) store(now.location, target, to, shape)
    })
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
