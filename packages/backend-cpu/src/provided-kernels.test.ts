/**
 * Kernels that other packages bring: libraries are compiled here from a few lines of C, as a package's build would.
 */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import * as mx from "@lazuli/core"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeEach, expect, test } from "vitest"
import "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-kernels-"))
afterAll(() => rmSync(scratch, { recursive: true }))
beforeEach(() => mx.resetBackendStats())

/** Compiles a library with one kernel, which writes `value` to every element. */
function library(file: string, primitive: string, value: number, abi = "LZ_KERNEL_ABI"): string {
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
