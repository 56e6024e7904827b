/**
 * Kernels written by users: those that MLX's documentation explains, written anew from what they compute, against plain loops.
 */
import * as mx from "@lazuli/core"
import { registerBackend } from "@lazuli/core/engine"
import { customFunction, grad } from "@lazuli/transforms"
import { describe, expect, it, vi } from "vitest"
import { close, wave } from "../test/numbers"
import { createMetalBackend, HostRuntime, metalKernel } from "./index"

describe("metalKernel", () => {
  const exp = metalKernel({
    name: "myexp",
    inputNames: ["inp"],
    outputNames: ["out"],
    source: `
      uint i = thread_position_in_grid.x;
      T x = inp[i];
      out[i] = metal::exp(x);`,
  })
  const run = (kernel: typeof exp, a: mx.Array): mx.Array =>
    kernel({
      inputs: [a],
      template: { T: a.dtype },
      grid: [a.size, 1, 1],
      threadgroup: [256, 1, 1],
      outputShapes: [a.shape],
      outputDtypes: [a.dtype],
    })[0]

  it("gives exp a gradient as a custom function, which equals that of the operation", () => {
    const f = customFunction((a: mx.Array) => run(exp, a))
    f.vjp((a, g) => g.multiply(run(exp, a)))
    const a = mx.array(wave(64, 0.3)).reshape([4, 16])
    const loss = (h: (b: mx.Array) => mx.Array) => grad((b: mx.Array) => h(b).square().sum())(a)
    close(
      loss((b) => f(b)),
      loss(mx.exp).toTypedArray() as Float32Array,
    )
  })
  it("computes exp element by element, lazily", () => {
    const a = mx.array(wave(64, 0.3)).reshape([4, 16])
    const y = run(exp, a).multiply(2)
    expect(y.shape).toEqual([4, 16])
    close(
      y,
      wave(64, 0.3).map((x) => 2 * Math.exp(x)),
    )
  })
  it.each([mx.float16, mx.bfloat16])("takes other dtypes: %o", (dtype) => {
    const a = mx.array(wave(40, 0.3)).astype(dtype)
    const [got, want] = [run(exp, a).astype(mx.float32), mx.exp(a).astype(mx.float32)]
    close(got, want.toTypedArray() as Float32Array, 0.01)
  })
  it("copies inputs that are not row-major", () => {
    const a = mx.array(wave(24, 0.5)).reshape([4, 6]).transpose()
    close(run(exp, a), mx.exp(a).toTypedArray() as Float32Array)
  })
  it("reads strided inputs without a copy", () => {
    const strided = metalKernel({
      name: "myexp_strided",
      inputNames: ["inp"],
      outputNames: ["out"],
      source: `
        uint i = thread_position_in_grid.x;
        uint at = elem_to_loc(i, inp_shape, inp_strides, inp_ndim);
        T x = inp[at];
        out[i] = metal::exp(x);`,
      ensureRowContiguous: false,
    })
    const a = mx.array(wave(60, 0.5)).reshape([3, 4, 5]).index(":", "::2").transpose()
    close(run(strided, a), mx.exp(a).toTypedArray() as Float32Array)
  })

  it("puts what the body names into the signature, and prints it", () => {
    const log = vi.spyOn(console, "log").mockImplementation(() => {})
    const kernel = metalKernel({
      name: "mixed",
      inputNames: ["x", "scale", "few"],
      outputNames: ["y", "z"],
      source: `
        uint i = thread_position_in_grid.x;
        y[i] = TWICE ? 2 * x[i] * scale : x[i];
        z[i] = x_ndim * 100 + x_shape[0] * 10 + few[1] + N + int(thread_index_in_simdgroup);`,
      header: "// nothing",
    })
    const [y, z] = kernel({
      inputs: [mx.array(wave(8, 1)).reshape([2, 4]), 3, mx.array([1, 2], mx.int32)],
      template: { TWICE: true, N: 5 },
      grid: [8, 1, 1],
      threadgroup: [8, 1, 1],
      outputShapes: [[8], [2, 4]],
      outputDtypes: [mx.float32, mx.int32],
      verbose: true,
    })
    close(
      y,
      wave(8, 1).map((v) => 6 * v),
    )
    expect(z.tolist()).toEqual([
      [227, 228, 229, 230],
      [231, 232, 233, 234],
    ])
    const text = String(log.mock.calls[0])
    log.mockRestore()
    expect(text.slice(text.indexOf("template <bool"))).toMatchInlineSnapshot(`
      "template <bool TWICE, int N>
      [[kernel]] void custom_kernel_mixed_float32_float32s_int32_float32_int32_TWICE_true_N_5(
          const device float* x [[buffer(0)]],
          const constant int* x_shape [[buffer(1)]],
          const constant int& x_ndim [[buffer(2)]],
          const constant float& scale [[buffer(3)]],
          const device int* few [[buffer(4)]],
          device float* y [[buffer(5)]],
          device int* z [[buffer(6)]],
          uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
          uint3 thread_position_in_grid [[thread_position_in_grid]]) {

              uint i = thread_position_in_grid.x;
              y[i] = TWICE ? 2 * x[i] * scale : x[i];
              z[i] = x_ndim * 100 + x_shape[0] * 10 + few[1] + N + int(thread_index_in_simdgroup);
      }
      template [[host_name("custom_kernel_mixed_float32_float32s_int32_float32_int32_TWICE_true_N_5")]] [[kernel]] decltype(custom_kernel_mixed_float32_float32s_int32_float32_int32_TWICE_true_N_5<true, 5>) custom_kernel_mixed_float32_float32s_int32_float32_int32_TWICE_true_N_5<true, 5>;
      "
    `)
  })

  it("says what is wrong with a call", () => {
    const a = mx.array([1, 2])
    const call = {
      inputs: [a],
      template: { T: mx.float32 },
      grid: [2, 1, 1],
      threadgroup: [2, 1, 1],
      outputShapes: [[2]],
      outputDtypes: [mx.float32],
    }
    expect(() => exp({ ...call, inputs: [a, a] })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [myexp] takes 1 inputs (inp), received 2]`,
    )
    expect(() => exp({ ...call, outputShapes: [] })).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [myexp] needs a shape and a dtype for each of its outputs (out), received 0 shapes and 1 dtypes]`,
    )
    expect(() => exp({ ...call, threadgroup: [2048] })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [myexp] threadgroup must be a list of one to three integers from 1 to 1024, received [2048]]`,
    )
    expect(() => exp({ ...call, stream: "cpu" })).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: [myexp] is a Metal kernel and runs on the GPU only, received a stream of the CPU]`,
    )
    expect(() => exp({ ...call, template: { T: 1.5 } })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [myexp] the template parameter "T" must be a dtype, a 32-bit integer or a boolean, received the number 1.5]`,
    )
    expect(() => exp({ ...call, inputs: [mx.array([1], mx.float64)] })).toThrowErrorMatchingInlineSnapshot(
      `[DTypeError: [myexp] Metal has no float64, the dtype of "inp". Convert it, for instance by astype("float32")]`,
    )
  })

  it("says what is wrong with what a call is made of", () => {
    const call = {
      inputs: [mx.array([1, 2])],
      template: { T: mx.float32 } as object,
      grid: [2, 1, 1],
      threadgroup: [2, 1, 1],
      outputShapes: [[2]],
      outputDtypes: [mx.float32],
    }
    const said = (change: object, kernel = exp): string => {
      try {
        kernel({ ...call, ...change } as never)
      } catch (error) {
        return `${(error as Error).name}: ${(error as Error).message}`
      }
      return "nothing"
    }
    expect([
      said({ initVal: 0 }),
      said({ theads: 3 }),
      said({ grid: [-1] }),
      said({ grid: [] }),
      said({ grid: [1, 2, 3, 4] }),
      said({ grid: 2 }),
      said({ grid: [1.5] }),
      said({ grid: [2 ** 32] }),
      said({ grid: undefined }),
      said({ threadgroup: [0] }),
      said({ threadgroup: ["a"] }),
      said({ inputs: [undefined] }),
      said({ inputs: undefined }),
      said({ outputShapes: [2] }),
      said({ outputShapes: [[-2]] }),
      said({ outputShapes: [[2 ** 40, 2 ** 40]] }),
      said({ outputDtypes: [mx.float64] }),
      said({ outputDtypes: ["float"] }),
      said({ template: { T: mx.float64 } }),
      said({ template: { T: 2 ** 31 } }),
      said({ template: { "a b": 1 } }),
      said({ template: { float: 1 } }),
      said({ template: { inp: 1 } }),
      said({
        template: [
          ["T", 1],
          ["T", 2],
        ],
      }),
      said({ template: ["T"] }),
      said({ template: 3 }),
      said({ initValue: "0" }),
      said(
        { outputDtypes: [mx.float16] },
        metalKernel({
          name: "k",
          inputNames: ["inp"],
          outputNames: ["out"],
          source: "",
          atomicOutputs: true,
        }),
      ),
    ]).toMatchInlineSnapshot(`
      [
        "ArgumentError: [myexp] has no option "initVal"; it takes inputs, template, grid, threadgroup, outputShapes, outputDtypes, initValue, ensureRowContiguous, verbose, stream. Did you mean "initValue"?",
        "ArgumentError: [myexp] has no option "theads"; it takes inputs, template, grid, threadgroup, outputShapes, outputDtypes, initValue, ensureRowContiguous, verbose, stream",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received [-1]",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received []",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received [1, 2, 3, 4]",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received the number 2",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received [1.5]",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received [4294967296]",
        "ArgumentError: [myexp] grid must be a list of one to three integers from 0 to 4294967295, received nothing",
        "ArgumentError: [myexp] threadgroup must be a list of one to three integers from 1 to 1024, received [0]",
        "ArgumentError: [myexp] threadgroup must be a list of one to three integers from 1 to 1024, received [the string "a"]",
        "ArgumentError: [myexp] the input "inp" must be an array or a scalar, received nothing",
        "ArgumentError: [myexp] takes 1 inputs (inp), received nothing",
        "ShapeError: [myexp] the shape of "out" must be a list of non-negative integers, received the number 2",
        "ShapeError: [myexp] the shape of "out" must be a list of non-negative integers, received [-2]",
        "ShapeError: [myexp] the output "out" of shape (1099511627776, 1099511627776) has too many elements",
        "DTypeError: [myexp] Metal has no float64, the dtype of the output "out"",
        "DTypeError: [myexp] the output "out" needs a dtype, received the string "float"",
        "DTypeError: [myexp] Metal has no float64, the value of the template parameter "T"",
        "ArgumentError: [myexp] the template parameter "T" must be a dtype, a 32-bit integer or a boolean, received the number 2147483648",
        "ArgumentError: [myexp] a template parameter must be a name that Metal accepts, received the string "a b"",
        "ArgumentError: [myexp] a template parameter cannot be "float", which is a reserved word of Metal",
        "ArgumentError: [myexp] a template parameter cannot be "inp", because another parameter is called that",
        "ArgumentError: [myexp] a template parameter cannot be "T", because another parameter is called that",
        "ArgumentError: [myexp] template must hold pairs of a name and a value, received the string "T"",
        "ArgumentError: [myexp] template must be an object or a list of pairs, received the number 3",
        "ArgumentError: [myexp] initValue must be a number, received the string "0"",
        "DTypeError: [k] atomic outputs can be bool_, int32, uint32, uint64, float32, and "out" is float16",
      ]
    `)
    expect(() => exp(null as never)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [myexp] takes an object with inputs, template, grid, threadgroup, outputShapes, outputDtypes, initValue, ensureRowContiguous, verbose, stream, received null]`,
    )
  })

  it("says what is wrong with what a kernel is made of", () => {
    const options = { name: "k", inputNames: ["a"], outputNames: ["b"], source: "" }
    const said = (change: object): string => {
      try {
        metalKernel({ ...options, ...change } as never)
      } catch (error) {
        return `${(error as Error).name}: ${(error as Error).message}`
      }
      return "nothing"
    }
    expect([
      said({ inputName: ["a"] }),
      said({ name: "my kernel" }),
      said({ name: "kernel" }),
      said({ source: 3 }),
      said({ header: 3 }),
      said({ inputNames: "a" }),
      said({ inputNames: ["1a"] }),
      said({ inputNames: [undefined] }),
      said({ inputNames: ["a", "a"] }),
      said({ outputNames: ["a"] }),
      said({ outputNames: ["a_shape"] }),
      said({ inputNames: ["thread_position_in_grid"] }),
      said({ outputNames: [] }),
      said({ ensureRowContiguous: "no" }),
    ]).toMatchInlineSnapshot(`
      [
        "ArgumentError: [metalKernel] has no option "inputName"; it takes name, inputNames, outputNames, source, header, ensureRowContiguous, atomicOutputs, compileOptions, reference. Did you mean "inputNames"?",
        "ArgumentError: [metalKernel] name must be a name that Metal accepts, received the string "my kernel"",
        "ArgumentError: [metalKernel] name cannot be "kernel", which is a reserved word of Metal",
        "ArgumentError: [metalKernel] source must be a string, received the number 3",
        "ArgumentError: [metalKernel] header must be a string, received the number 3",
        "ArgumentError: [metalKernel] inputNames must be a list of names that Metal accepts, received the string "a"",
        "ArgumentError: [metalKernel] an input's name must be a name that Metal accepts, received the string "1a"",
        "ArgumentError: [metalKernel] an input's name must be a name that Metal accepts, received nothing",
        "ArgumentError: [metalKernel] an input's name cannot be "a", because another parameter is called that",
        "ArgumentError: [metalKernel] an output's name cannot be "a", because another parameter is called that",
        "ArgumentError: [metalKernel] an output's name cannot be "a_shape", because another parameter is called that",
        "ArgumentError: [metalKernel] an input's name cannot be "thread_position_in_grid", which is a reserved word of Metal",
        "ArgumentError: [metalKernel] needs at least one output",
        "ArgumentError: [metalKernel] ensureRowContiguous must be a boolean, received the string "no"",
      ]
    `)
    expect(() =>
      mx.fast.metalKernel({ ...options, atomic: true } as never),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [metalKernel] has no parameter "atomic"; it takes name, inputNames, outputNames, source, header, ensureRowContiguous, atomicOutputs, compileOptions, reference, stream]`,
    )
  })

  it("refuses outputs that no memory holds, and goes on", () => {
    const [y] = exp({
      inputs: [mx.array([1])],
      template: { T: mx.float32 },
      grid: [1],
      threadgroup: [1],
      outputShapes: [[2 ** 25, 2 ** 25]],
      outputDtypes: [mx.float32],
    })
    expect(() => mx.eval(y)).toThrow(
      /no memory for a buffer of 4503599627370496 bytes: the device has \d+ for one/,
    )
    close(run(exp, mx.zeros([3])), [1, 1, 1])
  })

  it("reports bodies that do not compile, by their own lines, and keeps the error on the outputs", () => {
    const parts = { name: "broken", inputNames: ["inp"], outputNames: ["out"] }
    const broken = metalKernel({ ...parts, source: "\n  T x = inp[0];\n  out[0] = nothing;" })
    const y = run(broken, mx.array([1, 2]))
    expect(() => mx.eval(y)).toThrowErrorMatchingInlineSnapshot(`
      [DeviceError: [broken] the source of a kernel does not compile:
      line 3 of the source: 'nothing' was not declared in this scope
          out[0] = nothing;]
    `)
    expect(() => y.add(1).tolist()).toThrow("nothing")
    const message = (source: string, header = ""): string => {
      try {
        run(metalKernel({ ...parts, source, header }), mx.array([1, 2])).tolist()
      } catch (error) {
        return (error as Error).message
      }
      return "nothing"
    }
    expect(
      message("out[0] = T(1);", "// a comment\nfloat f(float x) { return g(x); }"),
    ).toMatchInlineSnapshot(`
      "[broken] the source of a kernel does not compile:
      line 2 of the header: 'g' was not declared in this scope
          float f(float x) { return g(x); }"
    `)
    expect(message("\ndouble x = 1;")).toMatchInlineSnapshot(`
      "[broken] the source of a kernel does not compile:
      line 2 of the source: Metal has no double: use float
          double x = 1;"
    `)
    expect(message("out[0] = N;\n#if\n#endif", "#define N 1")).toMatchInlineSnapshot(`
      "[broken] the source of a kernel does not compile:
      line 2 of the source: #if with no expression
          #if"
    `)
    expect(message("out[0] = (T(1);")).toMatchInlineSnapshot(`
      "[broken] the source of a kernel does not compile:
      line 1 of the source: expected ')' before ';' token
          out[0] = (T(1);"
    `)
    expect(message("}")).toMatchInlineSnapshot(`
      "[broken] the source of a kernel does not compile:
      line 11 of the generated text: expected declaration before '}' token
          }"
    `)
    expect(
      message("\nif (thread_position_in_grid.x == 0)\n  threadgroup_barrier(mem_flags::mem_threadgroup);"),
    ).toMatchInlineSnapshot(
      `"[broken] threadgroup_barrier at line 3 of the source was reached by 1 of 2 threads; the others returned"`,
    )
  })
  it("takes as many buffers as Metal has", () => {
    const inputNames = Array.from({ length: 31 }, (_, i) => `x${i}`)
    const kernel = metalKernel({ name: "many", inputNames, outputNames: ["y"], source: "y[0] = x0;" })
    const [y] = kernel({
      inputs: inputNames.map(() => 1),
      grid: [1],
      threadgroup: [1],
      outputShapes: [[1]],
      outputDtypes: [mx.float32],
    })
    expect(() => mx.eval(y)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [many] needs 32 buffers for its inputs, what it asks of their layouts, and its outputs, and Metal has 31]`,
    )
  })
  it("finds an access one element too far where buffers are checked", () => {
    registerBackend(createMetalBackend(new HostRuntime({ checked: true }), "metal-checked", 1))
    mx.setBackend("metal-checked", "gpu")
    try {
      const next = metalKernel({
        name: "next",
        inputNames: ["inp"],
        outputNames: ["out"],
        source: "uint i = thread_position_in_grid.x; out[i] = inp[i + 1];",
      })
      expect(() => run(next, mx.ones([12])).tolist()).toThrow(
        "accesses memory beyond the end of buffer 0 (inp): byte 48 of 48",
      )
      expect(
        run(exp, mx.zeros([12]))
          .sum()
          .item(),
      ).toBe(12)
    } finally {
      mx.setBackend(null, "gpu")
    }
  })
  it("reports accesses out of bounds, and keeps the error on what depends on them", () => {
    const wild = metalKernel({
      name: "wild",
      inputNames: ["inp"],
      outputNames: ["out"],
      source: "out[0] = inp[2000];",
    })
    const y = wild({
      inputs: [mx.ones([10])],
      grid: [1],
      threadgroup: [1],
      outputShapes: [[1]],
      outputDtypes: [mx.float32],
    })[0]
    const z = y.add(1)
    expect(() => z.tolist()).toThrow("accesses memory beyond the end of buffer 0")
    expect(() => y.tolist()).toThrow("accesses memory beyond the end of buffer 0")
    expect(run(exp, mx.zeros([1])).tolist()).toEqual([1])
  })
  it("keeps the error of a kernel that failed from evaluations of other arrays", async () => {
    const wild = metalKernel({
      name: "wilder",
      inputNames: ["inp"],
      outputNames: ["out"],
      source: "out[0] = inp[3000];",
    })
    const fail = (): mx.Array =>
      wild({
        inputs: [mx.ones([10])],
        grid: [1],
        threadgroup: [1],
        outputShapes: [[1]],
        outputDtypes: [mx.float32],
      })[0]
    const y = fail()
    const promise = mx.asyncEval(y)
    promise.catch(() => {})
    expect(run(exp, mx.zeros([1])).tolist()).toEqual([1])
    await expect(promise).rejects.toThrow("accesses memory beyond the end of buffer 0")
    expect(run(exp, mx.zeros([2])).tolist()).toEqual([1, 1])
    expect(() => mx.eval(run(exp, mx.zeros([3])), fail())).toThrow("accesses memory beyond")
    expect(run(exp, mx.zeros([4])).tolist()).toEqual([1, 1, 1, 1])
  })
})

it("takes compileOptions, which MLX's mathMode is in", () => {
  const twice = (mathMode: unknown) =>
    mx.fast.metalKernel(
      "twice",
      ["x"],
      ["y"],
      "y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];",
      {
        compileOptions: { mathMode } as mx.MetalCompileOptions,
      },
    )
  for (const mode of ["safe", "relaxed", "fast", undefined]) {
    const call = {
      inputs: [mx.array([1, 2])],
      grid: [2],
      threadgroup: [2],
      outputShapes: [[2]],
      outputDtypes: [mx.float32],
    }
    expect(twice(mode)(call)[0].tolist()).toEqual([2, 4])
  }
  expect(() => twice("quick")).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [metalKernel] mathMode of compileOptions must be safe, relaxed, fast, received the string "quick"]`,
  )
  const options = { name: "k", inputNames: ["x"], outputNames: ["y"], source: "" }
  expect(() => metalKernel({ ...options, compileOptions: { mode: "fast" } as never })).toThrow(
    'has no option "mode"',
  )
})
