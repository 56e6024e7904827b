/** Limits of memory: what they may be, and what becomes of work when they change while it is under way, in this thread and in others. */
import * as mx from "@lazuli/core"
import { lifetimes } from "@lazuli/core/engine"
import { afterEach, describe, expect, test } from "vitest"
import { answer, bundleEngine } from "../test/engine-bundle"
import "./index"

const MB = 2 ** 20
const { start } = bundleEngine()
const machine = mx.setMemoryLimit(Infinity)
mx.setMemoryLimit(machine)
const cached = mx.setCacheLimit(0)
mx.setCacheLimit(cached)
afterEach(() => {
  mx.setMemoryLimit(machine)
  mx.setCacheLimit(cached)
  mx.setWiredLimit(0)
})

const BOUNDS = [mx.setMemoryLimit, mx.setCacheLimit, mx.setWiredLimit] as const

describe("a bound", () => {
  test("is a whole number of bytes, or none", () => {
    for (const set of BOUNDS) {
      const before = set(12345)
      expect(set(Number.MAX_SAFE_INTEGER)).toBe(12345)
      expect(set(Infinity)).toBe(Number.MAX_SAFE_INTEGER)
      expect(set(0)).toBe(Infinity)
      expect(set(before)).toBe(0)
    }
  })

  test("is nothing else, and what was refused changes nothing", () => {
    const wrong = [NaN, -1, -Infinity, 0.5, 2 ** 53, 1e300, "100", 5n, null, undefined, {}, [1], true]
    for (const set of BOUNDS)
      for (const value of wrong) {
        expect(() => set(value as number)).toThrow(mx.ArgumentError)
        expect(() => set(value as number)).toThrow(/^\[set\w+Limit\] limit must be a non-negative integer/)
      }
    expect(mx.setMemoryLimit(machine)).toBe(machine)
    expect(mx.setCacheLimit(cached)).toBe(cached)
  })
})

test("counts follow what is kept, given back and emptied", () => {
  lifetimes.collectGarbage()
  mx.clearCache()
  mx.resetPeakMemory()
  const before = mx.getActiveMemory()
  expect([mx.getPeakMemory(), mx.getCacheMemory()]).toEqual([before, 0])
  const x = mx.zeros([1024, 1024]).add(1)
  mx.eval(x)
  expect(mx.getActiveMemory() - before).toBeGreaterThanOrEqual(4 * MB)
  expect(mx.getPeakMemory()).toBeGreaterThanOrEqual(mx.getActiveMemory())
  x.dispose()
  expect(mx.getActiveMemory() - before).toBeLessThan(MB)
  expect(mx.getCacheMemory()).toBeGreaterThanOrEqual(4 * MB)
  expect(mx.getPeakMemory() - before).toBeGreaterThanOrEqual(4 * MB)
  mx.resetPeakMemory()
  expect(mx.getPeakMemory()).toBe(mx.getActiveMemory())
  mx.clearCache()
  mx.clearCache()
  expect(mx.getCacheMemory()).toBe(0)
})

describe("a bound that changes while work is under way", () => {
  test("does not take back what was let through", async () => {
    let x = mx.zeros([512, 512])
    mx.eval(x)
    for (let i = 0; i < 40; i++) {
      // Intermediate memory is given back as it runs, and taken anew.
      x = mx.tidy(() => x.matmul(mx.eye(512)).add(1).T.flatten().reshape([512, 512]))
    }
    const done = mx.asyncEval(x)
    mx.setMemoryLimit(0)
    mx.setCacheLimit(0)
    await done
    expect(x.index(7, 7).item()).toBe(40)
    const more = x.add(1)
    await expect(mx.asyncEval(more)).rejects.toThrow(/out of memory/)
    mx.setMemoryLimit(Infinity)
    expect(more.index(7, 7).item()).toBe(41)
  })

  test("from several threads at once: every array has its value or the error, and the process goes on", async () => {
    lifetimes.collectGarbage()
    const before = mx.getActiveMemory()
    const rounds = `
      let state = data
      const pick = (n) => (state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff, (state >> 8) % n)
      const told = { right: 0, refused: 0, wrong: [] }
      for (let i = 0; i < 80; i++) {
        const x = mx.full([256, 256], i)
        const y = x.matmul(mx.eye(256)).add(1).T.flatten()
        mx.setMemoryLimit([0, 4e6, 64e6, Infinity][pick(4)])
        mx.setCacheLimit([0, 1e6, Infinity][pick(3)])
        try {
          if (pick(2)) mx.eval(y)
          else await mx.asyncEval(y)
          if (pick(4) === 0) mx.clearCache()
          if (pick(4) === 0) mx.resetPeakMemory()
          const value = y.index(5).item()
          if (value === i + 1) told.right++
          else told.wrong.push(value)
        } catch (error) {
          if (error instanceof mx.DeviceError && /out of memory/.test(error.message)) told.refused++
          else told.wrong.push(String(error))
        }
      }
      mx.setMemoryLimit(Infinity)
      post(told)`
    const workers = [11, 22].map((seed) => start(rounds, seed))
    const told = Promise.all(workers.map(answer)) as Promise<
      { right: number; refused: number; wrong: unknown[] }[]
    >
    for (let i = 0; i < 40; i++) {
      mx.setMemoryLimit(i % 2 ? Infinity : 1e6)
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
    mx.setMemoryLimit(Infinity)
    for (const { right, refused, wrong } of await told) {
      expect(wrong).toEqual([])
      expect(right + refused).toBe(80)
      expect(right).toBeGreaterThan(0)
    }
    await Promise.all(workers.map((worker) => worker.terminate()))
    mx.setMemoryLimit(machine)
    expect(mx.ones([64, 64]).sum().item()).toBe(4096)
    lifetimes.collectGarbage()
    expect(mx.getActiveMemory() - before).toBeLessThan(MB)
  })
})
