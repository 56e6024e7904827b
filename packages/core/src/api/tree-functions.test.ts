import { expect, test } from "vitest"
import * as mx from "../index"

test("flatten and unflatten are inverse", () => {
  const tree = { layers: [{ w: 1 }, { w: 2, deep: { x: [3] } }], b: 4 }
  const flat = mx.treeFlatten(tree)
  expect(flat.map(([name]) => name)).toEqual(["layers.0.w", "layers.1.w", "layers.1.deep.x.0", "b"])
  expect(mx.treeUnflatten(flat)).toEqual(tree)
  expect(mx.treeUnflatten(Object.fromEntries(flat))).toEqual(tree)
  expect(mx.treeUnflatten(mx.treeFlatten(5))).toBe(5)
})

test("lists come in the order of their numbers, with {} where one is missing", () => {
  const numbered = (...keys: string[]) =>
    mx.treeUnflatten(keys.map((key) => [`a.${key}`, Number(key)] as const))
  expect(numbered("2", "0", "1")).toEqual({ a: [0, 1, 2] })
  expect(numbered("2", "0")).toEqual({ a: [0, {}, 2] })
  expect(numbered("1", "01")).toEqual({ a: { 1: 1, "01": 1 } })
  expect(() => numbered("99999999")).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeUnflatten] a list of length 100000000 has only 1 elements]`,
  )
})

test("a further tree may hold whole parts, and a function says what is whole", () => {
  expect(mx.treeMap((x, s) => [x, s], { a: 1 } as never, { a: { m: 2, v: 3 }, b: 4 })).toEqual({
    a: [1, { m: 2, v: 3 }],
  })
  expect(mx.treeMap((x) => String(x), { a: [1, 2] } as never, Array.isArray)).toEqual({ a: "1,2" })
  expect(mx.treeReduce((sum: number, x: number) => sum + x, [1, [2, 3]])).toBe(6)
  expect(mx.treeFlatten([1, { a: 2 }], "", null, { b: 0 as never })).toEqual({ b: 0, 0: 1, "1.a": 2 })
})

test("a prefix and whole leaves", () => {
  expect(mx.treeFlatten({ a: [1, 2] }, "x", Array.isArray)).toEqual([["x.a", [1, 2]]])
})

test("arrays are leaves", () => {
  const doubled = mx.treeMap((a) => a.multiply(2), { a: mx.array([1, 2]), b: [mx.array(3)] })
  expect([doubled.a.tolist(), doubled.b[0].item()]).toEqual([[2, 4], 6])
})

test("mistakes are named", () => {
  expect(() => mx.treeUnflatten([['a', 1], ['a.b', 2]])).toThrowErrorMatchingInlineSnapshot(`[ArgumentError: [treeUnflatten] "a" is a leaf and the beginning of other names]`) // biome-ignore format: pairs
  expect(() => mx.treeMap((a) => a, { a: 1 }, { b: 1 })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeMap] tree 2 has no leaf "a"]`,
  )
  expect(() => mx.treeMerge({ a: 1 }, { a: 2 })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeMerge] both trees have a value at the same place. Give a function that combines them]`,
  )
  expect(() => mx.treeReduce((a) => a, {})).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeReduce] the tree is empty and there is no initial value]`,
  )
})

test("merging combines what both have", () => {
  const sum = (a: unknown, b: unknown) => Number(a) + Number(b)
  expect(mx.treeMerge({ a: [1, 2], b: {} }, { a: [10], b: 5 }, sum)).toEqual({ a: [11, 2], b: 5 })
})
