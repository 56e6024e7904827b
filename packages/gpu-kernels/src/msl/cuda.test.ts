/** Metal source for NVRTC: kernels' parameters, and the text around them. That it compiles is ptx.test.ts's matter. */
import { describe, expect, it } from "vitest"
import { type CudaOptions, cudaSource } from "./cuda"

/** The translated text from the source's first line on. */
const textOf = (msl: string, options?: CudaOptions): string =>
  cudaSource(msl, options).source.split("#line 1 ").slice(1).join("")

const SCALE = `#include <metal_stdlib>
using namespace metal;
kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float& by [[buffer(2)]],
    constant int* shape [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * by * 2.0 + shape[0];
}
`

describe("a kernel in CUDA", () => {
  it("is a function, and around it a kernel that finds its arguments", () => {
    expect(textOf(SCALE)).toMatchInlineSnapshot(`
      ""kernel.metal"

      using namespace metal;
       __forceinline__ void scale( const float* x ,  float* y , const float& by ,
          const int* shape , uint i ) {
        y[i] = x[i] * by * 2.0f + shape[0];
      }

      "kernels"
      extern "C" __global__ void __launch_bounds__(1024) lz_scale(
          lz::Target<lz::Parameter<0, decltype(&::lzm::scale)>>* lz_a0,
          lz::Target<lz::Parameter<1, decltype(&::lzm::scale)>>* lz_a1,
          const __grid_constant__ lz::plain<lz::Target<lz::Parameter<2, decltype(&::lzm::scale)>>> lz_a2,
          lz::Target<lz::Parameter<3, decltype(&::lzm::scale)>>* lz_a3,
          const __grid_constant__ lz::Grid lz_grid) {
        lz::await_earlier();
        lz::Thread lz_t;
        if (!lz::enter<false>(lz_grid, lz_t)) return;
        ::lzm::scale(lz::Argument<lz::Parameter<0, decltype(&::lzm::scale)>>::at(lz_a0), lz::Argument<lz::Parameter<1, decltype(&::lzm::scale)>>::at(lz_a1), lz_a2, lz::Argument<lz::Parameter<3, decltype(&::lzm::scale)>>::at(lz_a3), lz::three<lz::Parameter<4, decltype(&::lzm::scale)>>(lz_t.group[0] * ::blockDim.x + lz_t.at[0], lz_t.group[1] * ::blockDim.y + lz_t.at[1], lz_t.group[2] * ::blockDim.z + lz_t.at[2]));
      }
      }
      "
    `)
  })
  it("takes references to constants by value, and everything else by address", () => {
    const [kernel] = cudaSource(SCALE).kernels
    expect(kernel).toMatchObject({ name: "scale", symbol: "lz_scale", maxThreads: 1024 })
    expect(kernel.parameters).toEqual([
      { kind: "pointer", index: 0, size: 8 },
      { kind: "pointer", index: 1, size: 8 },
      { kind: "value", index: 2 },
      { kind: "pointer", index: 3, size: 8 },
      { kind: "grid", size: 28 },
    ])
  })
  it("takes by value what comes with the launch, where that is known", () => {
    const inline = [undefined, undefined, undefined, 20]
    expect(cudaSource(SCALE, { inline }).kernels[0].parameters.slice(2, 4)).toEqual([
      { kind: "pointer", index: 2, size: 8 },
      { kind: "value", index: 3, size: 32 },
    ])
  })
  it("has its threadgroup memory in the block's, one after the other", () => {
    const source = (second: string) =>
      `kernel void k(threadgroup float* a [[threadgroup(0)]]${second}) { threadgroup float own[4][2], other; own[0][0] = other; }`
    expect(textOf(source(""))).toContain("__shared__ float own[4][2]; __shared__ float other;")
    expect(cudaSource(source("")).kernels[0].parameters.map((p) => p.kind)).toEqual(["grid"])
    const { parameters } = cudaSource(source(", threadgroup int* b [[threadgroup(1)]]")).kernels[0]
    expect(parameters).toEqual([
      { kind: "threadgroup", index: 0, size: 4 },
      { kind: "threadgroup", index: 1, size: 4 },
      { kind: "grid", size: 28 },
    ])
  })
  it("packs the threads of smaller groups only where their numbers matter", () => {
    const kernel = (body: string) => textOf(`kernel void k(uint i [[thread_position_in_grid]]) { ${body} }`)
    expect(kernel("")).toContain("lz::enter<false>")
    expect(kernel("threadgroup_barrier(mem_flags::mem_none);")).toContain("lz::enter<true>")
  })
  it("is named for each of its instances", () => {
    const { kernels, source } =
      cudaSource(`template <typename T> [[kernel]] void f(device T* x [[buffer(0)]]) { x[0] = T(1); }
template [[host_name("f-float")]] [[kernel]] decltype(f<float>) f<float>;
template [[host_name("f-int")]] [[kernel]] decltype(f<int>) f<int>;
`)
    expect(kernels.map((k) => [k.name, k.symbol])).toEqual([
      ["f-float", "lz_f_float"],
      ["f-int", "lz_f_int"],
    ])
    expect(source).toContain("lz::Target<lz::Parameter<0, decltype(&::lzm::f<int>)>>* lz_a0")
  })
  it("has function constants as values and other constants in their memory", () => {
    const text = cudaSource(
      "constant int n [[function_constant(3)]];\nconstant float table[2] = {1, 2.5};\nconstant constexpr int m = 4;\nkernel void k(device float* x) { x[n] = table[m]; }",
      { constants: { 3: 7 } },
    ).source.replace(/ +/g, " ")
    expect(text).toContain("#define LZ_CONSTANT_3 7\n")
    expect(text).toContain("constexpr int n = static_cast<int>(LZ_CONSTANT_3)")
    expect(text).toContain("static __constant__ const float table[2] = {1, 2.5f};")
    expect(text).toContain("static __constant__ const int m = 4;")
  })
  it("has the limit of threads that it asks for, or that its caller knows", () => {
    const source = "[[kernel, max_total_threads_per_threadgroup(64)]] void k(device float* x) {}"
    expect(cudaSource(source).kernels[0].maxThreads).toBe(64)
    expect(cudaSource(source, { maxThreads: 32 }).source).toContain("__launch_bounds__(32)")
  })
  it("contracts only where the mode of arithmetic allows it", () => {
    expect(cudaSource(SCALE).options).toContain("--fmad=false")
    expect(cudaSource(SCALE, { mathMode: "fast" }).options).toContain("--use_fast_math")
  })
  it("is refused where Metal refuses it", () => {
    expect(() => cudaSource("kernel void k(device double* x) {}", { file: "a.metal" })).toThrow(
      "a.metal:1: Metal has no double: use float",
    )
  })
})

describe("a kernel's loops and matrices", () => {
  const bodyOf = (body: string): string => textOf(`kernel void k(device float* x) { ${body} }`)
  it("has loops of a few turns unrolled, so that what they index stays in registers", () => {
    expect(bodyOf("for (uint i = 0; i < 4; i++) x[i] = 0;")).toContain("LZ_UNROLL for (uint i = 0;")
    expect(bodyOf("for (int i = 0; i < 64; i += 8) x[i] = 0;")).toContain("LZ_UNROLL")
    for (const head of ["uint i = 0; i < 17; i++", "uint i = 0; i < n; i++", "uint i = n; i < 4; i++", ";;"])
      expect(bodyOf(`uint n = 3; for (${head}) x[i] = 0;`)).not.toContain("LZ_UNROLL")
  })
  it("numbers lanes as tensor cores want them where there are matrices, and only there", () => {
    expect(cudaSource("kernel void k(device float* x) { simdgroup_float8x8 m; }").source).toContain(
      "LZ_LANES",
    )
    expect(cudaSource("kernel void k(device float* x) { x[0] = simd_sum(x[0]); }").source).not.toContain(
      "LZ_LANES",
    )
  })
})
