/** Plans run by the addon alone: bindings, the arena, nested plans and their checks. */
import { afterEach, describe, expect, it } from "vitest"
import { alloc, map, type Operand, plan, program, run } from "../test/command-assembler"
import { bitsOf, commandBench, random } from "../test/command-bench"
import { native } from "./native"

const { execute, newId, put, get, release, ok } = commandBench({ words: 1 << 20, firstId: 0 })
afterEach(() => {
  release()
})

describe("plans", () => {
  const operand = (s: number, offset = 0, n = 256): Operand => ({
    id: s,
    dtype: "float32",
    shape: [n],
    offset,
  })
  const add = program(["float32", "float32"], [["add", "float32", [0, 1]]])
  const scale = program(["float32", "float32"], [["multiply", "float32", [0, 1]]])

  it("replay a recorded commands on new inputs, nested ones too", () => {
    // Bindings: 0 input, 1 output, 2 arena.
    const double = native.registerPlan(
      new BigInt64Array(
        [
          map(add, [operand(0), operand(0)], [operand(2, 1024)]),
          map(scale, [operand(2, 1024), { bits: bitsOf(0.5), dtype: "float32" }], [operand(2)]),
          map(add, [operand(2), operand(2, 1024)], [operand(1)]),
        ].flat(),
      ),
      1,
      1,
      2048,
    )
    const outer = native.registerPlan(
      new BigInt64Array([plan(double, [[0, 0]], [[2, 0]]), plan(double, [[2, 0]], [[1, 0]])].flat()),
      1,
      1,
      1024,
    )
    const x = random(256, -1, 1)
    const xs = put(new Float32Array([9, 9, ...x]))
    const y = newId()
    for (let round = 1; round < 4; round++) {
      ok(alloc(y, 1024), plan(double, [[xs, 8]], [[y, 0]]))
      expect(get(y, new Float32Array(256))).toEqual(x.map((v) => v + 2 * v))
      ok(alloc(y, 1024), plan(outer, [[xs, 8]], [[y, 0]]))
      expect(get(y, new Float32Array(256))).toEqual(x.map((v) => Math.fround(v + 2 * v) * 3))
    }
    native.releasePlan(double)
    ok(plan(outer, [[xs, 8]], [[y, 0]]))
    expect(execute(plan(double, [[xs, 8]], [[y, 0]]))).toBe(1)
    expect(native.failures()[0].message).toBe(`there is no plan ${double}`)
  })

  it("take any number of inputs", () => {
    const n = 400
    const words: bigint[] = []
    for (let i = 0; i < n; i++)
      words.push(...map(add, [operand(i, 0, 1), operand(n, 0, 1)], [operand(n, 0, 1)]))
    const id = native.registerPlan(new BigInt64Array(words), n, 1, 0)
    const ids = Array.from({ length: n }, (_, i) => put(new Float32Array([i])))
    const y = put(new Float32Array(1))
    ok(
      plan(
        id,
        ids.map((s) => [s, 0]),
        [[y, 0]],
      ),
    )
    expect(get(y, new Float32Array(1))[0]).toBe((n * (n - 1)) / 2)
  })

  it("are checked when registered and when run", () => {
    const words = (r: bigint[]) => new BigInt64Array(r)
    expect(() =>
      native.registerPlan(words(map(add, [operand(0), operand(0)], [operand(1)])), 1, 0, 16),
    ).toThrow("records reach 1024 bytes of an arena of 16")
    expect(() =>
      native.registerPlan(words(map(add, [operand(7), operand(0)], [operand(1)])), 1, 1, 0),
    ).toThrow("binding 7 is out of range")
    expect(() => native.registerPlan(words(alloc(0, 8)), 1, 1, 0)).toThrow(
      "a plan cannot hold records of opcode 1",
    )
    expect(() => native.registerPlan(words(run(4000, [], [operand(0)])), 1, 1, 0)).toThrow(
      "there is no kernel 4000",
    )
    const id = native.registerPlan(words(map(add, [operand(0), operand(0)], [operand(1)])), 1, 1, 0)
    const small = put(new Float32Array(4))
    const y = put(new Float32Array(256))
    expect(execute(plan(id, [[small, 0]], [[y, 0]]))).toBe(1)
    expect(native.failures()[0].message).toMatch(
      "the plan's binding 0 needs 1024 bytes from offset 0 of a buffer of 64",
    )
    expect(native.poisoned().map(({ id }) => id)).toEqual([y])
    expect(execute(plan(id, [[small, 0]], []))).toBe(1)
    expect(native.failures()[0].message).toMatch("takes 2 buffers with offsets")
    const z = newId()
    ok(alloc(z, 1024))
    expect(execute(plan(id, [[y, 0]], [[z, 0]]))).toBe(0)
    expect(native.poisoned().map(({ id }) => id)).toEqual([z])
    ok(alloc(y, 2048))
    expect(execute(plan(id, [[y, 2]], [[z, 0]]))).toBe(1)
    expect(native.failures()[0].message).toMatch(
      "offset 2 of the plan's binding 0 is negative or not aligned",
    )
  })
})
