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
  expect(() => mx.treeUnflatten([['a', 1], ['a.b', 2]])).toThrowErrorMatchingInlineSnapshot(`[ArgumentError: [treeUnflatten] "a" is both a leaf and the prefix of other names]`) // biome-ignore format: pairs
  expect(() => mx.treeMap((a) => a, { a: 1 }, { b: 1 })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeMap] tree 2 has no leaf "a"]`,
  )
  expect(() => mx.treeMerge({ a: 1 }, { a: 2 })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeMerge] both trees have a value at the same path. Pass a function that merges them]`,
  )
  expect(() => mx.treeReduce((a) => a, {})).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [treeReduce] the tree is empty and there is no initial value]`,
  )
})

test("merging combines what both have", () => {
  const sum = (a: unknown, b: unknown) => Number(a) + Number(b)
  expect(mx.treeMerge({ a: [1, 2], b: {} }, { a: [10], b: 5 }, sum)).toEqual({ a: [11, 2], b: 5 })
})

test("what is no tree function's argument, and trees that contain themselves, are refused by name", () => {
  const cycle: unknown[] = [1]
  cycle.push(cycle)
  const refused = (call: () => unknown): string => {
    try {
      call()
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "taken"
  }
  expect(
    [
      () => mx.treeFlatten({ a: 1 }, 3 as never),
      () => mx.treeFlatten({ a: 1 }, "", "leaf" as never),
      () => mx.treeFlatten({ a: 1 }, { prefx: "a" } as never),
      () => mx.treeFlatten(cycle),
      () => mx.treeUnflatten(3 as never),
      () => mx.treeMap(3 as never, {}),
      () => mx.treeMap((x) => x, cycle),
      () => mx.treeMapWithPath((_path, x) => x, { a: 1 }, {}),
      () => mx.treeReduce("sum" as never, [1]),
      () => mx.treeReduce((a: number, b: number) => a + b, cycle, 0),
      () => mx.treeMerge(1, 2, 3 as never),
      () => mx.eval(cycle),
      () => mx.registerTreeNode(class {}, {} as never),
    ].map(refused),
  ).toMatchInlineSnapshot(`
    [
      "ArgumentError: [treeFlatten] prefix must be a string, received the number 3",
      "ArgumentError: [treeFlatten] isLeaf must be a function, received the string "leaf"",
      "ArgumentError: [treeFlatten] has no option "prefx"; it takes prefix, isLeaf. Did you mean "prefix"?",
      "ArgumentError: [treeFlatten] a tree has more than 1000 levels, or contains itself",
      "ArgumentError: [treeUnflatten] leaves must be pairs of names and leaves, or an object of leaves by name, received the number 3",
      "ArgumentError: [treeMap] fn must be a function, received the number 3",
      "ArgumentError: [treeMap] a tree has more than 1000 levels, or contains itself",
      "ArgumentError: [treeMapWithPath] tree 2 has no leaf "a"",
      "ArgumentError: [treeReduce] fn must be a function, received the string "sum"",
      "ArgumentError: [treeReduce] a tree has more than 1000 levels, or contains itself",
      "ArgumentError: [treeMerge] merge must be a function, received the number 3",
      "ArgumentError: [eval] a tree has more than 1000 levels, or contains itself",
      "ArgumentError: [registerTreeNode] rule must be an object with the functions flatten and unflatten, received a plain object",
    ]
  `)
})
