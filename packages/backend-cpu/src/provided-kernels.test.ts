/**
 * Kernels that other packages bring: libraries are compiled here from a few lines of C, as a package's build would.
 */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeEach, expect, test } from "vitest"
import "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-kernels-"))
afterAll(() => rmSync(scratch, { recursive: true }))
beforeEach(() => mx.resetBackendStats())

/** Compiles a library with one kernel, which writes `value` to every element, in the order of memory. */
function library(file: string, primitive: string, value: number | string, abi = "LZ_KERNEL_ABI"): string {
  const source = join(scratch, `${file}.c`)
  writeFileSync(
    source,
    `#include <lazuli/kernel.h>
static lz_status run(const lz_call* call) {
  float* out = (float*)call->out[0].data;
  for (int64_t i = 0; i < call->out[0].size; i++) out[i] = ${value};
  return LZ_OK;
}
static const lz_kernel_entry entries[] = {{"${primitive}", run}, {0, 0}};
const lz_kernel_table lazuli_kernels = {${abi}, entries};
`,
  )
  const include = fileURLToPath(new URL("../../core/include", import.meta.url))
  const target = join(scratch, `${file}.so`)
  execFileSync(process.env.CC ?? "cc", ["-shared", "-fPIC", `-I${include}`, source, "-o", target])
  return target
}

const infer = ([x]: readonly { shape: readonly number[]; dtype: mx.Dtype }[]) => x
const define = (name: string) =>
  definePrimitive({ name, api: 1, infer, decompose: ([x]: readonly mx.Array[]) => x.multiply(2) })

test("a kernel replaces the decomposition, also of a primitive that ran before", () => {
  const twice = define("@one/pack/twice")
  expect(twice([mx.array([1, 2])]).tolist()).toEqual([2, 4])
  expect(mx.backendStats().cpu["@one/pack/twice"].decomposed).toBe(1)
  const path = library("twice", "@one/pack/twice", 7)
  provideKernels({ form: "native", package: "@one/pack", library: pathToFileURL(path) })
  expect(twice([mx.array([1, 2])]).tolist()).toEqual([7, 7])
  // Again, as a second isolate would.
  provideKernels({ form: "native", package: "@one/pack", library: path })
  expect(twice([mx.array([1, 2])]).tolist()).toEqual([7, 7])
  expect(mx.backendStats().cpu["@one/pack/twice"].decomposed).toBe(1)
})

test("what the package does not support falls back", () => {
  const some = define("@one/pack/some")
  provideKernels({
    form: "native",
    package: "@one/pack",
    library: library("some", "@one/pack/some", 9),
    supports: ({ inputs: [x] }) => x.dtype === mx.float32,
  })
  expect(some([mx.array([1, 2])]).tolist()).toEqual([9, 9])
  expect(some([mx.array([1, 2], mx.int32)]).tolist()).toEqual([2, 4])
  expect(mx.backendStats().cpu["@one/pack/some"].decomposed).toBe(1)
})

test("outputs lie as inputs do where the kernel says so and these lie in one order without gaps", () => {
  const order = define("@one/pack/order")
  provideKernels({
    form: "native",
    package: "@one/pack",
    library: library("order", "@one/pack/order", "i"),
    keepsLayout: () => true,
  })
  const array = (...shape: number[]) =>
    mx.array(new Float32Array(shape.reduce((n, m) => n * m, 1))).reshape(shape)
  const transposed = order([array(2, 3).transpose()])
  expect(transposed.tolist()).toEqual([
    [0, 3],
    [1, 4],
    [2, 5],
  ])
  // Readers of every kind follow the strides.
  expect(transposed.add(1).sum(0).tolist()).toEqual([6, 15])
  expect(transposed.transpose().flatten().tolist()).toEqual([0, 1, 2, 3, 4, 5])
  expect(
    order([array(2, 3, 4).transpose(2, 0, 1)])
      .index(1, 1)
      .tolist(),
  ).toEqual([13, 17, 21])
  expect(order([array(3, 1, 2).transpose()]).tolist()).toEqual([[[0, 2, 4]], [[1, 3, 5]]])
  // Gaps, repetitions, and plans, whose memory is laid out before.
  const rowMajor = [
    [0, 1],
    [2, 3],
  ]
  expect(order([array(2, 4).index(":", "::2").transpose()]).tolist()).toEqual(rowMajor)
  expect(order([mx.broadcastTo(array(2, 1), [2, 2]).transpose()]).tolist()).toEqual(rowMajor)
  const compiled = compile((a: mx.Array) => order([a.transpose()]))
  expect(compiled(array(2, 2)).tolist()).toEqual(rowMajor)
  expect(order([mx.zeros([0, 3]).transpose()]).shape).toEqual([3, 0])
  expect(mx.backendStats()).toEqual({})
})

test("an output takes the memory of an input that nobody needs where the kernel says so", () => {
  const over = define("@one/pack/over")
  provideKernels({
    form: "native",
    package: "@one/pack",
    library: library("over", "@one/pack/over", "out == (float*)call->in[0].data"),
    overwrites: () => [[0]],
  })
  const held = mx.zeros([3]).add(1)
  mx.eval(held)
  expect(over([held]).tolist()).toEqual([0, 0, 0])
  expect(held.tolist()).toEqual([1, 1, 1])
  const given = (x: mx.Array): number[] => {
    const result = over([x])
    x.dispose()
    return result.flatten().tolist() as number[]
  }
  expect(given(held.add(1))).toEqual([1, 1, 1])
  // Not what lies in another order.
  const two = mx.array([
    [1, 2],
    [3, 4],
  ])
  expect(given(two.add(1).transpose())).toEqual([0, 0, 0, 0])
  expect(compile((a: mx.Array) => over([a.add(1)]))(held).tolist()).toEqual([1, 1, 1])
})

test("what cannot be loaded is refused, with the package's name and the versions", () => {
  const refusal = (file: string): string => {
    try {
      provideKernels({ form: "native", package: "@two/pack", library: file })
    } catch (error) {
      expect(error).toBeInstanceOf(mx.DeviceError)
      return (error as Error).message.replaceAll(scratch, "DIR").replace(/for \w+-\w+$/, "for PLATFORM")
    }
    return "nothing"
  }
  expect(refusal(library("old", "@two/pack/old", 1, "-3"))).toMatchInlineSnapshot(
    `"[backend-cpu] cannot load the kernels of @two/pack: DIR/old.so was built for version -3 of lazuli/kernel.h, and this backend has version 1. Build it again with the installed @lazuli/core: npx lazuli-kernel build"`,
  )
  expect(refusal(library("softmax", "softmax", 1))).toMatchInlineSnapshot(
    `"[backend-cpu] cannot load the kernels of @two/pack: DIR/softmax.so has a kernel for softmax, which the CPU backend itself has already"`,
  )
  expect(refusal(library("rival", "@one/pack/twice", 1))).toMatchInlineSnapshot(
    `"[backend-cpu] cannot load the kernels of @two/pack: DIR/rival.so has a kernel for @one/pack/twice, which DIR/twice.so has already"`,
  )
  expect(refusal(join(scratch, "absent.so"))).toContain(
    "[backend-cpu] cannot load the kernels of @two/pack: DIR/absent.so",
  )
  expect(mx.softmax(mx.array([0, 0])).tolist()).toEqual([0.5, 0.5])
})
