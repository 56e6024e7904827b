/**
 * Version 1 of lazuli/kernel.h is frozen: a library that is built against the copy of it in core/test/kernel-1 runs, and the header of
 * today has everything of the copy where it was.
 */
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import { type Apply, definePrimitive, PLUGIN_API, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeEach, expect, test } from "vitest"
import "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-interface-"))
afterAll(() => rmSync(scratch, { recursive: true }))
beforeEach(() => mx.resetBackendStats())
const FROZEN = fileURLToPath(new URL("../../core/test/kernel-1", import.meta.url))
const TODAY = fileURLToPath(new URL("../../core/include", import.meta.url))
const CXX = process.env.CXX ?? "c++"
/** The program that runs what CXX makes for another processor. */
const EMULATOR = process.env.LAZULI_EMULATOR?.split(" ") ?? []

function compile(name: string, source: string, include: string, ...flags: string[]): string {
  const [from, to] = [join(scratch, `${name}.cc`), join(scratch, name)]
  writeFileSync(from, source)
  execFileSync(CXX, ["-std=c++17", `-I${include}`, from, "-o", to, ...flags])
  return to
}

const define = (name: string): Apply<Record<never, never>> =>
  definePrimitive({
    name: `@me/frozen/${name}`,
    api: 1,
    infer: ([x, y]) => ({ shape: [x.shape[0], (y ?? x).shape[1]], dtype: x.dtype }),
    decompose: ([x, y]) => (y ? x.matmul(y) : x),
  })

const LIBRARY = `#include <lazuli/params.h>

static lz_status product(const lz_call* call) {
  if (!LZ_HAS(call, ctx) || !LZ_HAS(call->ctx, run)) return LZ_FAILED;
  return call->ctx->run(call->ctx, "matmul", call->in, 2, call->out, 1, nullptr, 0);
}
// Twice the input plus whether it is column-contiguous, by way of scratch memory, on all threads.
static lz_status sums(const lz_call* call) {
  const lz_operand &x = call->in[0], &y = call->out[0];
  float* copy = static_cast<float*>(call->ctx->scratch(call->ctx, sizeof(float) * size_t(y.size)));
  struct Work { const lz_operand &x, &y; float* copy; } work{x, y, copy};
  call->ctx->parallel_for(call->ctx, y.size, 2, [](void* arg, int64_t begin, int64_t end) {
    const Work& w = *static_cast<Work*>(arg);
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = i / w.y.shape[1], column = i % w.y.shape[1];
      w.copy[i] = static_cast<const float*>(w.x.data)[row * w.x.strides[0] + column * w.x.strides[1]];
      static_cast<float*>(w.y.data)[i] = lz_column_contiguous(&w.x);
    }
  }, &work);
  return call->ctx->axpby(call->ctx, LZ_FLOAT32, y.size, 2, copy, 1, y.data);
}
static lz_status fails(const lz_call* call) {
  struct Work { lz_context* ctx; } work{call->ctx};
  call->ctx->parallel_for(call->ctx, 8, 1, [](void* arg, int64_t begin, int64_t) {
    auto* ctx = static_cast<Work*>(arg)->ctx;
    ctx->fail(ctx, "[fails] element %d is wrong", 7 + 0 * int(begin));
  }, &work);
  return LZ_OK;
}
static lz_status absent(const lz_call* call) {
  return call->ctx->run(call->ctx, "no such primitive", call->in, 1, call->out, 1, nullptr, 0);
}
static const lz_kernel_entry entries[] = {{"@me/frozen/product", product}, {"@me/frozen/sums", sums},
  {"@me/frozen/fails", fails}, {"@me/frozen/absent", absent}, {nullptr, nullptr}};
const lz_kernel_table lazuli_kernels = {LZ_KERNEL_ABI, entries, sizeof(lz_kernel_entry)};
`

test("a library of version 1 runs: threads, scratch memory, the host's kernels, errors of parallel work", () => {
  expect(PLUGIN_API).toBe(1)
  const [product, sums, fails, absent] = ["product", "sums", "fails", "absent"].map(define)
  const library = compile("frozen.so", LIBRARY, FROZEN, "-shared", "-fPIC")
  provideKernels({ form: "native", package: "@me/frozen", library })
  const x = mx.array([
    [1, 2],
    [3, 4],
  ])
  expect(product([x, x.transpose()]).tolist()).toEqual([
    [5, 11],
    [11, 25],
  ])
  expect(sums([x]).tolist()).toEqual([
    [2, 4],
    [6, 8],
  ])
  expect(sums([x.transpose()]).tolist()).toEqual([
    [3, 7],
    [5, 9],
  ])
  expect(() => fails([x]).tolist()).toThrow("[fails] element 7 is wrong")
  expect(() => absent([x]).tolist()).toThrow("there is no kernel for no such primitive to run")
  expect(mx.backendStats()).toEqual({})
})

test("the header has only grown since version 1", () => {
  const members: Record<string, string[]> = {
    lz_operand: ["data", "dtype", "ndim", "flags", "reserved", "size", "shape", "strides"],
    lz_context: ["parallel_for", "scratch", "fail", "threads", "size", "run", "axpby"],
    lz_call: ["n_in", "n_out", "in", "out", "params", "n_params", "ctx", "size"],
    lz_kernel_entry: ["name", "run"],
    lz_kernel_table: ["abi", "entries", "entry_size"],
  }
  const prints = Object.entries(members).flatMap(([type, names]) =>
    names.map(
      (name) =>
        `std::printf("${type}.${name} %zu %zu\\n", offsetof(${type}, ${name}), sizeof(${type}::${name}));`,
    ),
  )
  const constants =
    'std::printf("%d %d %d %d\\n", LZ_KERNEL_ABI, LZ_COMPLEX64, LZ_CONTIGUOUS | LZ_IMMEDIATE << 4, LZ_FAILED);'
  const source = `#include <cstdio>\n#include <lazuli/kernel.h>\nint main() { ${prints.join("\n")}\n${constants} std::printf("%zu\\n", sizeof(lz_operand)); }`
  const layout = (name: string, include: string): string => {
    const [program, ...args] = [...EMULATOR, compile(name, source, include)]
    return execFileSync(program, args, { encoding: "utf8" })
  }
  expect(layout("today", TODAY)).toBe(layout("frozen", FROZEN))
  // A declaration of a later version stands behind those of this one.
  const declared = (folder: string): string[] =>
    readFileSync(join(folder, "lazuli/kernel.h"), "utf8").match(/^ {2}\w[^;]*?(?=;)/gm) as string[]
  const today = declared(TODAY)
  expect(declared(FROZEN).filter((member) => !today.includes(member))).toEqual([])
})
