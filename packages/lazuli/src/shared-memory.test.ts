/**
 * The CPU and the Metal backend on the same memory: arrays move between them without a copy, nobody writes into what the other reads,
 * memory goes back when both are done, and Metal borrows the CPU's kernels.
 */

import { createMetalBackend, HostRuntime, metalBackend } from "@lazuli/backend-metal"
import { generator } from "@lazuli/conformance/generator"
import { registerBackend, type Storage } from "@lazuli/core/engine"
import { mx } from "lazuli"
import { beforeEach, expect, test } from "vitest"

const gpu = { stream: mx.gpu }
const storageOf = (x: mx.Array): Storage => x.node.storage as Storage
const address = (x: mx.Array): bigint => storageOf(x).memory.address?.(storageOf(x)) ?? 0n
beforeEach(() => mx.resetBackendStats())

test("an array moves to the other device and back without a copy", () => {
  const x = mx.arange(10000).astype(mx.float32)
  mx.eval(x)
  const [before, storage] = [address(x), storageOf(x)]
  expect(before % 4096n).toBe(0n)
  const y = mx.multiply(x, 2, gpu)
  mx.eval(y)
  expect([storageOf(x).memory.name, storageOf(x).lender, address(x)]).toEqual(["metal", storage, before])
  const z = mx.add(x, 1)
  mx.eval(z)
  expect([storageOf(x), address(x)]).toEqual([storage, before])
  const there = address(y)
  mx.eval(mx.add(y, 1))
  expect([storageOf(y).memory.name, address(y)]).toEqual(["cpu", there])
  expect([y.index(9999).item(), z.index(9999).item()]).toEqual([19998, 10000])
})

test("results in place do not reach an array that the other device still shows", () => {
  const base = mx.arange(5000).astype(mx.float32)
  mx.eval(base)
  const view = base.reshape([50, 100])
  mx.eval(view)
  const chain = (x: mx.Array): mx.Array => {
    const moved = mx.add(x, 0, gpu)
    return mx.multiply(mx.add(moved, 1, gpu), 3, gpu)
  }
  const result = chain(view)
  mx.eval(result)
  expect(mx.arrayEqual(base, mx.arange(5000).astype(mx.float32)).item()).toBe(true)
  expect(result.index(0, 1).item()).toBe(6)
})

test("memory that is lent is given back after the borrower's work", () => {
  const steps = 200
  let total = mx.zeros([4096])
  mx.eval(total)
  mx.clearCache()
  const before = mx.getActiveMemory()
  for (let i = 0; i < steps; i++) {
    // Temporaries of either device die in the other's work.
    const a = mx.add(total, 1)
    const b = mx.multiply(a, 2, gpu)
    const c = mx.subtract(b, a)
    const d = mx.multiply(a, 0, gpu)
    const next = mx.subtract(c, d)
    mx.eval(next)
    for (const used of [a, b, c, d, total]) used.dispose()
    total = next
  }
  expect(total.tolist()).toEqual(new Array(4096).fill(steps))
  expect(mx.getActiveMemory() - before).toBeLessThan(20 * 4096 * 4)
})

test.each([1, 2, 3, 4])("random programs on both devices give what the CPU alone gives (%i)", (seed) => {
  const program = (mixed: boolean): unknown[] => {
    const random = generator(seed)
    const pick = (n: number): number => Math.floor(random() * n)
    const sizes = [
      [3, 5],
      [40, 30],
      [60, 100],
    ]
    const live = sizes.map(([m, n]) =>
      mx
        .arange(m * n)
        .astype(mx.float32)
        .reshape([m, n])
        .divide(m * n),
    )
    for (let step = 0; step < 150; step++) {
      const i = pick(live.length)
      const x = live[i]
      const stream = random() < 0.5 && mixed ? mx.gpu : mx.cpu
      const options = { stream }
      const kind = pick(7)
      let next: mx.Array
      if (kind === 0) next = mx.add(x, x, options)
      else if (kind === 1) next = mx.multiply(x.index("::-1"), 0.5, options)
      else if (kind === 2) next = mx.subtract(x, x.index(0), options)
      else if (kind === 3) next = mx.sort(x, 0, options)
      else if (kind === 4) next = mx.maximum(x.transpose(), 0.1, options).transpose()
      else if (kind === 5) next = mx.concatenate([x.index("1:"), x.index(":1")], 0, options)
      else next = mx.abs(x, options)
      // Some views stay while their base goes on, some values are read at once, some graphs wait.
      if (random() < 0.3 && x.length > 2) live.push(x.index("1:", "::2"))
      if (random() < 0.5) mx.eval(next)
      if (random() < 0.1) next.index(0, 0).item()
      live[i] = next
      if (live.length > 6) live.splice(3, 1)
    }
    return live.map((x) => x.tolist())
  }
  expect(program(true)).toEqual(program(false))
})

test("a view into shared memory outlives the arrays", () => {
  const x = mx.arange(6000).astype(mx.float32)
  mx.eval(x)
  mx.eval(mx.add(x, 1, gpu))
  const bytes = x.toTypedArray({ copy: false }) as Float32Array
  x.dispose()
  for (let i = 0; i < 20; i++) mx.eval(mx.full([6000], i))
  expect([bytes[0], bytes[5999]]).toEqual([0, 5999])
})

test("a view into lent memory keeps its values once the lender has it back", () => {
  const x = mx.arange(6000).astype(mx.float32)
  mx.eval(x)
  mx.eval(mx.multiply(x, 2, gpu))
  expect(storageOf(x).lender).not.toBeNull()
  const seen = x.toTypedArray({ copy: false }) as Float32Array
  mx.eval(mx.add(x, 1))
  expect(storageOf(x).lender).toBeNull()
  x.set([0], 9)
  mx.eval(x)
  expect([x.index(0).item(), seen[0]]).toEqual([9, 0])
})

test("Metal borrows the CPU's kernels before it asks for the reference, and counts it", () => {
  expect(mx.linalg.inv(mx.array([[2]]), gpu).tolist()).toEqual([[0.5]])
  expect(mx.backendStats().metal).toEqual({ inv: { decomposed: 0, reference: 0, borrowed: 1 } })
  const d = mx.array([3], mx.float64)
  expect(mx.multiply(d, d, gpu).tolist()).toEqual([9])
  expect(mx.backendStats().metal.multiply).toEqual({ decomposed: 0, reference: 0, borrowed: 1 })
  const [big, order] = [mx.arange(9999, -1, -1), mx.argsort(mx.arange(9999, -1, -1), gpu)]
  expect(mx.take(big, order, gpu).index(":3").tolist()).toEqual([0, 1, 2])
})

test("what the CPU's kernel refuses keeps its error", () => {
  const singular = mx.array([
    [1, 2],
    [2, 4],
  ])
  const messageOf = (x: mx.Array): string => {
    try {
      return String(x.tolist())
    } catch (error) {
      return (error as Error).message
    }
  }
  const message = messageOf(mx.linalg.inv(singular))
  expect(message).toContain("singular")
  expect(messageOf(mx.linalg.inv(singular, gpu))).toBe(message)
})

test("Metal reads the nearest element for a position out of bounds, and writes none", () => {
  const at = mx.array([7, -9, 1], mx.int32)
  expect(mx.take(mx.arange(3), at, gpu).tolist()).toEqual([2, 0, 1])
  const written = mx.stream(mx.gpu, () =>
    mx
      .zeros([3])
      .at(at)
      .add(mx.array([1, 2, 3])),
  )
  expect(written.tolist()).toEqual([0, 3, 0])
})

test("where memory is not shared, it is copied", () => {
  registerBackend(createMetalBackend(new HostRuntime({ checked: true }), "metal-apart", 1))
  mx.setBackend("metal-apart", "gpu")
  try {
    const x = mx.arange(5000).astype(mx.float32)
    mx.eval(mx.add(x, 1, gpu))
    expect([storageOf(x).memory.name, storageOf(x).lender]).toEqual(["cpu", null])
    expect(storageOf(x).copies?.map(({ memory }) => memory.name)).toEqual(["metal-apart"])
    expect(mx.linalg.inv(mx.array([[2]]), gpu).tolist()).toEqual([[0.5]])
    expect(mx.backendStats()["metal-apart"].inv.borrowed).toBe(1)
  } finally {
    mx.setBackend(null, "gpu")
  }
  expect(metalBackend.name).toBe("metal")
})
