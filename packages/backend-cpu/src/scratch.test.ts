/**
 * Memory that kernels borrow while they run, and the memory limit. A kernel that is compiled here holds what it borrowed until it is told
 * to end.
 */
import { execFileSync } from "node:child_process"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as wait } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, expect, test } from "vitest"
import "./index"

const MB = 2 ** 20
const folder = mkdtempSync(join(tmpdir(), "lazuli-scratch-"))
afterAll(() => rmSync(folder, { recursive: true }))

const [started, ended] = [join(folder, "started"), join(folder, "ended")]

/** Gives its input, and borrows 64 MB for that until the file `ended` is there, for ten seconds at most. */
function borrower(): (x: mx.Array) => mx.Array {
  const source = join(folder, "borrow.c")
  writeFileSync(
    source,
    `#include <lazuli/kernel.h>
#include <stdio.h>
#include <time.h>
static int is_there(const char* path) {
  FILE* file = fopen(path, "r");
  return file ? fclose(file), 1 : 0;
}
static lz_status run(const lz_call* call) {
  if (!call->ctx->scratch(call->ctx, ${64 * MB})) return LZ_FAILED;
  FILE* file = fopen("${started}", "w");
  if (file) fclose(file);
  const struct timespec moment = {0, 5000000};
  for (int i = 0; i < 2000 && !is_there("${ended}"); i++) nanosleep(&moment, 0);
  if (!is_there("${ended}")) return LZ_FAILED;
  for (int64_t i = 0; i < call->out[0].size; i++) ((float*)call->out[0].data)[i] = ((const float*)call->in[0].data)[i];
  return LZ_OK;
}
static const lz_kernel_entry entries[] = {{"@one/pack/borrow", run}, {0, 0}};
const lz_kernel_table lazuli_kernels = {LZ_KERNEL_ABI, entries};
`,
  )
  const include = fileURLToPath(new URL("../../core/include", import.meta.url))
  const library = join(folder, "borrow.so")
  execFileSync(process.env.CC ?? "cc", ["-shared", "-fPIC", `-I${include}`, source, "-o", library])
  const borrow = definePrimitive({
    name: "@one/pack/borrow",
    api: 1,
    infer: ([x]: readonly { shape: readonly number[]; dtype: mx.Dtype }[]) => x,
    decompose: ([x]: readonly mx.Array[]) => x.multiply(1),
  })
  provideKernels({ form: "native", package: "@one/pack", library })
  return (x) => borrow([x])
}

test("what a kernel borrows takes nothing of what the limit leaves to arrays", async () => {
  const borrow = borrower()
  const s = mx.newStream(mx.cpu)
  const x = mx.zeros([1000]).add(3)
  mx.eval(x)
  const before = mx.memoryReport()
  expect(before.scratch).toBe(0)
  mx.setMemoryLimit(before.active + 4 * MB)
  try {
    const y = mx.stream(s, () => borrow(x))
    const done = mx.asyncEval(y)
    while (!existsSync(started)) await wait(1)
    expect(mx.getActiveMemory() - before.active).toBeGreaterThanOrEqual(64 * MB)
    // Forgets what was seen of the limit before.
    mx.setMemoryLimit(before.active + 4 * MB)
    // Other work fits so surely that it waits for nothing, and goes on.
    const z = mx.zeros([MB / 8]).add(1)
    mx.eval(z)
    expect(z.index(7).item()).toBe(1)
    writeFileSync(ended, "")
    await done
    expect(y.index(999).item()).toBe(3)
    // Memory that does not fit is refused by what arrays take.
    const large = mx.zeros([2 * MB]).add(1)
    expect(() => mx.eval(large)).toThrow(/out of memory/)
    expect(mx.memoryReport()).toMatchObject({ scratch: 0 })
    expect(mx.getPeakMemory()).toBeGreaterThanOrEqual(before.active + 64 * MB)
  } finally {
    writeFileSync(ended, "")
    mx.setMemoryLimit(before.limit)
  }
})
