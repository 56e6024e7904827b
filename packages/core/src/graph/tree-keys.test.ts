/** Trees with keys that JavaScript's objects also mean something by, and trees deeper than its stack. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeEach, describe, expect, it } from "vitest"
import { arraysOf, forEachLeaf, mapArrays, mapLeaves } from "../backend-api"
import * as mx from "../index"

const folder = mkdtempSync(join(tmpdir(), "lazuli-keys-"))
afterAll(() => rmSync(folder, { recursive: true }))

type Named = Record<string, mx.Array>
const KEYS = ["__proto__", "constructor", "toString"]
/** A plain object with those keys as its own. */
const make = (at = 0): Named => Object.fromEntries(KEYS.map((key, i) => [key, mx.array(i + at)]))
const numbers = (tree: unknown): unknown => {
  expect(Object.getPrototypeOf(tree)).toBe(Object.prototype)
  return Object.entries(tree as Named).map(([key, x]) => [key, x.item()])
}
const expected = (f: (i: number) => number): unknown => KEYS.map((key, i) => [key, f(i)])
let untouched: string[]
beforeEach(() => {
  untouched = Object.getOwnPropertyNames(Object.prototype)
  return () => expect(Object.getOwnPropertyNames(Object.prototype)).toEqual(untouched)
})

describe("keys such as __proto__ are keys", () => {
  it("for every tree function", () => {
    expect(numbers(mx.treeMap((x: mx.Array) => x.add(1), make()))).toEqual(expected((i) => i + 1))
    expect(numbers(mx.treeMap((x: mx.Array, y: mx.Array) => x.add(y), make(), make(10)))).toEqual(
      expected((i) => 2 * i + 10),
    )
    expect(() => mx.treeMap((x: mx.Array) => x, make(), {})).toThrow('tree 2 has no leaf "__proto__"')
    expect(numbers(Object.fromEntries(mx.treeFlatten(make())))).toEqual(expected((i) => i))
    expect(numbers(mx.treeFlatten(make(), "", null, {}))).toEqual(expected((i) => i))
    const tree = mx.treeUnflatten([
      ["a.__proto__.b", 1],
      ["a.c", 2],
      ["__proto__", 3],
    ])
    expect(mx.treeFlatten(tree)).toEqual([
      ["a.__proto__.b", 1],
      ["a.c", 2],
      ["__proto__", 3],
    ])
    expect(numbers(mx.treeMerge(make(), {}))).toEqual(expected((i) => i))
    expect(numbers(mx.treeMerge({ a: mx.array(9) }, make()))).toEqual([
      ["a", 9],
      ...(expected((i) => i) as unknown[]),
    ])
  })
  it("for the walks of the engine", () => {
    expect(arraysOf(make()).map((x) => x.item())).toEqual([0, 1, 2])
    expect(numbers(mapArrays(make(), (x) => x.add(5)))).toEqual(expected((i) => i + 5))
    expect(numbers(mapLeaves(make(), (x) => (x as mx.Array).add(5)))).toEqual(expected((i) => i + 5))
  })
  it("for arrays in files", () => {
    for (const ending of ["npz", "safetensors", "gguf"] as const) {
      const file = join(folder, `keys.${ending}`)
      const save = { npz: mx.savez, safetensors: mx.saveSafetensors, gguf: mx.saveGguf }[ending]
      save(file, make())
      const read = mx.load(file) as Named
      expect(Object.getPrototypeOf(read)).toBe(Object.prototype)
      for (const [i, key] of KEYS.entries()) {
        expect(Object.hasOwn(read, key)).toBe(true)
        expect(read[key].item()).toBe(i)
      }
    }
  })
})

describe("trees of more levels than the stack has", () => {
  const name = `w${".0".repeat(50_000)}`
  const deep = (): unknown => {
    let tree: unknown = mx.array(1)
    for (let i = 0; i < 50_000; i++) tree = i % 2 ? [tree] : { a: tree }
    return tree
  }
  const itself = (): unknown => {
    const tree: Record<string, unknown> = {}
    tree.a = [tree]
    return tree
  }
  it.each([
    ["deep", deep],
    ["containing itself", itself],
  ])("are refused: %s", (_name, make) => {
    const tree = make()
    const walks: Record<string, () => unknown> = {
      treeMap: () => mx.treeMap((x) => x, tree),
      treeMapWithPath: () => mx.treeMapWithPath((_path, x) => x, tree),
      treeFlatten: () => mx.treeFlatten(tree),
      treeReduce: () => mx.treeReduce((a, _b) => a, tree, 0),
      treeMerge: () => mx.treeMerge(tree, tree, (a) => a),
      eval: () => mx.eval(tree),
      arraysOf: () => arraysOf(tree),
      mapArrays: () => mapArrays(tree, (x) => x),
      mapLeaves: () => mapLeaves(tree, (x) => x),
      forEachLeaf: () => forEachLeaf(tree, () => {}),
      receive: () => mx.receive(tree),
    }
    for (const [walk, run] of Object.entries(walks)) {
      expect(run, walk).toThrow(mx.ArgumentError)
      expect(run, walk).toThrow(/a tree has more than 1000 levels, or contains itself/)
    }
  })
  it("are refused by name, as a file may have them", () => {
    const file = join(folder, "deep.safetensors")
    mx.saveSafetensors(file, { [name]: mx.array(1) })
    const read = mx.load(file) as Named
    expect(read[name].item()).toBe(1)
    expect(() => mx.treeUnflatten(read)).toThrow(
      "[treeUnflatten] a tree has more than 1000 levels, or contains itself",
    )
  })
  it("are taken where they are that deep and no deeper", () => {
    const tree = mx.treeUnflatten([[`w${".0".repeat(999)}`, mx.array(3)]])
    expect(arraysOf(tree).map((x) => x.item())).toEqual([3])
    expect(mx.treeFlatten(mapArrays(tree, (x) => x))[0][0]).toHaveLength(1999)
  })
})
