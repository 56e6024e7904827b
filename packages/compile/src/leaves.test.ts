/** Captured trees that are looked at again: what changed is noticed, and arrays are those that are there now. */
import * as mx from "@lazuli/core"
import { replaceTree } from "@lazuli/core/engine"
import { describe, expect, it } from "vitest"
import { Leaves } from "./leaves"

class Part {
  readonly frozen = new Set<string>()
  constructor(
    public weight: mx.Array,
    public rate = 2,
  ) {}
}
class Other extends Part {}
/** An object whose prototype has an enumerable key. */
const derived = (): Record<string, unknown> => Object.assign(Object.create({ k: 1 }), { k: 1 })
const treeOf = (): {
  parts: Part[]
  first: Part
  names: Map<string, number>
  made: Date
  derived: Record<string, unknown>
  extra: Record<string, unknown>
} => {
  const parts = [new Part(mx.ones([2])), new Part(mx.zeros([3]))]
  return {
    parts,
    first: parts[0],
    names: new Map([["a", 1]]),
    made: new Date(5),
    derived: derived(),
    extra: { x: mx.ones([1]) },
  }
}
const program = {}

/** Leaves that have read a tree, and say that it fits. */
function leavesOf(tree: object): Leaves {
  const leaves = new Leaves()
  leaves.read(tree)
  leaves.fit(program)
  return leaves
}

describe("captured trees", () => {
  it("are not read anew while only their arrays change", () => {
    const tree = treeOf()
    const leaves = leavesOf(tree)
    for (let i = 0; i < 3; i++) {
      tree.parts[1].weight = mx.full([3], i)
      tree.extra.x = mx.full([1], i)
      leaves.forget()
      expect(leaves.arrays.length).toBe(0)
      expect(leaves.stillFits(program, tree)).toBe(true)
      const now = [tree.parts[0].weight, tree.parts[1].weight, tree.extra.x]
      expect(leaves.arrays.length).toBe(now.length)
      expect(leaves.arrays.map((array, k) => array === now[k])).not.toContain(false)
      expect(leaves.holders.map((holder, k) => holder[leaves.keys[k]] === now[k])).not.toContain(false)
    }
    expect(leaves.stillFits({}, tree)).toBe(false)
  })

  it("whose root changes its class are read anew, with that class", () => {
    const tree = new Part(mx.ones([2]))
    const leaves = leavesOf(tree)
    expect(leaves.constants).toContain(Part)
    Object.setPrototypeOf(tree, Other.prototype)
    expect(leaves.stillFits(program, tree)).toBe(false)
    leaves.read(tree)
    expect(leaves.constants).toContain(Other)
  })

  type Tree = ReturnType<typeof treeOf>
  it.each<[string, (tree: Tree) => void]>([
    ["another number", (tree) => void (tree.parts[1].rate = 3)],
    ["-0 for 0", (tree) => void (tree.parts[0].rate = -0)],
    ["another container of the same class", (tree) => void (tree.parts[1] = new Part(mx.zeros([3])))],
    ["another class", (tree) => void Object.setPrototypeOf(tree.parts[1], Other.prototype)],
    ["no class", (tree) => void Object.setPrototypeOf(tree.parts[1], null)],
    ["a key that is inherited now", (tree) => void delete tree.derived.k],
    ["one more in a list", (tree) => void tree.parts.push(new Part(mx.ones([1])))],
    ["one fewer in a list", (tree) => void tree.parts.pop()],
    ["one more key", (tree) => void (tree.extra.y = 1)],
    ["no key", (tree) => void delete tree.extra.x],
    ["the same under another key", (tree) => void (tree.extra = { y: tree.extra.x })],
    ["a number in place of an array", (tree) => void (tree.extra.x = 1)],
    [
      "an array in place of a number",
      (tree) => void ((tree.parts[1] as { rate: unknown }).rate = mx.ones([1])),
    ],
    ["one more in a set", (tree) => void tree.parts[0].frozen.add("weight")],
    ["another value in a map", (tree) => void tree.names.set("a", 2)],
    ["another date", (tree) => void tree.made.setTime(6)],
    ["another part met twice", (tree) => void (tree.first = tree.parts[1])],
    ["another owner's tree", (tree) => replaceTree(tree.parts[1], new Part(mx.zeros([3])))],
  ])("with %s are read anew", (_name, change) => {
    const tree = treeOf()
    tree.parts[0].rate = 0
    const leaves = leavesOf(tree)
    expect(leaves.stillFits(program, tree)).toBe(true)
    change(tree)
    expect(leaves.stillFits(program, tree)).toBe(false)
    // Until a look at everything says again that it fits.
    expect(leaves.stillFits(program, tree)).toBe(false)
    leaves.read(tree)
    leaves.fit(program)
    expect(leaves.stillFits(program, tree)).toBe(true)
  })

  it("keep no array where a getter throws", () => {
    let fails = false
    const tree = {
      x: mx.ones([1]),
      get y() {
        if (fails) throw new RangeError("no y")
        return 1
      },
    }
    const leaves = leavesOf(tree)
    fails = true
    expect(() => leaves.stillFits(program, tree)).toThrow("no y")
    expect(leaves.arrays).toHaveLength(0)
    expect(() => leaves.read(tree)).toThrow("no y")
    expect(leaves.arrays).toHaveLength(0)
  })
})
