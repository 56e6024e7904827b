/** Devices with memory of their own: what the contract of backends promises them, proved on a backend whose bytes the host cannot see. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { registerBackend, setBackend } from "@lazuli/core/engine"
import { grad } from "@lazuli/transforms"
import { beforeEach, expect, test } from "vitest"
import { discreteBackend } from "../test/discrete-backend"
import { backendSuite } from "./backend-suite"
import { formatChecks } from "./check/op-check"

const card = discreteBackend("card")
registerBackend(card)
setBackend("card", "gpu")
const gpu = { stream: mx.gpu }
const onGpu = <T>(body: () => T): T => mx.stream(mx.gpu, body)
const inUse = (): number => card.memory.stats?.().active as number

beforeEach(() => {
  card.transfers.uploads = 0
  card.transfers.downloads = 0
})

test("an array is uploaded once, however many operations read it, and downloaded when it is read", () => {
  const x = mx.array([1, 2, 3])
  const [a, b] = [mx.multiply(x, 2, gpu), mx.add(x, x, gpu)]
  const c = mx.matmul(a, b, gpu)
  mx.eval(c)
  expect(card.transfers).toEqual({ uploads: 1, downloads: 0 })
  expect(c.item()).toBe(56)
  expect(card.transfers).toEqual({ uploads: 1, downloads: 1 })
  // It still is where it was made.
  expect([x.node.storage?.memory.name, c.node.storage?.memory.name]).toEqual(["reference", "card"])
  expect(x.tolist()).toEqual([1, 2, 3])
  expect(card.transfers.downloads).toBe(1)
})

test("a result that goes back and forth is copied once each way", () => {
  const x = mx.array([1, 2, 3])
  const there = mx.multiply(x, 10, gpu)
  const here = mx.add(there, 1)
  const again = mx.add(there, mx.multiply(here, 2, gpu), gpu)
  mx.eval(again, mx.subtract(there, 1))
  expect(card.transfers).toEqual({ uploads: 2, downloads: 1 })
  expect(again.tolist()).toEqual([32, 62, 92])
})

test("views and strided reads on the device", () => {
  const x = mx.arange(12).reshape([3, 4])
  const y = onGpu(() =>
    x.T.index("1:3")
      .flatten()
      .add(mx.zeros([6])),
  )
  expect(y.tolist()).toEqual([1, 5, 9, 2, 6, 10])
  expect(y.toTypedArray({ copy: false })).toEqual(Float32Array.of(1, 5, 9, 2, 6, 10))
})

test("a copy is forgotten when its original is written in place", () => {
  const chain = (): mx.Array => {
    const x = mx.ones([1000]).add(1)
    const y = mx.add(x, 1, gpu)
    // x dies here, and its memory becomes z's; y read a copy of x.
    const z = x.multiply(5)
    return mx.add(mx.add(z, 0, gpu), y, gpu)
  }
  const result = chain()
  mx.eval(result)
  expect(result.index(0).item()).toBe(13)
})

test("memory of copies goes back with the originals", () => {
  const before = inUse()
  const x = mx.ones([1000]).add(1)
  mx.eval(x)
  const y = mx.add(x, 1, gpu)
  mx.eval(y)
  expect(inUse() - before).toBe(8000)
  x.dispose()
  expect(inUse() - before).toBe(4000)
  y.dispose()
  expect(inUse() - before).toBe(0)
})

test("beyond the device's limit an evaluation is refused before it begins, and what was there keeps its value", () => {
  const x = mx.add(mx.ones([10]), 1, gpu)
  mx.eval(x)
  const before = card.memory.stats?.().limit as number
  card.memory.setLimit?.(inUse() + 100)
  try {
    expect(() => mx.eval(mx.add(mx.zeros([1000]), 1, gpu))).toThrow(
      /out of memory of card: needs 4004 bytes more.*Nothing was computed/,
    )
  } finally {
    card.memory.setLimit?.(before)
  }
  expect(x.sum().item()).toBe(20)
})

test("compiled functions run as plans on the device, with the results of eager ones", () => {
  const w = mx.arange(6).reshape([3, 2])
  const f = (x: mx.Array): mx.Array => mx.softmax(x.matmul(w).add(1).T, -1).sum(0).multiply(2)
  const compiled = compile(f)
  onGpu(() => {
    const x = mx.arange(12).astype(mx.float32).reshape([4, 3])
    const expected = f(x)
    const got = compiled(x)
    expect(got.tolist()).toEqual(expected.tolist())
    expect(got.node.storage?.memory.name).toBe("card")
    expect(compiled.explain(x).kernels).not.toBe(null)
    const g = grad((x: mx.Array) => compiled(x).square().sum())
    expect(g(x).tolist()).toEqual(grad((x: mx.Array) => f(x).square().sum())(x).tolist())
  })
})

test("the backend suite", () => {
  const primitives = [
    "add",
    "exp",
    "sum",
    "matmul",
    "sort",
    "gather",
    "scatter",
    "softmax",
    "concatenate",
    "slice",
    "cumsum",
    "argmax",
  ]
  const reports = backendSuite("card", {
    primitives,
    sizes: [1, 7],
    dtypes: [mx.float32, mx.int32, mx.bfloat16],
  })
  expect(reports.filter(({ ok }) => !ok).map((report) => formatChecks([report]))).toEqual([])
  expect(reports).toHaveLength(primitives.length)
})
