/** What a compiled function is traced for, and that a trace leaves nothing behind. Plans are tested where a backend records them. */
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import fc from "fast-check"
import { describe, expect, test, vi } from "vitest"
import { compile } from "./compile"

const one = mx.ones([1])

/** Trees without arrays in their keys: lists, objects with awkward names, numbers. */
const { tree } = fc.letrec((tie) => ({
  tree: fc.oneof(
    { maxDepth: 3 },
    fc.constant(one),
    fc.integer({ min: 0, max: 2 }),
    fc.array(tie("tree"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom("a", "b", "a.b", "0", "1"), tie("tree"), { maxKeys: 3 }),
  ),
}))

const shape = (value: unknown): string =>
  JSON.stringify(value, (_key, v: unknown) => (v instanceof mx.Array ? "array" : v))

describe("the programs of a function", () => {
  test("differ exactly where the structure of the arguments differs", () => {
    fc.assert(
      fc.property(tree, tree, (x, y) => {
        let traces = 0
        const f = compile((_value: unknown) => {
          traces++
          return one
        })
        f(x)
        f(y)
        expect(traces).toBe(shape(x) === shape(y) ? 1 : 2)
      }),
    )
  })

  test("belong to the places of captured state, not to its order", () => {
    const state: Record<string, mx.Array> = { a: mx.array(1), b: mx.array(5) }
    const step = compile(
      () => {
        state.a = state.a.add(1)
        return state.a
      },
      { inputs: state, outputs: state },
    )
    step()
    const { a, b } = state
    delete state.a
    delete state.b
    state.b = b
    state.a = a
    step()
    expect([state.a.item(), state.b.item()]).toEqual([3, 5])
  })
})

describe("compiling", () => {
  test("a function again in the same way shares its programs", () => {
    let traces = 0
    const f = (x: mx.Array): mx.Array => {
      traces++
      return x.add(1)
    }
    compile(f)(one)
    compile(f)(one)
    expect(traces).toBe(1)
    compile(f, { shapeless: true })(one)
    expect(traces).toBe(2)
  })

  test("is left out by an environment variable", async () => {
    vi.stubEnv("LAZULI_DISABLE_COMPILE", "1")
    vi.resetModules()
    const other = await import("./compile")
    let runs = 0
    const f = other.compile(() => ++runs)
    expect([f(), f()]).toEqual([1, 2])
    other.enableCompile()
    expect([f(), f()]).toEqual([3, 3])
    vi.unstubAllEnvs()
    vi.resetModules()
  })

  test("refuses unknown options, async functions, and arguments whose contents could change unseen", () => {
    const f = (x: unknown): unknown => x
    expect(() => compile(f, { shapless: true } as object)).toThrow(
      /no option "shapless".*Did you mean "shapeless"/,
    )
    expect(() => compile(async (x: unknown) => x)(one)).toThrow(/is async/)
    for (const value of [new Map(), new Float32Array(2), new (class Holder {})()])
      expect(() => compile(f)(value)).toThrow(/arguments are trees of arrays and constants/)
  })

  test("tells constants of equal looks apart", () => {
    const f = compile((x: mx.Array, key: symbol) => (key === first ? x.add(1) : x))
    const first = Symbol("key")
    expect([f(one, first).item(), f(one, Symbol("key")).item()]).toEqual([2, 1])
  })
})

describe("a trace", () => {
  test("that fails puts captured outputs back", () => {
    const state = { a: mx.array(1) } as Record<string, mx.Array>
    const f = compile(
      (x: mx.Array) => {
        state.a = x.add(1)
        state.fresh = x
        throw new Error("no")
      },
      { outputs: state },
    )
    expect(() => f(mx.array(2))).toThrow("no")
    expect(Object.keys(state)).toEqual(["a"])
    expect(state.a.item()).toBe(1)
  })

  test("leaves no array without a value in a tree that is only read", () => {
    const state = { w: mx.array(2) } as Record<string, mx.Array>
    const f = compile(
      (x: mx.Array) => {
        state.cached = state.w.multiply(x)
        return state.cached
      },
      { inputs: state },
    )
    expect(f(mx.array(3)).item()).toBe(6)
    expect(Object.keys(state)).toEqual(["w"])
  })

  test("may add to captured outputs", () => {
    const state = {} as { moments?: { m: mx.Array }[] }
    const f = compile(
      (x: mx.Array) => {
        state.moments ??= [{ m: mx.zeros([]) }]
        state.moments[0].m = state.moments[0].m.add(x)
        return x
      },
      { inputs: state, outputs: state },
    )
    for (let i = 1; i <= 3; i++) f(mx.array(i))
    expect(state.moments?.[0].m.item()).toBe(6)
  })

  test("refuses to bake in an array that another transform is tracing", () => {
    let w = mx.array([0, 0])
    const f = compile((x: mx.Array) => x.multiply(w))
    const g = (v: number): mx.Array =>
      grad((u: mx.Array) => {
        w = u
        return f(mx.array([1, 2])).sum()
      })(mx.array([v, v]))
    expect(() => g(1)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [compile] the function uses an array of another trace, which it did not get as an argument. Pass it as an argument, or name the tree that holds it in \`inputs\`]`,
    )
  })
})
