/**
 * The prelude and the executor, by kernels whose results are known.
 * It is long because the language is: a kernel for each of its parts.
 */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { CommandStream, type Size } from "@lazuli/gpu-kernels"
import { afterEach, describe, expect, it, vi } from "vitest"
import { compilerStats } from "./host-compiler"
import { hostNative } from "./host-native"
import { HostRuntime } from "./host-runtime"

const runtime = new HostRuntime()
type Data = Float32Array | Int32Array | Uint32Array | Uint16Array | BigInt64Array

/** Runs one kernel over typed arrays, in place; returns what failed. */
function run(
  source: string,
  args: Data[],
  grid: number | Size,
  group: number | Size = 32,
  options: { name?: string; constants?: Record<number, number | boolean>; on?: HostRuntime } = {},
): string[] {
  const { name = "k", constants, on = runtime } = options
  const pipeline = on.newPipeline(on.newLibrary(`using namespace metal;\n${source}`), name, constants)
  const stream = new CommandStream()
  stream.setPipeline(pipeline)
  const buffers = args.map((data, i) => {
    const buffer = on.newBuffer(data.byteLength)
    on.write(buffer, 0, data)
    stream.setBuffer(i, buffer)
    return buffer
  })
  const size = (n: number | Size): Size => (typeof n === "number" ? [n, 1, 1] : n)
  stream.dispatchThreads(size(grid), size(group))
  const failures = on.wait(on.commit(stream))
  args.forEach((data, i) => on.read(buffers[i], 0, data))
  for (const buffer of buffers) on.releaseBuffer(buffer)
  return failures.map((f) => f.message)
}
const iota = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => i)
const AT = "uint i [[thread_position_in_grid]]"
/** The values that `statements` write to out[0], out[1], …, by one thread. */
function values(statements: string, count: number): number[] {
  const out = new Float32Array(count)
  expect(run(`kernel void k(device float* out, ${AT}) {\n${statements}\n}`, [out], 1)).toEqual([])
  return [...out]
}

describe("grids", () => {
  it("runs ragged grids, with smaller groups at the edge", () => {
    const out = new Float32Array(1000)
    const sizes = new Uint32Array(1000)
    const failed = run(
      `kernel void k(device const float* x, device float* out, device uint* sizes, ${AT},
         uint n [[threads_per_threadgroup]]) { out[i] = 2.0 * x[i]; sizes[i] = n; }`,
      [iota(1000), out, sizes],
      1000,
      256,
    )
    expect(failed).toEqual([])
    expect([out[0], out[999]]).toEqual([0, 1998])
    expect([sizes[0], sizes[999]]).toEqual([256, 1000 - 768])
  })

  it("knows all coordinates in three dimensions", () => {
    const out = new Uint32Array(6 * 4 * 2 * 8)
    const failed = run(
      `kernel void k(device uint* out, uint3 p [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
         ushort3 t [[thread_position_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]],
         uint index [[thread_index_in_threadgroup]], uint2 groups [[threadgroups_per_grid]],
         uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
         device uint* o = out + 8 * (p.x + grid.x * (p.y + grid.y * p.z));
         o[0] = t.x; o[1] = t.y; o[2] = g.x; o[3] = g.z; o[4] = index; o[5] = groups.y; o[6] = lane; o[7] = sg;
       }`,
      [out],
      [6, 4, 2],
      [3, 4, 1],
    )
    expect(failed).toEqual([])
    const at = (x: number, y: number, z: number): number[] => {
      const start = 8 * (x + 6 * (y + 4 * z))
      return [...out.subarray(start, start + 8)]
    }
    expect(at(4, 3, 1)).toEqual([1, 3, 1, 1, 10, 1, 10, 0])
  })

  it("refuses grids with more threads than 32 bits count", () => {
    const pipeline = runtime.newPipeline(
      runtime.newLibrary(`kernel void k(device float* out, ${AT}) { out[0] = 1; }`),
      "k",
    )
    const stream = new CommandStream()
    stream.setPipeline(pipeline)
    stream.dispatchThreadgroups([2 ** 31, 1, 1], [4, 1, 1])
    expect(runtime.wait(runtime.commit(stream))).toMatchObject([
      { message: "a grid of 8589934592 threads along an axis is too large" },
    ])
  })

  it("sets function constants", () => {
    const source = `constant int factor [[function_constant(0)]];
      constant bool twice [[function_constant(1)]];
      kernel void k(device float* out, ${AT}) { out[i] = factor * (is_function_constant_defined(twice) && twice ? 2 : 1); }`
    const out = new Float32Array(1)
    run(source, [out], 1, 1, { constants: { 0: 5 } })
    expect(out[0]).toBe(5)
    run(source, [out], 1, 1, { constants: { 0: 5, 1: true } })
    expect(out[0]).toBe(10)
  })

  it("expands macros", () => {
    const out = new Float32Array(2)
    const source = `#define KERNEL(name, type) \\
  template [[host_name(#name)]] [[kernel]] decltype(fill<type>) fill<type>;
template <typename T> [[kernel]] void fill(device float* out, ${AT}) { out[i] = T(1.7); }
#if defined(__METAL__)
KERNEL(k, int)
#endif
`
    run(source, [out], 2, 2)
    expect([...out]).toEqual([1, 1])
  })
})

describe("prelude", () => {
  it("has vectors with swizzles", () => {
    expect(
      values(
        `float4 a(1, 2, 3, 4); out[0] = float4(a.wzyx).x; float2 b = a.xz * 2.0; out[1] = b.y; a.xy = a.yx; out[2] = a.x;
         a.zw += float2(10, 20); out[3] = a.w; out[4] = dot(a.xyz, float3(1)); float3 c(b, 9); out[5] = c.b;
         int4 n = int4(a) << 1; out[6] = n.y; out[7] = any(a > 23) && !all(a > 23); out[8] = sizeof(float3) + sizeof(packed_float3);
         out[9] = max(a, 3).y; out[10] = (a == float4(2, 1, 13, 24)).z; uint2 u(3, 4); out[11] = (u + 1).x; out[12] = length(float2(3, 4));
         out[13] = mix(a, float4(0), 0.5).x; out[14] = select(a, float4(0), a > 20).w; float2x2 m(float2(1, 2), float2(3, 4)); out[15] = (m * float2(1, 1)).y;`,
        16,
      ),
    ).toEqual([4, 6, 2, 24, 2 + 1 + 13, 9, 2, 1, 28, 3, 1, 4, 5, 1, 0, 6])
  })

  it("rounds half after every operation", () => {
    // 2048 + 1 and 3 · half(1/3) are ties that go to the even neighbour.
    expect(
      values(
        `half a = 2048.0h; out[0] = a + 1.0h; out[1] = (a + 1.0h) + 1.0h; out[2] = half(0.1); out[3] = half(65520.0);
         out[4] = half(1.0h / 3.0h) * 3.0h; out[5] = float(half(5.96e-8)); out[6] = sqrt(half(2.0));`,
        7,
      ),
    ).toEqual([2048, 2048, 0.0999755859375, Number.POSITIVE_INFINITY, 1, 2 ** -24, 1.4140625])
  })

  it("rounds bfloat to nearest even, and computes beside float in float", () => {
    expect(
      values(
        `bfloat a = bfloat(256.0); out[0] = a + bfloat(1.0); out[1] = a + bfloat(3.0); out[2] = a + 1.0f; out[3] = bfloat(0.1);
         out[4] = a * 2 + 1; bfloat b = bfloat(1.0); b += bfloat(0.00390625); out[5] = b; out[6] = as_type<ushort>(bfloat(1.0));
         out[7] = isnan(bfloat(NAN)); out[8] = numeric_limits<bfloat>::max() > 3.3e38; out[9] = exp(bfloat(1.0));`,
        10,
      ),
    ).toEqual([256, 260, 257, 0.10009765625, 512, 1, 0x3f80, 1, 1, 2.71875])
  })

  it("has integer, relational and common functions", () => {
    expect(
      values(
        `out[0] = popcount(0xffu); out[1] = clz(1u); out[2] = ctz(8); out[3] = rotate(1u, 33u); out[4] = mulhi(1u << 31, 4u);
         out[5] = clamp(5, 0, 3); out[6] = min(2u, 3); out[7] = fmax(NAN, 2.0); out[8] = isinf(INFINITY); out[9] = as_type<int>(1.0f) == 0x3f800000;
         out[10] = precise::exp(0.0) + fast::exp(0.0); out[11] = rint(2.5); out[12] = sign(-3.0); out[13] = abs(-4); out[14] = fract(-0.25);
         out[15] = fma(2.0, 3.0, 1.0); out[16] = smoothstep(0.0, 1.0, 0.5); out[17] = pow(2.0, 10.0); out[18] = atan2(1.0, 1.0) * 4; out[19] = trunc(-1.5);`,
        20,
      ),
    ).toEqual([8, 31, 3, 2, 2, 3, 2, 2, 1, 1, 2, 2, -1, 4, 0.75, 7, 0.5, 1024, Math.fround(Math.PI), -1])
  })

  it("adds atomically from many threadgroups", () => {
    const n = 100_000
    const [f, u, s] = [new Float32Array(1), new Uint32Array(2), new Int32Array([0x7fffffff, 5])]
    const failed = run(
      `kernel void k(device atomic_float* f, device atomic_uint* u, device atomic<int>* s, ${AT}) {
         atomic_fetch_add_explicit(f, 1.0f, memory_order_relaxed);
         atomic_fetch_add_explicit(&u[0], i, memory_order_relaxed);
         atomic_fetch_max_explicit(&u[1], i, memory_order_relaxed);
         atomic_fetch_min_explicit(s, -int(i), memory_order_relaxed);
         int expected = 5;
         atomic_compare_exchange_weak_explicit(s + 1, &expected, 6, memory_order_relaxed, memory_order_relaxed);
       }`,
      [f, u, s],
      n,
      256,
    )
    expect(failed).toEqual([])
    expect([f[0], u[0], u[1], s[0], s[1]]).toEqual([n, ((n * (n - 1)) / 2) % 2 ** 32, n - 1, 1 - n, 6])
  })
})

describe("threads that wait for each other", () => {
  it("reduces rows with simdgroups and barriers", () => {
    const out = new Float32Array(8)
    const failed = run(
      `kernel void k(device const float* x, device float* out, ${AT}, uint lane [[thread_index_in_simdgroup]],
           uint group [[simdgroup_index_in_threadgroup]], uint row [[threadgroup_position_in_grid]]) {
         threadgroup float parts[4];
         float sum = simd_sum(x[i]);
         if (lane == 0) parts[group] = sum;
         threadgroup_barrier(mem_flags::mem_threadgroup);
         if (lane == 0 && group == 0) out[row] = parts[0] + parts[1] + parts[2] + parts[3];
       }`,
      [iota(1024), out],
      1024,
      128,
    )
    expect(failed).toEqual([])
    expect([...out]).toEqual([0, 1, 2, 3, 4, 5, 6, 7].map((r) => 128 * 128 * r + (127 * 128) / 2))
  })

  it("passes a value around a ring, one barrier a step", () => {
    const out = new Float32Array(1024)
    const failed = run(
      `kernel void k(device float* out, ${AT}, uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
         threadgroup float ring[1024];
         ring[t] = i;
         for (int step = 0; step < 10; step++) {
           threadgroup_barrier(mem_flags::mem_threadgroup);
           float next = ring[(t + 1) % n];
           threadgroup_barrier(mem_flags::mem_threadgroup);
           ring[t] = next;
         }
         out[i] = ring[t];
       }`,
      [out],
      1024,
      512,
    )
    expect(failed).toEqual([])
    expect([out[0], out[511], out[512], out[1023]]).toEqual([10, 9, 522, 521])
  })

  it("has simdgroup and quad operations", () => {
    const out = new Float32Array(12 * 64)
    const failed = run(
      `kernel void k(device float* out, ${AT}, uint lane [[thread_index_in_simdgroup]]) {
         device float* o = out + 12 * i;
         o[0] = simd_sum(float(i)); o[1] = simd_max(i); o[2] = simd_min(float(i)); o[3] = simd_shuffle(i, 5);
         o[4] = simd_shuffle_down(i, 2); o[5] = simd_shuffle_xor(i, 1); o[6] = simd_prefix_inclusive_sum(1); o[7] = simd_prefix_exclusive_sum(1);
         o[8] = simd_broadcast(float2(i, 2 * i), 3).y; o[9] = quad_sum(lane); o[10] = simd_all(lane < 32) && simd_any(lane == 7);
         o[11] = popcount(ulong(simd_ballot(lane % 2 == 0)));
       }`,
      [out],
      64,
      64,
    )
    expect(failed).toEqual([])
    expect([...out.subarray(12 * 34, 12 * 35)]).toEqual([1520, 63, 32, 37, 36, 35, 3, 2, 70, 6, 1, 16])
  })

  it("lets a part of a simdgroup take part", () => {
    const out = new Float32Array(32)
    const failed = run(
      `kernel void k(device float* out, ${AT}) {
         float x = 0;
         if (i < 8) x = simd_sum(1.0f);
         out[i] = x + simd_sum(1.0f);
       }`,
      [out],
      32,
    )
    expect(failed).toEqual([])
    expect([out[0], out[31]]).toEqual([40, 32])
  })

  it("multiplies simdgroup matrices", () => {
    const [a, b, c] = [
      iota(64),
      Float32Array.from({ length: 64 }, (_, i) => ((i * 7) % 11) - 5),
      new Float32Array(64),
    ]
    const failed = run(
      `kernel void k(device const float* a, device const float* b, device float* c, ${AT}) {
         simdgroup_float8x8 x, y, z = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
         simdgroup_load(x, a, 8);
         simdgroup_load(y, b, 8);
         simdgroup_multiply_accumulate(z, x, y, z);
         simdgroup_store(z, c, 8);
       }`,
      [a, b, c],
      32,
    )
    expect(failed).toEqual([])
    const expected = Array.from({ length: 64 }, (_, i) => {
      let sum = 1
      for (let k = 0; k < 8; k++) sum += a[8 * (i >> 3) + k] * b[8 * k + (i & 7)]
      return sum
    })
    expect([...c]).toEqual(expected)
  })

  // A kernel that asks for a thread's own elements has matrices in parts.
  it.each(["float", "half", "bfloat"])("multiplies %s matrices alike, whole and in parts", (type) => {
    const a = Float32Array.from({ length: 400 }, (_, i) => ((i * 37) % 101) / 8 - 5)
    const product = (use: string): number[] => {
      const c = new Float32Array(400)
      const failed = run(
        `kernel void k(device const float* a, device float* c, ${AT}) {
           simdgroup_matrix<${type}, 8, 8> x, y, z(${type}(3.0f)), w;
           simdgroup_load(x, a, 20, ulong2(3, 2));
           simdgroup_load(y, a, 20, ulong2(1, 5), true);
           simdgroup_multiply_accumulate(z, x, y, z);
           simdgroup_multiply(w, z, y);
           ${use}
           simdgroup_store(z, c, 20, ulong2(2, 1));
           simdgroup_store(w, c, 20, ulong2(10, 3), true);
         }`,
        [a, c],
        32,
      )
      expect(failed).toEqual([])
      return [...c]
    }
    const whole = product("")
    expect(product(`z.thread_elements()[0] += ${type}(0.0f);`)).toEqual(whole)
    expect(whole.filter((v) => v !== 0).length).toBeGreaterThan(100)
  })
})

describe("errors instead of crashes", () => {
  const out = (): Float32Array => new Float32Array(8192)
  it("names a barrier that some threads never reach", () => {
    expect(
      run(
        `kernel void k(device float* out, ${AT}) {
           if (i > 5) return;
           threadgroup_barrier(mem_flags::mem_none);
           out[i] = 1;
         }`,
        [out()],
        32,
      ),
    ).toEqual(["k: threadgroup_barrier at line 4 was reached by 6 of 32 threads; the others returned"])
  })
  it("names two barriers on different ways", () => {
    expect(
      run(
        `kernel void k(device float* out, ${AT}) {
           if (i > 5) threadgroup_barrier(mem_flags::mem_none);
           else threadgroup_barrier(mem_flags::mem_none);
         }`,
        [out()],
        32,
      ),
    ).toEqual(["k: the threads of a threadgroup wait at different barriers, at lines 3 and 4"])
  })
  it("names the buffer that is overrun", () => {
    const name = `kernel void k(device float* out, device const float* x, ${AT}) { out[i] = x[i + 100000]; }`
    expect(run(name, [out(), iota(99_328)], 1024)).toEqual([
      "k: accesses memory beyond the end of buffer 1: byte 400000 of 397312",
    ])
  })
  it("finds an overrun by one where buffers are checked", () => {
    const checked = new HostRuntime({ checked: true })
    const source = `kernel void k(device float* out, ${AT}) { out[i] = 1.0; }`
    expect(run(source, [new Float32Array(12)], 12, 32, { on: checked })).toEqual([])
    expect(run(source, [new Float32Array(12)], 13, 32, { on: checked })).toEqual([
      "k: accesses memory beyond the end of buffer 0: byte 48 of 48",
    ])
  })
  it("names a buffer that is not bound", () => {
    expect(
      run(`kernel void k(device float* out, device const float* x, ${AT}) { out[i] = x[i]; }`, [out()], 1),
    ).toEqual(["k: accesses buffer 1, which is not bound"])
  })
  it("survives integer division by zero, wild pointers and stacks that overflow", () => {
    expect(
      run(`kernel void k(device int* out, ${AT}) { out[i] = 7 / out[i + 1]; }`, [new Int32Array(4096)], 1),
    ).toEqual(["k: divides an integer by zero"])
    expect(
      run(`kernel void k(device float* out, ${AT}) { *(device float*)(ulong(i) + 8) = 1; }`, [out()], 1)[0],
    ).toContain("accesses memory that it may not access")
    expect(
      run(
        `kernel void k(device float* out, ${AT}) {
           volatile float a[90000];
           for (int n = 89999; n >= 0; n--) a[n] = n;
           threadgroup_barrier(mem_flags::mem_none);
           out[i] = a[i];
         }`,
        [out()],
        64,
      )[0],
    ).toContain("a thread's variables need more than 224 KB")
  })
  it("limits threadgroup memory", () => {
    expect(
      run(
        `kernel void k(device float* out, ${AT}) { threadgroup float big[10000]; big[i] = 1; out[i] = big[i]; }`,
        [out()],
        32,
      ),
    ).toEqual(["k: needs more than 32768 bytes of threadgroup memory"])
  })
  it("goes on after a failed command", () => {
    const source = `kernel void k(device int* out, ${AT}) { out[i] = 7; }`
    const data = new Int32Array(4)
    expect(run(source, [data], 4)).toEqual([])
    expect([...data]).toEqual([7, 7, 7, 7])
  })
  it("points to the line that does not compile", () => {
    expect(() =>
      runtime.newLibrary("kernel void k(device float* out) {\n\n  out[0] = missing(1.0);\n}", {
        file: "mine.metal",
      }),
    ).toThrowErrorMatchingInlineSnapshot(`
      [DeviceError: [metal] the source of a kernel does not compile:
      mine.metal:3: 'missing' was not declared in this scope
          out[0] = missing(1.0);]
    `)
  })
  it("refuses what Metal refuses at dispatch", () => {
    const stream = new CommandStream()
    expect(() => stream.setBytes(0, new Uint8Array(4097))).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: [setBytes] takes at most 4096 bytes, received 4097: use a buffer]`,
    )
    expect(() => stream.setBytes(31, new Uint8Array(4))).toThrow("buffer indices go from 0 to 30")
    stream.setPipeline({ id: 0, name: "k", maxThreads: 256 })
    expect(() => stream.dispatchThreads([1, 1, 1], [512, 1, 1])).toThrow("1 to 256 threads")
    expect(() => runtime.newPipeline(runtime.newLibrary("kernel void k(device int* a) {}"), "j")).toThrow(
      'has no kernel "j"; it has k',
    )
  })
})

describe("a time limit", () => {
  afterEach(() => hostNative().setTimeLimit(300))
  it.each([
    ["plain loops", "while (x[0] >= 0.0f) y[i] += 1.0f;"],
    [
      "loops with barriers",
      "while (x[0] >= 0.0f) { y[i] += 1.0f; threadgroup_barrier(mem_flags::mem_device); }",
    ],
  ])("ends %s that have no end, and the next kernel runs", (_, body) => {
    hostNative().setTimeLimit(0.5)
    const y = new Float32Array(64)
    const source = (text: string): string =>
      `kernel void k(device float* x, device float* y, ${AT}) { ${text} }`
    expect(run(source(body), [iota(64), y], 64)).toEqual([
      "k: did not end within 0.5 seconds: an endless loop? LAZULI_METAL_TIME_LIMIT sets another limit, 0 none",
    ])
    expect(run(source("y[i] = x[i];"), [iota(64), y], 64)).toEqual([])
    expect([...y]).toEqual([...iota(64)])
  })
})

describe("memory and events", () => {
  it("shares memory with JavaScript both ways", () => {
    const buffer = runtime.newBuffer(16)
    const view = new Float32Array(runtime.contents(buffer))
    view[1] = 5
    const copy = new Float32Array(1)
    runtime.read(buffer, 4, copy)
    expect(copy[0]).toBe(5)
    const own = new Float32Array([1, 2, 3])
    const wrapped = runtime.wrapBuffer(own.buffer)
    runtime.write(wrapped, 8, new Float32Array([9]))
    expect([...own]).toEqual([1, 2, 9])
    expect(runtime.contents(wrapped)).toBe(own.buffer)
    expect(() => runtime.read(wrapped, 8, new Float32Array(2))).toThrow("outside the buffer")
    runtime.releaseBuffer(wrapped)
    runtime.releaseBuffer(buffer)
    expect(view[1]).toBe(5)
  })
  it("counts events", () => {
    const stream = new CommandStream()
    const event = runtime.newEvent()
    stream.signal(event, 3)
    stream.wait(event, 2)
    expect(runtime.wait(runtime.commit(stream))).toEqual([])
    expect(runtime.eventValue(event)).toBe(3)
    stream.wait(event, 4)
    expect(runtime.wait(runtime.commit(stream))).toMatchObject([
      { message: "waits for an event that nothing has signalled" },
    ])
  })
})

describe("compiled kernels", () => {
  const source = `kernel void k(device float* out, ${AT}) { out[i] = ${Math.random()}; }`
  it("are kept by this process and on disk", () => {
    const before = { ...compilerStats }
    const library = runtime.newLibrary(source)
    expect(runtime.newLibrary(source)).toBe(library)
    expect(compilerStats.compiled).toBe(before.compiled + 1)
    new HostRuntime().newLibrary(source)
    expect(compilerStats.compiled).toBe(before.compiled + 1)
    expect(compilerStats.fromDisk).toBe(before.fromDisk + 1)
  })
  it.each(["prepare", "compileTogether"] as const)(
    "are compiled together by %s, but for what does not compile",
    async (way) => {
      const folder = mkdtempSync(join(tmpdir(), "lazuli-metal-"))
      vi.stubEnv("LAZULI_CACHE_DIR", folder)
      try {
        const fresh = new HostRuntime()
        // Two kernels of one name, of which one waits.
        const sources = ["out[i] = 1;", "out[i] = simd_sum(1.0f);"].map((body) => ({
          source: `using namespace metal;\nkernel void k(device float* out, ${AT}) { ${body} }`,
          file: "k.metal",
        }))
        const constant = {
          ...sources[0],
          source: `constant int c [[function_constant(0)]];\n${sources[0].source}`,
        }
        const refused = { ...sources[0], source: "kernel void k(device double* a) {}" }
        const before = compilerStats.compiled
        await fresh[way]([...sources, ...sources, constant, refused])
        expect(compilerStats.compiled).toBe(before + 2)
        const results = sources.map(({ source, file }) => {
          const stream = new CommandStream()
          stream.setPipeline(fresh.newPipeline(fresh.newLibrary(source, { file }), "k"))
          const buffer = fresh.newBuffer(8)
          stream.setBuffer(0, buffer)
          stream.dispatchThreads([2, 1, 1], [2, 1, 1])
          fresh.wait(fresh.commit(stream))
          return [...new Float32Array(fresh.contents(buffer), 0, 2)]
        })
        expect(results).toEqual([
          [1, 1],
          [2, 2],
        ])
        expect(compilerStats.compiled).toBe(before + 2)
        // One that the compiler alone refuses spoils its unit, and nothing else.
        const broken = { ...sources[0], source: "kernel void k(device float* a) { a[0] = b; }" }
        const good = { ...sources[0], source: sources[0].source.replace("1;", "5;") }
        await fresh[way]([broken, good])
        expect(() => fresh.newLibrary(broken.source, broken)).toThrow("k.metal:1: 'b' was not declared")
        expect(fresh.newLibrary(good.source, good).kernels).toEqual(["k"])
        const files = readdirSync(join(folder, "metal-host"), { recursive: true }) as string[]
        expect(files.filter((f) => f.includes(".tmp"))).toEqual([])
      } finally {
        vi.unstubAllEnvs()
        rmSync(folder, { recursive: true })
      }
    },
  )
  it("are compiled with the prelude's text where its precompiled form is refused", () => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-metal-"))
    vi.stubEnv("LAZULI_CACHE_DIR", folder)
    try {
      const fresh = new HostRuntime()
      fresh.newLibrary(source)
      const files = readdirSync(join(folder, "metal-host"), { recursive: true, encoding: "utf8" })
      for (const file of files.filter((name) => name.endsWith(".gch")))
        writeFileSync(join(folder, "metal-host", file), "")
      expect(fresh.newLibrary(`${source}\n`).kernels).toEqual(["k"])
    } finally {
      vi.unstubAllEnvs()
      rmSync(folder, { recursive: true })
    }
  })
  it("leave nothing half-written", () => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-metal-"))
    vi.stubEnv("LAZULI_CACHE_DIR", folder)
    try {
      expect(() => new HostRuntime().newLibrary("kernel void k(device float* a) { a[0] = b; }")).toThrow(
        "was not declared",
      )
      const files = readdirSync(join(folder, "metal-host"), { recursive: true }) as string[]
      expect(files.filter((f) => /\.(tmp|so)$/.test(f))).toEqual([])
    } finally {
      vi.unstubAllEnvs()
      rmSync(folder, { recursive: true })
    }
  })
  it("say what is missing where there is no compiler or no addon", async () => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-metal-"))
    vi.stubEnv("LAZULI_CACHE_DIR", folder)
    vi.stubEnv("CXX", "no-such-compiler")
    vi.stubEnv("LAZULI_METAL_HOST_ADDON", join(folder, "no-such.node"))
    try {
      vi.resetModules()
      const fresh = new (await import("./host-runtime")).HostRuntime()
      expect(() => fresh.newLibrary(source)).toThrowErrorMatchingInlineSnapshot(
        `[DeviceError: [metal] the host runtime needs a C++ compiler to compile a kernel, and no-such-compiler does not run. Install one (on Debian or Ubuntu: apt-get install g++), or name one in CXX]`,
      )
      expect(() => fresh.newBuffer(16)).toThrow(/addon for .* could not be loaded: .*npm run build in/)
    } finally {
      vi.unstubAllEnvs()
      vi.resetModules()
      rmSync(folder, { recursive: true })
    }
  })
  it("are run by as many threads as asked for, with the same result", () => {
    const native = hostNative()
    const results = [1, 2].map((threads) => {
      native.setThreads(threads)
      const out = new Float32Array(65536)
      run(`kernel void k(device float* out, ${AT}) { out[i] = sin(float(i)); }`, [out], 65536, 128)
      return out
    })
    native.setThreads(0)
    expect(results[1]).toEqual(results[0])
    expect(results[0][1]).toBeCloseTo(Math.sin(1), 6)
  })
})
