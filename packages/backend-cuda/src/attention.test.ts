/**
 * Attention by the kernel for tensor cores, on the test double: ragged sizes, masks, grouped heads and layouts agree with the reference,
 * and derivatives, which read its sums, too.
 */

import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { beforeAll, expect, it } from "vitest"
import { callsOf } from "../test/calls"
import { failing } from "../test/double"
import { OPERATION_GRAPH } from "./graph-attention"
import "./index"
import { wave } from "../test/waves"

beforeAll(() => mx.setBackend("cuda", "gpu"))

function agree(f: () => mx.Array, tolerance: number): void {
  const got = mx.stream(mx.gpu, () => f().astype(mx.float32).toTypedArray()) as Float32Array
  const want = mx.stream(mx.cpu, () => f().astype(mx.float32).toTypedArray()) as Float32Array
  expect(got.length).toBe(want.length)
  got.forEach((x, i) => {
    if (!(Math.abs(x - want[i]) <= tolerance)) expect([i, x]).toEqual([i, want[i]])
  })
}
const graphCalls = (): (() => number) => callsOf(OPERATION_GRAPH)
const { scaledDotProductAttention: attend } = mx.fast

it("agrees for ragged sizes, with every mask and shared heads", () => {
  const q = (n: number, d: number): mx.Array => wave([1, 2, n, d], mx.bfloat16, 0)
  const k = (n: number, d: number, phase = 1): mx.Array => wave([1, 1, n, d], mx.bfloat16, phase)
  failing("no-engine", () => {
    for (const mask of [null, "causal"] as const)
      agree(() => attend(q(130, 16), k(70, 16), k(70, 16, 2), { scale: 0.4, mask }), 2e-2)
    agree(() => attend(q(5, 80), k(9, 80), k(9, 80, 2), { scale: 0.2, mask: "causal" }), 2e-2)
  })
  failing("no-engine", () => {
    const seen = (): mx.Array => wave([5, 70], mx.float32, 3).greater(0)
    agree(() => attend(q(5, 16), k(70, 16), k(70, 16, 2), { scale: 0.3, mask: seen() }), 2e-2)
    const bias = (): mx.Array =>
      wave([1, 2, 5, 1], mx.bfloat16, 3).multiply(wave([1, 1, 1, 70], mx.bfloat16, 1))
    agree(() => attend(q(5, 16), k(70, 16), k(70, 16, 2), { scale: 0.3, mask: bias() }), 2e-2)
  })
}, 120_000)

it("gives zeros for a query that sees nothing", () => {
  agree(
    () =>
      attend(
        wave([1, 1, 3, 16], mx.float16, 0),
        wave([1, 1, 2, 16], mx.float16, 1),
        wave([1, 1, 2, 16], mx.float16, 2),
        {
          scale: 1,
          mask: "causal",
        },
      ),
    1e-2,
  )
}, 60_000)

it("runs as graphs of cuDNN, the derivative too, of grouped heads and of fewer queries than keys", () => {
  const calls = graphCalls()
  const q = (): mx.Array => wave([2, 4, 20, 16], mx.bfloat16, 0)
  const [k, v] = [1, 2].map((phase) => (): mx.Array => wave([2, 2, 24, 16], mx.bfloat16, phase))
  for (const mask of [null, "causal"] as const) {
    const loss = (a: mx.Array, b: mx.Array, c: mx.Array): mx.Array =>
      attend(a, b, c, { scale: 0.4, mask })
        .astype(mx.float32)
        .multiply(wave([2, 4, 20, 16], mx.float32, 3))
        .sum()
    agree(() => attend(q(), k(), v(), { scale: 0.4, mask }), 1e-2)
    for (const at of [0, 1, 2]) agree(() => grad(loss, { argnums: at })(q(), k(), v()) as mx.Array, 3e-2)
  }
  expect(calls()).toBe(14)
}, 60_000)

it("runs as graphs with masks, of which some hide all keys of a query, and with sinks", () => {
  const calls = graphCalls()
  const q = (): mx.Array => wave([2, 4, 5, 16], mx.bfloat16, 0)
  const [k, v] = [1, 2].map((phase) => (): mx.Array => wave([2, 2, 13, 16], mx.bfloat16, phase))
  const hiding = (shape: number[]): mx.Array =>
    wave(shape, mx.float32, 3)
      .greater(0.2)
      .logicalAnd(mx.arange(5).reshape([-1, 1]).notEqual(2))
  const masks: (() => mx.Array)[] = [
    () => hiding([5, 13]),
    () => wave([2, 1, 1, 13], mx.float32, 3).greater(0),
    () =>
      mx.where(hiding([2, 4, 5, 13]), wave([13], mx.bfloat16, 4), mx.array(-Infinity).astype(mx.bfloat16)),
    () => wave([1, 4, 5, 16], mx.bfloat16, 4).index("...", ":13"),
    () => wave([5, 1], mx.bfloat16, 4),
  ]
  const sinks = (): mx.Array => wave([4], mx.float32, 5).astype(mx.bfloat16)
  const applications = [
    ...masks.map((mask) => ({ mask, sinks: undefined })),
    { mask: masks[0], sinks },
    { mask: undefined, sinks },
  ]
  for (const { mask, sinks } of applications) {
    const run = (a: mx.Array, b: mx.Array, c: mx.Array, d?: mx.Array): mx.Array =>
      attend(a, b, c, { scale: 0.4, mask: mask?.(), sinks: d })
    const loss = (a: mx.Array, b: mx.Array, c: mx.Array, d?: mx.Array): mx.Array =>
      run(a, b, c, d)
        .astype(mx.float32)
        .multiply(wave([2, 4, 5, 16], mx.float32, 3))
        .sum()
    const given = (): mx.Array[] => [q(), k(), v(), ...(sinks ? [sinks()] : [])]
    const call = (f: (...of: mx.Array[]) => mx.Array) => (): mx.Array => f(...given())
    agree(call(run as never), 1e-2)
    for (const at of given().keys()) agree(call(grad(loss as never, { argnums: at }) as never), 3e-2)
  }
  // Forward, and for each derivative forward and backward.
  expect(calls()).toBe(applications.reduce((sum, { sinks }) => sum + 1 + 2 * (sinks ? 4 : 3), 0))
}, 120_000)

it("has kernels where cuDNN has no engine, and says when it fails", () => {
  const calls = graphCalls()
  const [q, k, v] = [0, 1, 2].map((phase) => (): mx.Array => wave([1, 2, 12, 16], mx.float16, phase))
  const loss = (a: mx.Array): mx.Array =>
    attend(a, k(), v(), { scale: 0.4 })
      .multiply(wave([1, 2, 12, 16], mx.float16, 3))
      .sum()
  failing("no-engine", () => {
    agree(() => attend(q(), k(), v(), { scale: 0.4 }), 1e-2)
    agree(() => grad(loss)(q()) as mx.Array, 2e-2)
  })
  expect(calls()).toBe(0)
  expect(() =>
    failing("graph", () => mx.stream(mx.gpu, () => attend(q(), k(), v(), { scale: 0.5 }).toTypedArray())),
  ).toThrow("[scaledDotProductAttention] the graph failed: CUDNN_STATUS_EXECUTION_FAILED")
}, 60_000)

it("reads heads where they lie, and derivatives follow", () => {
  const part = (phase: number): mx.Array => wave([2, 20, 2, 32], mx.float16, phase).transpose(0, 2, 1, 3)
  const loss = (x: mx.Array): mx.Array =>
    attend(x, part(1), part(2), { scale: 0.3, mask: "causal" }).multiply(part(3)).sum()
  agree(() => attend(part(0), part(1), part(2), { scale: 0.3 }), 1e-2)
  agree(() => grad(loss)(part(0)) as mx.Array, 2e-2)
}, 120_000)

it("of float32 agrees for scales of 0 and below", () => {
  const [q, k, v] = [70, 90, 90].map((rows, phase) => () => wave([1, 2, rows, 24], mx.float32, phase))
  for (const scale of [-1, 0]) agree(() => attend(q(), k(), v(), { scale }), 1e-5)
}, 120_000)

it("of float32 has the precision of float32 on tensor cores, ragged, with shared heads, and in its derivatives", () => {
  const q = (): mx.Array => wave([1, 2, 70, 24], mx.float32, 0)
  const [k, v] = [1, 2].map((phase) => (): mx.Array => wave([1, 1, 90, 24], mx.float32, phase))
  const loss = (a: mx.Array, b: mx.Array, c: mx.Array): mx.Array =>
    attend(a, b, c, { scale: 0.4, mask: "causal" })
      .multiply(wave([1, 2, 70, 24], mx.float32, 3))
      .sum()
  agree(() => attend(q(), k(), v(), { scale: 0.4 }), 1e-5)
  for (const at of [0, 1, 2]) agree(() => grad(loss, { argnums: at })(q(), k(), v()) as mx.Array, 1e-5)
}, 120_000)
