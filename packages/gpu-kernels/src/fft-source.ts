/**
 * Kernels of Fourier transforms in Metal Shading Language: a kernel for each pass through memory, and one for lines that fit threadgroup
 * memory.
 */
import { METAL_HEADER } from "./metal-types"

/** Makes elements complex along an axis; those beyond the given ones are zero, or the conjugates that a real result asks for. */
export const fillSource = (type: string, hermitian: boolean): string => `${METAL_HEADER}
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
export const rootsSource = `${METAL_HEADER}${ROOT}
kernel void fft_roots(device float2* roots [[buffer(0)]], constant uint* sizes [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  roots[i] = lz_root(i, sizes[0]);
}
`
/** `lz_turn(v, w)`: v turned by a root of unity, the other way round for inverse transforms. */
const turn = (inverse: boolean): string => `inline float2 lz_turn(float2 v, float2 w) {
  return float2(v.x * w.x ${inverse ? "-" : "+"} v.y * w.y, v.y * w.x ${inverse ? "+" : "-"} v.x * w.y);
}
`
/**
 * One factor: y[d + r·done] = Σ_q x[j + q·n/p] · root(q · …), of j = block · done + location and d = block · done · p + location.
 * Each output reads p inputs, as in a product with a matrix of roots: for factors of which threadgroup memory does not hold one transform.
 */
export const stageSource = (inverse: boolean): string => `${METAL_HEADER}
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
export const smallStageSource = (
  p: number,
  inverse: boolean,
): string => `${METAL_HEADER}${ROOT}${turn(inverse)}
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
/** Scales, and keeps the first elements along the axis, or their real parts. */
export const storeSource = (type: string): string => `${METAL_HEADER}
kernel void fft_store(device const float2* x [[buffer(0)]], device ${type}* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    constant float& scale [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  uint n = sizes[1], kept = sizes[2], inner = sizes[3], k = i / inner % kept, outer = i / inner / kept;
  float2 value = x[(outer * n + k) * inner + i % inner];
  y[i] = ${type === "float" ? "value.x * scale" : "value * scale"};
}
`

/**
 * The same for a factor up to {@link LINE}: a threadgroup reads the inputs of its transforms once, and neighbours in memory are transforms.
 */
export const primeStageSource = (inverse: boolean): string => `${METAL_HEADER}${ROOT}${turn(inverse)}
kernel void fft_prime(device const float2* x [[buffer(0)]], device float2* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]]) {
  // Transforms, length, elements behind the axis, factor, product of the factors done, transforms of a threadgroup.
  threadgroup float2 now[${LINE}];
  threadgroup float2 roots[${LINE}];
  uint n = sizes[1], inner = sizes[2], p = sizes[3], done = sizes[4], part = n / p;
  uint first = group * sizes[5], count = min(sizes[5], sizes[0] - first);
  for (uint i = lane; i < p; i += threads) roots[i] = lz_root(i, p);
  for (uint i = lane; i < count * p; i += threads) {
    uint t = first + i % count, q = i / count, j = t / inner % part, base = t / inner / part * n * inner + t % inner;
    now[i] = lz_turn(x[base + (j + q * part) * inner], lz_root(q * (j % done) * (part / done), n));
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < count * p; i += threads) {
    uint t = first + i % count, r = i / count, j = t / inner % part, base = t / inner / part * n * inner + t % inner;
    float2 sum = float2(0.0f, 0.0f);
    for (uint q = 0; q < p; q++) sum += lz_turn(now[q * count + i % count], roots[q * r % p]);
    y[base + (j / done * done * p + j % done + r * done) * inner] = sum;
  }
}
`

/** The longest lines of one threadgroup, and elements of its lines together: they, their successors and their roots take 24 KB. */
export const LINE = 1024
/** Whole lines: each is filled as {@link fillSource} does, transformed in threadgroup memory, and stored as {@link storeSource} does. */
export const lineSource = (
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
