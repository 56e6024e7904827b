/**
 * The checked mode: a planted race, overrun, missing barrier and wrong barrier are each a message that says where, and right kernels run
 * silently and move no byte twice.
 */
import { CommandStream } from "@lazuli/gpu-kernels"
import { expect, it } from "vitest"
import { HostRuntime } from "./host-runtime"

const runtime = new HostRuntime({ checked: true })

/** Runs one kernel over arrays of 64 floats; returns what failed. */
function run(source: string, threads = 64, group = 64, sizes = [64, 64]): string[] {
  const pipeline = runtime.newPipeline(runtime.newLibrary(`using namespace metal;\n${source}`), "k")
  const stream = new CommandStream()
  stream.setPipeline(pipeline)
  const buffers = sizes.map((n) => runtime.newBuffer(n * 4))
  buffers.forEach((buffer, i) => {
    stream.setBuffer(i, buffer)
  })
  stream.dispatchThreads([threads, 1, 1], [group, 1, 1])
  const failures = runtime.wait(runtime.commit(stream))
  for (const buffer of buffers) runtime.releaseBuffer(buffer)
  return failures.map((f) => f.message)
}
const HEAD =
  "kernel void k(device float* x, device float* y, uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]])"
const SHARED = "threadgroup float shared[64]; shared[t] = x[i];"

it("finds an access behind a buffer, to the byte", () => {
  expect(run(`${HEAD} { y[i] = x[i + 1]; }`)).toMatchInlineSnapshot(`
    [
      "k: accesses memory beyond the end of buffer 0: byte 256 of 256",
    ]
  `)
  expect(run(`${HEAD} { y[i] = x[i]; }`, 64, 64, [64, 63])).toMatchInlineSnapshot(`
    [
      "k: writes beyond the end of buffer 1: bytes 252 to 255 of 252",
    ]
  `)
})

it("finds a missing barrier", () => {
  expect(run(`${HEAD} { ${SHARED} y[i] = shared[t ^ 1]; }`)).toMatchInlineSnapshot(`
    [
      "k: thread 0 reads byte 4 of threadgroup memory, which no thread of the threadgroup has written before: is a barrier missing?",
    ]
  `)
  expect(
    run(`${HEAD} { ${SHARED} threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = shared[63 - t]; }`),
  ).toEqual([])
})

it("finds a barrier that orders other memory", () => {
  expect(
    run(`${HEAD} { ${SHARED} threadgroup_barrier(mem_flags::mem_device); y[i] = shared[63 - t]; }`),
  ).toMatchInlineSnapshot(`
    [
      "k: a race: thread 63 reads byte 0 of threadgroup memory, which thread 0 writes, without a threadgroup_barrier of mem_threadgroup between them",
    ]
  `)
  expect(
    run(`${HEAD} { y[i] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = y[63 - t]; }`),
  ).toMatchInlineSnapshot(`
    [
      "k: a race: thread 63 reads byte 0 of buffer 1, which thread 0 writes, without a threadgroup_barrier of mem_device between them",
    ]
  `)
})

it("finds a thread that writes what others still read", () => {
  const body = (wait: string): string =>
    `${HEAD} { threadgroup float shared[1]; if (t == 0) shared[0] = x[0]; threadgroup_barrier(mem_flags::mem_threadgroup);
      y[i] = shared[0]; ${wait} if (t == 63) shared[0] = 1.0f; }`
  expect(run(body(""))).toMatchInlineSnapshot(`
    [
      "k: a race: thread 0 reads byte 0 of threadgroup memory, which thread 63 writes, without a threadgroup_barrier of mem_threadgroup between them",
    ]
  `)
  expect(run(body("threadgroup_barrier(mem_flags::mem_threadgroup);"))).toEqual([])
})

it("finds threads of two threadgroups at one byte, unless they are atomic", () => {
  expect(run(`${HEAD} { y[i % 32] = x[i]; }`, 64, 32)).toMatchInlineSnapshot(`
    [
      "k: a race: thread 0 of threadgroup 1 writes byte 0 of buffer 1, which thread 0 of threadgroup 0 writes in the same dispatch: use atomic operations, or two dispatches",
    ]
  `)
  expect(
    run(
      `${HEAD} { atomic_fetch_add_explicit((device atomic<float>*)(y + i % 32), x[i], memory_order_relaxed); }`,
      64,
      32,
    ),
  ).toEqual([])
})

it("lets the threads of a simdgroup wait for each other alone", () => {
  expect(
    run(`${HEAD} { ${SHARED} simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = shared[t ^ 1]; }`),
  ).toEqual([])
  expect(
    run(`${HEAD} { ${SHARED} simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = shared[t ^ 32]; }`),
  ).toMatchInlineSnapshot(`
    [
      "k: thread 31 reads byte 252 of threadgroup memory, which no thread of the threadgroup has written before: is a barrier missing?",
    ]
  `)
})

it("finds threadgroup memory that nothing wrote", () => {
  expect(
    run(`${HEAD} { threadgroup float shared[65]; shared[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
      y[i] = shared[t + 1]; }`),
  ).toMatchInlineSnapshot(`
    [
      "k: thread 63 reads byte 256 of threadgroup memory, which no thread of the threadgroup has written before: is a barrier missing?",
    ]
  `)
})

it("counts what kernels load and store", () => {
  runtime.traffic()
  expect(run(`${HEAD} { y[i] = x[i] + x[i ^ 1]; }`)).toEqual([])
  expect(runtime.traffic()).toEqual({ loads: 512, stores: 256, distinctLoads: 256, distinctStores: 256 })
})

it("counts what a simdgroup reads at once one time, and what it reads again once more", () => {
  runtime.traffic()
  expect(run(`${HEAD} { y[i] = x[0]; }`)).toEqual([])
  // Two simdgroups.
  expect(runtime.traffic()).toMatchObject({ loads: 8, distinctLoads: 4 })
  expect(
    run(`${HEAD} { float s = 0; for (uint k = 0; k < 3; k++) s += x[(i + k) % 64]; y[i] = s; }`),
  ).toEqual([])
  expect(runtime.traffic()).toMatchObject({ loads: 3 * 256, distinctLoads: 256 })
})
