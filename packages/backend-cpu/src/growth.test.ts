/**
 * Memory that a program keeps without meaning to: pending losses, temporary arrays; and the report that says what is kept.
 */
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks"
import * as mx from "@lazuli/core"
import { lifetimes } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import "./index"

const MB = 2 ** 20

test("losses that nobody reads do not keep what they are computed from", () => {
  lifetimes.collectGarbage()
  mx.resetPeakMemory()
  const before = mx.getActiveMemory()
  const losses: mx.Array[] = []
  const w = mx.ones([512, 512])
  for (let i = 0; i < 800; i++) {
    const h = w.add(i)
    mx.eval(h)
    losses.push(h.mean().multiply(2))
  }
  // Each keeps its own megabyte until it is computed.
  expect(mx.getPeakMemory() - before).toBeLessThan(600 * MB)
  expect(losses.map((loss) => loss.item())).toEqual(losses.map((_, i) => 2 * (i + 1)))
})

test("handles that were old when they died keep no intermediates", () => {
  const x = mx.contiguous(mx.ones([2 ** 22]))
  mx.eval(x)
  const handles = [x]
  for (let i = 0; i < 12; i++) handles.push(handles[i].multiply(0.5).add(i))
  // Makes them old, as the collector does by itself while a program builds a large graph.
  lifetimes.collectGarbage()
  const last = handles[12]
  handles.length = 0
  const before = mx.getActiveMemory()
  mx.resetPeakMemory()
  mx.eval(last)
  expect(mx.getPeakMemory() - before).toBeLessThan(64 * MB)
})

test("a failed loss keeps its error for whoever reads it", () => {
  const losses: mx.Array[] = []
  const w = mx.ones([512, 512])
  for (let i = 0; i < 400; i++) {
    const h = w.add(i)
    mx.eval(h)
    losses.push(i === 3 ? mx.take(h, mx.array([2 ** 20], mx.int32)).sum() : h.sum())
  }
  expect(() => losses[3].item()).toThrow(mx.IndexError)
  expect(losses[4].item()).toBe(5 * 2 ** 18)
})

test.each<[string, (x: mx.Array, part: mx.Array) => mx.Array]>([
  ["sliceUpdate", (x, part) => mx.sliceUpdate(x, part, mx.array([0], mx.int32), [0])],
  ["at().add", (x, part) => x.at(":").add(part)],
  ["matmul", (x, part) => mx.matmul(x.reshape([512, 512]), part.reshape([512, 512])).reshape([-1])],
])("a loop of %s that nobody evaluates is bounded", (_name, step) => {
  lifetimes.collectGarbage()
  const before = mx.getActiveMemory()
  const loop = { x: mx.zeros([2 ** 18]) }
  for (let i = 0; i < 400; i++) loop.x = step(loop.x, mx.array(new Float32Array(2 ** 18)))
  expect(mx.getActiveMemory() - before).toBeLessThan(200 * MB)
  expect(loop.x.sum().item()).toBe(0)
})

test("selections that have made their update do not keep the array", () => {
  const selections: object[] = []
  const step = (): mx.Array => {
    const x = mx.contiguous(mx.zeros([2 ** 20]))
    mx.eval(x)
    const selection = x.at(":")
    selections.push(selection)
    const updated = selection.add(1)
    mx.eval(updated)
    return updated
  }
  lifetimes.collectGarbage()
  const before = mx.getActiveMemory()
  const updated = Array.from({ length: 16 }, step)
  lifetimes.collectGarbage()
  expect(mx.getActiveMemory() - before).toBeLessThan(1.5 * 16 * updated[0].nbytes)
  expect([updated[15].sum().item(), selections.length]).toEqual([2 ** 20, 16])
})

test("tidy gives memory back at once", () => {
  lifetimes.collectGarbage()
  const before = mx.getActiveMemory()
  const kept = mx.tidy(() => {
    const parts = Array.from({ length: 20 }, (_, i) => mx.ones([512, 512]).add(i))
    mx.eval(parts)
    expect(mx.getActiveMemory() - before).toBeGreaterThanOrEqual(20 * MB)
    const sum = parts[0].add(parts[1])
    mx.eval(sum)
    return sum
  })
  // A few bytes of scalars wait for the collector.
  expect(mx.getActiveMemory() - before).toBeLessThan(MB + 4096)
  expect(kept.index(0, 0).item()).toBe(3)
})

test("the report names what is alive by what made it", () => {
  const a = mx.array(new Float32Array(65536))
  const b = mx.exp(a)
  const c = mx.matmul(b.reshape([256, 256]), b.reshape([256, 256]))
  mx.eval(b, c)
  const { byOp, active, buffers } = mx.memoryReport()
  const of = (op: string) => byOp.find((entry) => entry.op === op)
  expect(of("exp")).toEqual({ op: "exp", buffers: 1, bytes: 262144 })
  expect(of("matmul")?.bytes).toBe(262144)
  expect(of("array")?.bytes).toBeGreaterThanOrEqual(262144)
  expect(byOp.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(active)
  expect(byOp.reduce((sum, entry) => sum + entry.buffers, 0)).toBe(buffers)
  a.dispose()
})

test("the debug mode names the line of a kernel that failed", () => {
  const before = mx.setDebug(true)
  try {
    const x = mx.ones([2]).add(1)
    const bad = mx.take(x, mx.array([7], mx.int32))
    expect(() => mx.eval(bad.sum(), x)).toThrow(/Built at .*growth\.test\.ts:\d+:\d+$/)
    expect(x.tolist()).toEqual([2, 2])
  } finally {
    mx.setDebug(before)
  }
})

/** The number of collections of one kind while `body` runs. */
async function collections(kind: number, body: () => void): Promise<number> {
  let count = 0
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as (PerformanceEntry & { detail: { kind: number } })[])
      if (entry.detail.kind === kind) count++
  })
  observer.observe({ entryTypes: ["gc"] })
  body()
  await new Promise((resolve) => setTimeout(resolve, 50))
  observer.disconnect()
  return count
}

test("large arrays that stay do not make the collector look through everything again and again", async () => {
  const kept = mx.ones([6144, 6144]).add(1)
  mx.eval(kept)
  const x = mx.ones([2048, 2048])
  for (let i = 0; i < 24; i++) mx.eval(x.add(i))
  const before = mx.getActiveMemory()
  let grown = 0
  const major = await collections(constants.NODE_PERFORMANCE_GC_MAJOR, () => {
    for (let i = 0; i < 100; i++) mx.eval(x.add(i))
    grown = mx.getActiveMemory() - before
  })
  kept.dispose()
  expect(grown).toBeLessThan(512 * MB)
  expect(major).toBeLessThan(2)
})

test("views of a large array do not make the collector run", async () => {
  const w = mx.ones([3000, 3000], mx.bfloat16)
  const x = mx.ones([1, 3000], mx.bfloat16)
  mx.eval(w, x)
  const multiply = () => mx.eval(x.matmul(w.T), x.matmul(w.reshape([3000, 3, 1000]).flatten(1).T))
  multiply()
  const minor = await collections(constants.NODE_PERFORMANCE_GC_MINOR, () => {
    for (let i = 0; i < 30; i++) multiply()
  })
  expect(minor).toBeLessThan(10)
})

test("arrays that lived long are given back once what is alive has doubled", () => {
  lifetimes.collectGarbage()
  mx.resetPeakMemory()
  const before = mx.getActiveMemory()
  const ring: mx.Array[] = []
  for (let i = 0; i < 200; i++) {
    const next = mx.ones([1024, 1024]).add(i)
    mx.eval(next)
    ring[i % 32] = next
  }
  // 128 MB are alive at any time.
  expect(mx.getPeakMemory() - before).toBeLessThan(128 * 7 * MB)
  expect(ring[5].index(0, 0).item()).toBe(198)
})
