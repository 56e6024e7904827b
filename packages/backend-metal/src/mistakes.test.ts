/**
 * The mistakes that people make in kernels, and what they are told: each names the kernel, the line or the buffer, and what to do.
 */
import * as mx from "@lazuli/core"
import { findClang } from "@lazuli/gpu-kernels"
import { expect, it, vi } from "vitest"
import "./index"

vi.hoisted(() => {
  process.env.LAZULI_METAL_CHECK = "1"
  process.env.LAZULI_METAL_TIME_LIMIT = "0.5"
})

const N = 64
/** Runs a body over 64 threads of one threadgroup; gives the message. */
function said(name: string, source: string, input = mx.ones([N])): string {
  try {
    const kernel = mx.fast.metalKernel({ name, inputNames: ["x"], outputNames: ["y"], source })
    const [y] = mx.stream(mx.gpu, () =>
      kernel({
        inputs: [input],
        grid: [N],
        threadgroup: [N],
        outputShapes: [[N]],
        outputDtypes: [mx.float32],
      }),
    )
    mx.eval(y)
    return "nothing"
  } catch (error) {
    return String(error)
  }
}
const I = "uint i = thread_position_in_threadgroup.x;"

it("a race", () => {
  expect(said("sums", `${I}\n    y[0] = y[0] + x[i];`)).toMatchInlineSnapshot(
    `"DeviceError: [sums] a race: thread 1 reads byte 0 of buffer 1 (y), which thread 0 writes, without a threadgroup_barrier of mem_device between them"`,
  )
})
it("an overrun", () => {
  expect(said("next", `${I}\n    y[i] = x[i + 1];`)).toMatchInlineSnapshot(
    `"DeviceError: [next] accesses memory beyond the end of buffer 0 (x): byte 256 of 256"`,
  )
  expect(said("twice", `${I}\n    y[2 * i] = x[i];`)).toMatchInlineSnapshot(
    `"DeviceError: [twice] accesses memory beyond the end of buffer 1 (y): byte 256 of 256"`,
  )
})
it("a missing barrier", () => {
  expect(
    said("reversed", `${I}\n    threadgroup float tile[64];\n    tile[i] = x[i];\n    y[i] = tile[63 - i];`),
  ).toMatchInlineSnapshot(
    `"DeviceError: [reversed] thread 0 reads byte 252 of threadgroup memory, which no thread of the threadgroup has written before: is a barrier missing?"`,
  )
  expect(
    said(
      "half_of_them",
      `${I}\n    if (i < 32)\n      threadgroup_barrier(mem_flags::mem_device);\n    y[i] = x[i];`,
    ),
  ).toMatchInlineSnapshot(
    `"DeviceError: [half_of_them] threadgroup_barrier at line 3 of the source was reached by 32 of 64 threads; the others returned"`,
  )
})
it("a wrong type", () => {
  expect(said("precise", `${I}\n    double z = x[i];\n    y[i] = z;`)).toMatchInlineSnapshot(`
    "DeviceError: [precise] the source of a kernel does not compile:
    line 2 of the source: Metal has no double: use float
        double z = x[i];"
  `)
  expect(said("vectors", `${I}\n    float2 v = x[i];\n    y[i] = v;`)).toMatchInlineSnapshot(`
    "DeviceError: [vectors] the source of a kernel does not compile:
    line 3 of the source: cannot convert 'float2' {aka 'metal::vec<float, 2>'} to 'float' in assignment
        y[i] = v;"
  `)
})
it("an endless kernel", () => {
  expect(said("waits", `${I}\n    while (x[0] > 0.0f) {}\n    y[i] = 1;`)).toMatchInlineSnapshot(
    `"DeviceError: [waits] did not end within 0.5 seconds: an endless loop? LAZULI_METAL_TIME_LIMIT sets another limit, 0 none"`,
  )
})
it.skipIf(!findClang())("a wrong address space, where clang is installed", () => {
  expect(
    said(
      "local",
      `${I}\n    threadgroup float tile[64];\n    device float* p = tile;\n    p[i] = x[i];\n    y[i] = p[i];`,
    ),
  ).toMatchInlineSnapshot(`
    "DeviceError: [local] the source of a kernel does not compile:
    line 3 of the source: cannot initialize a variable of type 'device float *' with an lvalue of type 'threadgroup float[64]': a pointer has the address space of what it points to
        device float* p = tile;"
  `)
  expect(said("writes", `${I}\n    device float* p = x;\n    y[i] = p[i];`)).toMatchInlineSnapshot(`
    "DeviceError: [writes] the source of a kernel does not compile:
    line 2 of the source: invalid conversion from 'const float*' to 'float*' [-fpermissive]
        device float* p = x;"
  `)
  expect(
    said("scalar", `${I}\n    const device float* p = &x;\n    y[i] = p[0];`, mx.array(1)),
  ).toMatchInlineSnapshot(`
    "DeviceError: [scalar] the source of a kernel does not compile:
    line 2 of the source: cannot initialize a variable of type 'const device float *' with an rvalue of type 'const constant float *': a pointer has the address space of what it points to
        const device float* p = &x;"
  `)
  expect(said("fits", `${I}\n    const constant float* p = &x;\n    y[i] = p[0];`, mx.array(1))).toBe(
    "nothing",
  )
})
it("a pointer without an address space, without clang too", () => {
  const kernel = mx.fast.metalKernel({
    name: "helper",
    inputNames: ["x"],
    outputNames: ["y"],
    header: "float first(const float* p) { return p[0]; }",
    source: "y[thread_position_in_grid.x] = first(x);",
  })
  const run = (): unknown =>
    mx
      .stream(mx.gpu, () =>
        kernel({
          inputs: [mx.ones([2])],
          grid: [2],
          threadgroup: [2],
          outputShapes: [[2]],
          outputDtypes: [mx.float32],
        }),
      )[0]
      .tolist()
  expect(run).toThrowErrorMatchingInlineSnapshot(`
    [DeviceError: [helper] the source of a kernel does not compile:
    line 1 of the header: the pointer or reference "p" needs an address space (device, constant, threadgroup or thread)
        float first(const float* p) { return p[0]; }]
  `)
})
