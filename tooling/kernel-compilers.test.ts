/**
 * Compilers without a GPU accept one instance of every kernel, and refuse what Apple's would: `npm run kernels` reads all instances.
 * Without clang there is nothing to run, and these tests say so.
 */

import { findClang } from "@lazuli/gpu-kernels"
import { describe, expect, it } from "vitest"
import { native, ptx, read, strict } from "./kernel-compilers"
import { cudaSources, instances, kernelSources, packagedSources } from "./kernel-sources"
import "@lazuli/backend-cpu"

const clang = findClang()?.command
const reason = clang ? "" : ": skipped, because no clang is installed (apt-get install clang-19)"

/** Families of recorded cases that between them reach every kernel. */
const FAMILIES = [
  ...["argreduce", "binary", "conv", "fast", "fft", "indexing", "linalg", "matmul"],
  ...["quant", "random", "reduce", "scan", "shape", "sort", "unary", "vjp"],
]

/** A kernel around a body. */
const kernel = (body: string, head = ""): string => `#include <metal_stdlib>
using namespace metal;
${head}
kernel void k(device float* x [[buffer(0)]], constant int* n [[buffer(1)]], device int* q [[buffer(2)]],
    constant float& scale [[buffer(3)]], uint i [[thread_position_in_grid]]) {
${body}
}
`

/** Sources that Apple's compiler would refuse and a compiler for the host accepts, and the message about each. */
const planted: [name: string, source: string, message: string][] = [
  [
    "constant memory as device memory",
    kernel("const device int* a = n + 1; x[i] = a[0];"),
    "a variable of type 'const device int *' with an rvalue of type 'constant int *'",
  ],
  [
    "a reference where a pointer is meant",
    kernel("const device float* a = scale + 1; x[i] = a[0];"),
    "with an rvalue of type 'float'",
  ],
  [
    "threadgroup memory as device memory",
    kernel("threadgroup float t[4]; device float* p = t; x[i] = p[0];"),
    "a variable of type 'device float *' with an lvalue of type 'threadgroup",
  ],
  [
    "a thread's own variable as device memory",
    kernel("float v = 1; device float* p = &v; x[i] = *p;"),
    "with an rvalue of type 'thread float *'",
  ],
  [
    "the wrong space for a function",
    kernel("threadgroup float t[4]; f(t);", "void f(device float* p) { p[0] = 1; }"),
    "no matching function for call to 'f'",
  ],
  [
    "a pointer of the wrong type",
    kernel("device float* p = q; x[i] = *p;"),
    "with an lvalue of type 'device int *'",
  ],
  ["a write to constant memory", kernel("n[0] = 1;"), "read-only variable is not assignable"],
  ["bfloat from float without a conversion", kernel("bfloat b = 1.0f; x[i] = b;"), "conversion from 'float'"],
  [
    "an atomic function on plain memory",
    kernel("atomic_fetch_add_explicit(q, 1, memory_order_relaxed);"),
    "no matching function for call to 'atomic_fetch_add_explicit'",
  ],
  ["arguments of two types", kernel("x[i] = max(x[i], 0);"), "call to 'max' is ambiguous"],
  ["a name that Metal lacks", kernel("x[i] = expp(1.0f);"), "undeclared identifier 'expp'"],
  [
    "a mistake in a template",
    `template <typename T> kernel void k(device T* x [[buffer(0)]], constant T* n [[buffer(1)]]) { device T* p = n; x[0] = p[0]; }
template [[host_name("kf")]] [[kernel]] decltype(k<float>) k<float>;
`,
    "with an lvalue of type 'constant float *'",
  ],
]
const accepted = kernel(`threadgroup float t[32];
  t[i % 32] = max(x[i], scale) + exp(2.0) + float(n[0]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float3 v = float3(t[0], 2, 3);
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_store(m, x, 8);
  atomic_fetch_add_explicit((device atomic_uint*)q, 1u, memory_order_relaxed);
  *(device float4*)(x + 4 * i) = float4(v.xy * 2.0f, float2(1).x, float(bfloat(1.0f)));
  x[i] = simd_sum(x[i]);`)

describe.skipIf(!clang)(`clang reads the kernels${reason}`, () => {
  const compiler = clang as string
  it("one instance of every kernel, as CUDA and with Metal's address spaces", async () => {
    const sources = instances(await kernelSources(FAMILIES))
    expect(sources.length).toBeGreaterThan(60)
    expect(await read(compiler, ptx, sources)).toEqual([])
    expect(await read(compiler, strict, sources)).toEqual([])
  }, 600_000)
  it("the files of packages, as CUDA and with Metal's address spaces", async () => {
    const sources = packagedSources()
    expect(sources.map(({ file }) => file)).toEqual(["axpby.metal", "pointcloud.metal"])
    expect(await read(compiler, strict, sources)).toEqual([])
    expect(await read(compiler, ptx, sources)).toEqual([])
  }, 60_000)
  it("the kernels in CUDA's own language", async () => {
    const sources = cudaSources()
    expect([...new Set(sources.map(({ file }) => file))]).toEqual([
      "attention-few.cu",
      "attention-groups.cu",
      "attention-rows.cu",
      "attention-tiles.cu",
      "attention-token.cu",
      "attention.cu",
      "convolution.cu",
      "few-rows.cu",
      "matrices.cu",
      "packed-row.cu",
      "quantized.cu",
      "stage.cu",
      "transforms.cu",
      "unpack.cu",
      "user.cu",
    ])
    expect(await read(compiler, native, sources)).toEqual([])
    const [refusal] = await read(compiler, native, [
      { source: `${sources[0].source}\n#error planted`, file: "planted.cu" },
    ])
    expect(refusal.message).toContain("planted")
  }, 60_000)
  it("what Metal has", async () => {
    const source = [{ source: accepted, file: "k.metal" }]
    expect(await read(compiler, strict, source)).toEqual([])
    expect(await read(compiler, ptx, source)).toEqual([])
  }, 60_000)
  it.each(planted)(
    "but not %s",
    async (_, source, message) => {
      const [refusal] = await read(compiler, strict, [{ source, file: "k.metal" }])
      expect(refusal?.message).toContain(message)
      expect(refusal.message).toMatch(/k\.metal:\d+:\d+: error: /)
    },
    60_000,
  )
})
