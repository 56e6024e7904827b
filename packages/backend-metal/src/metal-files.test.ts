/**
 * Whole `.metal` files that packages bring: named instances, buffers by index, bytes, function constants, several dispatches with scratch
 * memory, results over inputs that nobody needs any more; and what is said of mistakes.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import {
  definePrimitive,
  type MetalDispatch,
  type MetalFileKernel,
  type MetalSteps,
  provideKernels,
} from "@lazuli/core/plugin"
import { afterAll, beforeEach, describe, expect, test } from "vitest"
import { metalBackend } from "./index"

const PACKAGE = "@test/metal-files"
const folder = mkdtempSync(join(tmpdir(), "lazuli-metal-files-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
beforeEach(() => mx.resetBackendStats())

mkdirSync(join(folder, "shared"))
writeFileSync(
  join(folder, "shared", "sums.h"),
  `#pragma once
using namespace metal;
inline float group_sum(float x, threadgroup float* partial, uint lane, uint simdgroup, uint groups) {
  x = simd_sum(x);
  if (lane == 0) partial[simdgroup] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint i = 0; i < groups; i++) sum += partial[i];
  return sum;
}
`,
)
writeFileSync(
  join(folder, "kernels.metal"),
  `#include <metal_stdlib>
#include "shared/sums.h"
#include "shared/sums.h"
using namespace metal;

constant bool HAS_BIAS [[function_constant(0)]];
constant int POWER [[function_constant(1)]];
constant int TIMES = is_function_constant_defined(POWER) ? POWER : 1;

struct Sizes { uint rows, columns; float scale; };

template <typename T>
kernel void row_sums(const device T* x [[buffer(0)]], constant Sizes& sizes [[buffer(4)]], device float* sums [[buffer(2)]],
    threadgroup float* partial [[threadgroup(0)]], uint row [[threadgroup_position_in_grid]],
    uint at [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint groups [[simdgroups_per_threadgroup]]) {
  float sum = 0.0f;
  for (uint c = at; c < sizes.columns; c += size) sum += float(x[row * sizes.columns + c]);
  sum = group_sum(sum, partial, lane, simdgroup, groups);
  if (at == 0) sums[row] = sum;
}
template [[host_name("row_sums_float32")]] [[kernel]] decltype(row_sums<float>) row_sums<float>;
template [[host_name("row_sums_float16")]] [[kernel]] decltype(row_sums<half>) row_sums<half>;

template <typename T>
kernel void divide(const device T* x [[buffer(0)]], const device float* sums [[buffer(1)]],
    const device T* bias [[buffer(2), function_constant(HAS_BIAS)]], device T* out [[buffer(3)]],
    constant Sizes& sizes [[buffer(4)]], uint2 at [[thread_position_in_grid]]) {
  uint i = at.y * sizes.columns + at.x;
  float value = float(x[i]);
  for (int n = 0; n < TIMES; n++) value = value / sums[at.y] * sizes.scale;
  if (HAS_BIAS) value += float(bias[at.x]);
  out[i] = T(value);
}
template [[host_name("divide_float32")]] [[kernel]] decltype(divide<float>) divide<float>;
template [[host_name("divide_float16")]] [[kernel]] decltype(divide<half>) divide<half>;

kernel void layouts(const device float* x [[buffer(0)]], constant int* shape [[buffer(1)]],
    constant long* strides [[buffer(2)]], device int* out [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  out[i] = shape[i] * 100 + int(strides[i]);
}

kernel void over(const device float* x [[buffer(0)]], device float* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = 2.0f * x[i];
}
`,
)
const library = pathToFileURL(join(folder, "kernels.metal"))

/** [rows, columns, scale] as the file's struct has them. */
function sizesOf(rows: number, columns: number, scale: number): Uint8Array {
  const bytes = new Uint8Array(12)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, rows, true)
  view.setUint32(4, columns, true)
  view.setFloat32(8, scale, true)
  return bytes
}

const share = definePrimitive({
  name: `${PACKAGE}/share`,
  api: 1,
  params: { scale: "f64", power: "i64" },
  infer: ([x]) => x,
  decompose: ([x, bias], { scale, power }) => {
    const sums = x.sum(-1, true)
    let y = x
    for (let i = 0; i < (power || 1); i++) y = y.divide(sums).multiply(scale)
    return bias ? y.add(bias) : y
  },
})

const shareKernel = (inputs: readonly string[]): MetalFileKernel => ({
  inputNames: inputs,
  outputNames: ["out"],
  launch: ({ outputs: [{ shape, dtype }], params }) => {
    if (shape.length !== 2 || dtype === mx.bfloat16) return null
    const [rows, columns] = shape
    const sizes = sizesOf(rows, columns, params.scale as number)
    const threads = 64
    const hasBias = inputs.includes("bias")
    const power = params.power as number
    const constants = { HAS_BIAS: hasBias, ...(power > 0 && { POWER: power }) }
    return {
      scratch: { sums: 4 * rows },
      dispatches: [
        {
          kernel: `row_sums_${dtype.name}`,
          buffers: ["x", null, "sums", null, sizes],
          grid: [rows * threads],
          threadgroup: [threads],
          threadgroupMemory: [4 * 32],
        },
        {
          kernel: `divide_${dtype.name}`,
          buffers: ["x", "sums", hasBias ? "bias" : null, "out", sizes],
          grid: [columns, rows],
          threadgroup: [32, 4],
          constants,
        },
      ],
    }
  },
})
provideKernels({
  form: "metal",
  package: PACKAGE,
  library,
  kernels: { [`${PACKAGE}/share`]: shareKernel(["x"]) },
})
const biased = definePrimitive({
  name: `${PACKAGE}/biased`,
  api: 1,
  params: { scale: "f64", power: "i64" },
  infer: ([x]) => x,
  decompose: ([x, bias], { scale }) => x.divide(x.sum(-1, true)).multiply(scale).add(bias),
})
provideKernels({
  form: "metal",
  package: PACKAGE,
  library,
  kernels: { [`${PACKAGE}/biased`]: shareKernel(["x", "bias"]) },
})

const near = (got: mx.Array, wanted: mx.Array, tolerance = 1e-5): void => {
  expect(got.shape).toEqual(wanted.shape)
  expect(mx.abs(got.subtract(wanted)).max().item()).toBeLessThanOrEqual(tolerance)
}
const onGpu = <T>(body: () => T): T => mx.stream(mx.gpu, body)
const grid = (rows: number, columns: number): mx.Array =>
  mx
    .arange(rows * columns, { dtype: mx.float32 })
    .remainder(7)
    .add(1)
    .reshape([rows, columns])

describe("a file's kernels", () => {
  test("run in several dispatches, with scratch memory, bytes and threadgroup memory", () => {
    const x = grid(5, 200)
    const y = onGpu(() => share([x], { scale: 2, power: 0 }))
    near(y, x.divide(x.sum(1, true)).multiply(2))
    expect(mx.backendStats()).toEqual({})
  })
  test("have an instance for a dtype, and leave others to the decomposition", () => {
    const x = grid(3, 40).astype(mx.float16)
    near(
      onGpu(() => share([x], { scale: 1, power: 0 })).astype(mx.float32),
      x.astype(mx.float32).divide(x.astype(mx.float32).sum(1, true)),
      1e-3,
    )
    expect(mx.backendStats()).toEqual({})
    mx.eval(onGpu(() => share([x.astype(mx.bfloat16)], { scale: 1, power: 0 })))
    expect(mx.backendStats().metal).toEqual({ [`${PACKAGE}/share`]: { decomposed: 1, reference: 0 } })
  })
  test("take function constants by name, and parameters that depend on them", () => {
    const x = grid(4, 8)
    const bias = mx.arange(8, { dtype: mx.float32 })
    near(
      onGpu(() => biased([x, bias], { scale: 3, power: 0 })),
      x.divide(x.sum(1, true)).multiply(3).add(bias),
    )
    near(
      onGpu(() => share([x], { scale: 3, power: 2 })),
      x.divide(x.sum(1, true)).multiply(3).divide(x.sum(1, true)).multiply(3),
    )
  })
  test("read strided inputs as copies, and work in compiled functions and on arrays of any size", () => {
    const x = grid(40, 6)
    const run = (v: mx.Array): mx.Array => share([v.T.add(0)], { scale: 1, power: 0 }).multiply(2)
    near(
      onGpu(() => share([x.T], { scale: 1, power: 0 })),
      x.T.divide(x.T.sum(1, true)),
    )
    near(
      onGpu(() => compile(run)(x)),
      run(x),
    )
    expect(onGpu(() => share([mx.array([[3]])], { scale: 1, power: 0 })).tolist()).toEqual([[1]])
    expect(onGpu(() => share([mx.zeros([0, 4])], { scale: 1, power: 0 })).shape).toEqual([0, 4])
  })
})

test("a kernel gets the shape and the strides of an input where it asks for them", () => {
  const name = `${PACKAGE}/layouts`
  const layouts = definePrimitive({
    name,
    api: 1,
    infer: ([x]) => ({ shape: [x.shape.length], dtype: mx.int32 }),
    decompose: ([x]) => mx.zeros([x.ndim], mx.int32),
  })
  provideKernels({
    form: "metal",
    package: PACKAGE,
    library: join(folder, "kernels.metal"),
    kernels: {
      [name]: {
        inputNames: ["x"],
        outputNames: ["out"],
        ensureRowContiguous: false,
        launch: ({ inputs: [x] }) => ({
          dispatches: [
            {
              kernel: "layouts",
              buffers: ["x", { shapeOf: "x" }, { stridesOf: "x" }, "out"],
              grid: [x.shape.length],
              threadgroup: [8],
            },
          ],
        }),
      },
    },
  })
  const x = onGpu(() => mx.contiguous(mx.ones([3, 5])).T)
  expect(onGpu(() => layouts([x])).tolist()).toEqual([501, 305])
})

describe("an output over an input", () => {
  const name = `${PACKAGE}/over`
  const over = definePrimitive({ name, api: 1, infer: ([x]) => x, decompose: ([x]) => x.multiply(2) })
  provideKernels({
    form: "metal",
    package: PACKAGE,
    library,
    kernels: {
      [name]: {
        inputNames: ["x"],
        outputNames: ["out"],
        overwrites: { out: ["x"] },
        launch: ({ outputs: [out] }) => ({
          dispatches: [
            {
              kernel: "over",
              buffers: ["x", "out"],
              grid: [out.shape[0]],
              threadgroup: [64],
            },
          ],
        }),
      },
    },
  })
  const BYTES = 2 ** 18
  /** Bytes at most in use beyond what was before. */
  const peakOf = (body: (x: mx.Array) => mx.Array[]): number =>
    onGpu(() => {
      const x = mx.ones([BYTES / 4])
      mx.eval(x)
      metalBackend.memory.resetPeak?.()
      const before = metalBackend.memory.stats?.().active ?? 0
      const results = body(x)
      mx.eval(results)
      const peak = metalBackend.memory.stats?.().peak ?? 0
      for (const y of results) expect(y.index(-1).item()).toBe(16)
      return peak - before
    })
  test("takes its memory where nobody needs it any more", () => {
    const thrice = (x: mx.Array): mx.Array[] => {
      const steps = [x.add(1)]
      for (let i = 0; i < 3; i++) steps.push(over([steps[i]]))
      for (const step of steps.slice(0, -1)) step.dispose()
      return steps.slice(-1)
    }
    expect(peakOf(thrice)).toBe(BYTES)
  })
  test("leaves inputs alone that somebody has", () => {
    const middle: mx.Array[] = []
    const peak = peakOf((x) => {
      middle.push(x.add(1))
      return [over([over([over([middle[0]])])])]
    })
    expect(peak).toBeGreaterThanOrEqual(2 * BYTES)
    expect(middle[0].index(0).item()).toBe(2)
  })
})

describe("mistakes", () => {
  const name = `${PACKAGE}/mistaken`
  const mistaken = definePrimitive({
    name,
    api: 1,
    infer: ([x]) => x,
    decompose: ([x]) => x.divide(x.sum(-1, true)),
  })
  let steps: unknown
  const good: MetalDispatch = {
    kernel: "divide_float32",
    buffers: ["x", "x", null, "out", sizesOf(2, 2, 1)],
    grid: [2, 2],
    threadgroup: [2, 2],
    constants: { HAS_BIAS: false },
  }
  provideKernels({
    form: "metal",
    package: PACKAGE,
    library,
    kernels: {
      [name]: { inputNames: ["x"], outputNames: ["out"], launch: () => steps as MetalSteps },
    },
  })
  const said = (dispatch: object, others: object = {}): string => {
    steps = { dispatches: [{ ...good, ...dispatch }], ...others }
    try {
      onGpu(() => mistaken([mx.ones([2, 2])])).tolist()
      return "nothing"
    } catch (error) {
      return String(error).replace(`[${name}] `, "")
    }
  }
  const rowSums = { kernel: "row_sums_float32", buffers: ["x", null, "out", null, sizesOf(2, 2, 1)] }

  test("in what is bound are said by index and name", () => {
    expect([
      said({}),
      said({ kernel: "divide_flaot32" }),
      said({ buffers: ["x", "x", null, "out"] }),
      said({ buffers: [null, "x", null, "out", sizesOf(2, 2, 1)] }),
      said({ buffers: [...good.buffers, "x"] }),
      said({ buffers: ["x", "x", "x", "y", sizesOf(2, 2, 1)] }),
      said({ buffers: ["x", "x", null, 3, sizesOf(2, 2, 1)] }),
      said({ buffers: ["x", "x", null, "x", sizesOf(2, 2, 1)] }),
      said({ buffers: ["x", "x", null, new Uint8Array(4), sizesOf(2, 2, 1)] }),
      said({ buffers: ["x", "x", null, "out", new Uint8Array(5000)] }),
      said({ buffers: ["x", { name: "x", offset: 20 }, null, "out", sizesOf(2, 2, 1)] }),
      said({ buffers: ["x", { shapeOf: "out" }, null, "out", sizesOf(2, 2, 1)] }),
      said({ buffers: "x" }),
    ]).toMatchInlineSnapshot(`
      [
        "nothing",
        "ArgumentError: kernels.metal has no kernel "divide_flaot32"; it has layouts, over, row_sums_float32, row_sums_float16, divide_float32, divide_float16. A kernel is called by its [[host_name("…")]], or by the name of its function",
        "ArgumentError: buffer 4 (sizes) of "divide_float32" is not bound: it takes 0 (x), 1 (sums), 2 (bias), 3 (out), 4 (sizes)",
        "ArgumentError: buffer 0 (x) of "divide_float32" is not bound: it takes 0 (x), 1 (sums), 2 (bias), 3 (out), 4 (sizes)",
        "ArgumentError: "divide_float32" has no buffer 5: it takes 0 (x), 1 (sums), 2 (bias), 3 (out), 4 (sizes)",
        "ArgumentError: buffer 3 (out) of "divide_float32" is given "y", and there are out, x. Numbers go as typed arrays, such as Float32Array.of(2)",
        "ArgumentError: buffer 3 (out) of "divide_float32" is given the number 3, and there are out, x. Numbers go as typed arrays, such as Float32Array.of(2)",
        "ArgumentError: buffer 3 (out) of "divide_float32" is written, and "x" is an input. Declare it const device, or write to an output; overwrites lets an output take an input's memory",
        "ArgumentError: buffer 3 (out) of "divide_float32" is written, which bytes of the host cannot be: give an output or scratch memory",
        "ArgumentError: buffer 4 (sizes) of "divide_float32" gets 5000 bytes of the host, and a dispatch takes 1 to 4096: give more as an input",
        "ArgumentError: buffer 1 (sums) of "divide_float32" begins at byte 20 of "x", which has 16",
        "ArgumentError: buffer 1 (sums) of "divide_float32" asks for the layout of the string "out", and the inputs are x",
        "ArgumentError: buffers of "divide_float32" must be a list by index, received the string "x"",
      ]
    `)
  })
  test("in constants, sizes and memory are said with what there is", () => {
    const before = onGpu(() => mx.getActiveMemory())
    expect([
      said({ constants: {} }),
      said({ constants: { HAS_BAIS: true } }),
      said({ constants: { HAS_BIAS: 1 } }),
      said({ grid: [] }),
      said({ grid: [2, 2.5] }),
      said({ threadgroup: [64, 64] }),
      said(rowSums),
      said({ ...rowSums, threadgroupMemory: [40_000] }),
      said({ threadgroupMemory: [16] }),
      said({}, { scratch: { out: 16 } }),
      said({}, { scratch: { large: 2 ** 24, more: -1 } }),
      said({}, { dispatches: null }),
    ]).toMatchInlineSnapshot(`
      [
        "ArgumentError: the dispatch of "divide_float32" gives no value for the function constant "HAS_BIAS" of kernels.metal. constants: { HAS_BIAS: … }; is_function_constant_defined makes it optional",
        "ArgumentError: kernels.metal has no function constant "HAS_BAIS"; it has HAS_BIAS, POWER",
        "ArgumentError: the function constant "HAS_BIAS" is a bool and needs a boolean, received the number 1",
        "ArgumentError: grid must be a list of one to three integers from 0 to 4294967295, received []",
        "ArgumentError: grid must be a list of one to three integers from 0 to 4294967295, received [2, 2.5]",
        "ArgumentError: a threadgroup must have 1 to 1024 threads, received 64 × 64 × 1",
        "ArgumentError: "row_sums_float32" needs a size for its threadgroup memory 0 (partial). threadgroupMemory: [bytes, …]",
        "ArgumentError: "row_sums_float32" asks for 40000 bytes of threadgroup memory, and there are 32768",
        "ArgumentError: "divide_float32" has no threadgroup parameter 0",
        "ArgumentError: scratch memory cannot be called "out": an operand has that name",
        "ArgumentError: scratch memory needs a number of bytes, received the number -1 for "more"",
        "ArgumentError: launch must give { dispatches: […] }, received a plain object",
      ]
    `)
    expect(onGpu(() => mx.getActiveMemory()) - before, "memory that is not given back").toBeLessThan(2 ** 20)
  })
  test("at run time name the kernel, the buffer and what is in it", () => {
    // Threads run in no order: any of them may be the first.
    expect(said({ grid: [2000, 2000] })).toMatch(
      /^DeviceError: the kernel divide_float32 accesses memory beyond the end of buffer 0 \(x\): byte \d+ of 4096$/,
    )
    expect(said({ buffers: ["x", "x", null, "out", new Uint8Array(4)] })).toBe(
      "DeviceError: buffer 4 (sizes) has 4 bytes, and its parameter takes 12",
    )
  })
  test("in offers name the package", () => {
    const offer = (kernel: object, from: unknown = library): void =>
      provideKernels({
        form: "metal",
        package: PACKAGE,
        library: from as URL,
        kernels: {
          [`${PACKAGE}/other`]: { inputNames: ["x"], outputNames: ["out"], launch: () => null, ...kernel },
        },
      })
    expect(() => offer({}, "/nowhere/kernels.metal")).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [@test/metal-files] there is no Metal library /nowhere/kernels.metal. A package publishes it by naming its folder in "files" of package.json; a bundle leaves packages with kernels outside ("external")]`,
    )
    expect(() => offer({}, 3)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [@test/metal-files] library must be the path or the URL of a .metal file, received the number 3]`,
    )
    expect(() => offer({}, null)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [@test/metal-files] library must be the path or the URL of a .metal file, received null]`,
    )
    expect(() => offer({ overwrites: { out: ["z"] } })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [@test/metal-files/other] overwrites must give lists of inputs (x) by outputs (out), received a list of length 1 for "out"]`,
    )
  })
  test("in a file are said by the lines of the file that has them", () => {
    const path = join(folder, "broken.metal")
    const run = (text: string): string => {
      writeFileSync(path, text)
      const broken = definePrimitive({
        name: `${PACKAGE}/broken${text.length}`,
        api: 1,
        infer: ([x]) => x,
        decompose: ([x]) => x,
      })
      provideKernels({
        form: "metal",
        package: PACKAGE,
        library: path,
        kernels: {
          [`${PACKAGE}/broken${text.length}`]: {
            inputNames: ["x"],
            outputNames: ["out"],
            launch: () => ({ dispatches: [{ ...good, kernel: "k", buffers: ["x", "out"], constants: {} }] }),
          },
        },
      })
      try {
        onGpu(() => broken([mx.ones([2])])).tolist()
        return "nothing"
      } catch (error) {
        return String(error).replaceAll(folder, "")
      }
    }
    const head = '#include "shared/sums.h"\n'
    const k = (body: string): string =>
      `${head}kernel void k(const device float* x [[buffer(0)]], device float* out [[buffer(1)]]) {\n${body}\n}`
    expect([
      run(k("out[0] = 2.0 * y[0];")),
      run(k("double z = 1; out[0] = z;")),
      run(`#include "missing.h"\n${k("")}`),
    ]).toMatchInlineSnapshot(`
      [
        "DeviceError: [@test/metal-files] the source of a kernel does not compile:
      broken.metal:3: 'y' was not declared in this scope
          out[0] = 2.0 * y[0];",
        "DeviceError: [@test/metal-files] the source of a kernel does not compile:
      broken.metal:3: Metal has no double: use float
          double z = 1; out[0] = z;",
        "DeviceError: [@test/metal-files] broken.metal cannot be read: broken.metal:1 includes "missing.h", but there is no /missing.h",
      ]
    `)
  })
})
