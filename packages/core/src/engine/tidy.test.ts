import { afterEach, describe, expect, test } from "vitest"
import { Ref } from "../graph/graph"
import * as mx from "../index"

const isDead = (a: mx.Array): boolean => a.ref === Ref.Disposed

describe("tidy gives back what is not returned", () => {
  test("of a function", () => {
    const made: mx.Array[] = []
    const outer = mx.ones([2])
    const result = mx.tidy(() => {
      const a = outer.add(1)
      const b = a.multiply(2)
      made.push(a, b)
      return { kept: [b], also: outer, n: 3 }
    })
    expect(made.map(isDead)).toEqual([true, false])
    expect(isDead(outer)).toBe(false)
    expect(result.kept[0].tolist()).toEqual([4, 4])
  })
  test("inside another, and when it throws", () => {
    let inner: mx.Array | undefined
    let thrown: mx.Array | undefined
    const out = mx.tidy(() => {
      inner = mx.tidy(() => mx.ones([2]).add(3))
      try {
        mx.tidy(() => {
          thrown = mx.ones([1])
          throw new Error("no")
        })
      } catch {}
      return inner.add(1)
    })
    expect([inner, thrown].map((a) => isDead(a as mx.Array))).toEqual([true, true])
    expect(out.tolist()).toEqual([5, 5])
    expect(isDead(mx.ones([1]))).toBe(false)
  })
  test("of async functions that take turns, each its own", async () => {
    const made: Record<string, mx.Array[]> = { a: [], b: [] }
    const run = (name: string, pause: number) =>
      mx.tidy(async () => {
        for (let i = 0; i < 3; i++) {
          made[name].push(mx.ones([1]).add(i))
          await new Promise((resolve) => setTimeout(resolve, pause))
        }
        return made[name][2]
      })
    const first = run("a", 1)
    const second = run("b", 4)
    const between = mx.ones([1])
    expect((await first).tolist()).toEqual([3])
    expect(made.a.map(isDead)).toEqual([true, true, false])
    expect((await second).tolist()).toEqual([3])
    expect(made.b.map(isDead)).toEqual([true, true, false])
    expect(isDead(between)).toBe(false)
    await expect(
      mx.tidy(async () => {
        made.a.push(mx.ones([1]))
        throw new Error("no")
      }),
    ).rejects.toThrow("no")
    expect(isDead(made.a[3])).toBe(true)
    expect(isDead(mx.ones([1]))).toBe(false)
  })
  test("an array that was given another value inside keeps it", () => {
    const x = mx.zeros([3])
    mx.tidy(() => {
      x.set([0], mx.ones([1]).sum())
    })
    expect(x.tolist()).toEqual([1, 0, 0])
  })
  test("what is no function is refused", () => expect(() => mx.tidy(3 as never)).toThrow(mx.ArgumentError))
})

describe("the debug mode names the line that built what failed", () => {
  afterEach(() => {
    mx.setDebug(false)
  })
  const indexed = () => mx.take(mx.ones([2]), mx.array([7], mx.int32))
  test("of a primitive, and of what depends on it", () => {
    mx.setDebug(true)
    const bad = indexed()
    const sum = bad.add(1).sum()
    expect(() => sum.item()).toThrow(/ out of bounds .*\. Built at .*tidy\.test\.ts:\d+:\d+$/)
    expect(() => bad.tolist()).toThrow(/tidy\.test\.ts:\d+:\d+$/)
  })
  test("not without it, and what came before works on", () => {
    const before = indexed()
    expect(mx.setDebug(true)).toBe(false)
    expect(mx.setDebug(true)).toBe(true)
    expect(() => before.tolist()).not.toThrow(/Built at/)
    expect(mx.softmax(mx.ones([2]).add(1)).tolist()).toEqual([0.5, 0.5])
  })
})

test("a graph that only grows is computed by itself", () => {
  let x = mx.zeros([1])
  for (let i = 0; i < 70_000; i++) x = x.add(1)
  let depth = 0
  for (let node = x.node; node.primitive !== null; node = node.inputs[0]) depth++
  expect(depth).toBeLessThan(66_000)
  expect(x.item()).toBe(70_000)
})
