/**
 * The arguments that a compiled function is traced for, and that a trace leaves nothing behind. Plans are tested where a backend records
 * them.
 */
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import fc from "fast-check"
import { describe, expect, test, vi } from "vitest"
import { compile, disableCompile, enableCompile } from "./compile"

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
  JSON.stringify(value, function (this: Record<string, unknown>, key, v: unknown) {
    return this[key] instanceof mx.Array ? "array" : v
  })

test("a number that changes at every call runs the function as it is written, unless it comes again", () => {
  const bits = (x: mx.Array): number[] => [...new Int32Array((x.toTypedArray() as Float32Array).buffer)]
  const make = () => ({ rate: 0, w: mx.array([1, 2, 3]) })
  const stepOf = (state: ReturnType<typeof make>) => (x: mx.Array, n: number) => {
    state.w = state.w.subtract(x.multiply(state.rate))
    return [x.add(n).multiply(state.w), state.w]
  }
  const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
  for (const where of ["argument", "state"]) {
    const [traced, eager] = [make(), make()]
    const step = compile(stepOf(traced), { inputs: traced, outputs: traced, donate: true })
    const written = stepOf(eager)
    const kept: [mx.Array, number[]][] = []
    const call = (n: number): void => {
      for (const state of [traced, eager]) state.rate = where === "state" ? n / 7 : 0.1
      const [x, k] = [mx.array([0.1, 0.2, 0.3]), where === "argument" ? n / 3 : 1]
      const [got, want] = [step(x, k), written(x, k)]
      expect(got.map(bits)).toEqual(want.map(bits))
      expect(bits(traced.w)).toEqual(bits(eager.w))
      got.forEach((array, i) => void kept.push([array, bits(want[i])]))
    }
    for (let n = 0; n < 40; n++) call(n)
    expect([where, step.stats()]).toEqual([where, { calls: 40, traces: 16, programs: 16 }])
    // Known ones have their programs still, and what comes again gets one.
    for (const n of [3, 30, 30, 30, 31, 3]) call(n)
    expect([where, step.stats().traces]).toEqual([where, 18])
    // Results stay as they are, though calls give up the state that some of them were.
    traced.w.set([0], 0)
    for (const [array, was] of kept) expect(bits(array)).toEqual(was)
  }
  expect(warn).toHaveBeenCalledTimes(2)
  warn.mockRestore()
})

test("more numbers in turn than programs are kept drop none of them, and those that come again soon get one", () => {
  const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
  const f = compile((x: mx.Array, n: number) => x.add(n))
  const call = (n: number): void => expect(f(mx.array([1]), n).tolist()).toEqual([1 + n])
  for (let k = 0; k < 500; k++) call(k % 100)
  expect(f.stats()).toEqual({ calls: 500, traces: 64, programs: 64 })
  for (let k = 0; k < 30; k++) call(1000 + (k % 10))
  expect(f.stats()).toMatchObject({ traces: 74, programs: 64 })
  warn.mockRestore()
})

test("a number that stays the same does not keep new sizes from being traced", () => {
  const f = compile((x: mx.Array, n: number) => x.add(n))
  const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
  for (let n = 1; n < 30; n++) f(mx.ones([n]), 2)
  expect(f.stats().traces).toBe(29)
  warn.mockRestore()
})

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

  test("are those of equal constants, and differ for others", () => {
    const seen: unknown[] = []
    const f = compile((value: unknown, x: mx.Array) => {
      seen.push(value)
      return x
    })
    const named = (): number => 1
    const kinds = [0, -0, 1, 11, 1n, "1", true, null, undefined, Number.NaN, mx.float32, named, mx.cpu]
    const values = (): unknown[] => [...kinds, mx.complex(1, 2), mx.complex(1, -0), mx.s(1, null), mx.s(0, 1)]
    for (const value of [...values(), ...values()]) f(value, one)
    expect(seen).toHaveLength(values().length)
  })

  test("differ where numbers stand beside other dtypes and sizes", () => {
    const f = compile((k: number, list: unknown[], x: mx.Array) => [mx.zeros([k]), list.length, x.dtype.name])
    let programs = 0
    for (const k of [0, 1, 2, 10, 11])
      for (const length of [0, 1])
        for (const dtype of [mx.bool_, mx.uint8, mx.uint16, mx.float32, mx.int32, mx.complex64, mx.float64]) {
          const [zeros, count, name] = f(k, new Array(length).fill(1), mx.ones([1], dtype))
          expect([(zeros as mx.Array).shape, count, name]).toEqual([[k], length, dtype.name])
          expect(f.stats().traces).toBe(++programs)
        }
  })

  test("belong to the fields of registered classes too", () => {
    class Scale {
      constructor(
        public weight: mx.Array,
        public inverse: boolean,
        public tags = new Set<string>(),
      ) {}
    }
    mx.registerTreeNode(Scale, {
      flatten: ({ weight }) => ({ weight }),
      unflatten: ({ inverse, tags }, { weight }) => new Scale(weight as mx.Array, inverse, tags),
    })
    const f = compile((scale: Scale, x: mx.Array) =>
      scale.inverse || scale.tags.has("inverse") ? x.divide(scale.weight) : x.multiply(scale.weight),
    )
    const scale = new Scale(mx.array(2), false)
    const x = mx.array(8)
    expect([f(scale, x).item(), f(scale, x).item(), f.stats().traces]).toEqual([16, 16, 1])
    scale.inverse = true
    expect(f(scale, x).item()).toBe(4)
    scale.inverse = false
    scale.tags.add("inverse")
    expect(f(scale, x).item()).toBe(4)
    scale.tags.clear()
    expect([f(scale, x).item(), f.stats().traces]).toEqual([16, 3])
  })

  test("belong to the paths of captured state, not to its order", () => {
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
    compile(f, { shapeless: false, donate: [] })(one)
    expect(traces).toBe(1)
    compile(f, { shapeless: true })(one)
    expect(traces).toBe(2)
    const state = { a: one }
    for (let i = 0; i < 3; i++) compile(f, { inputs: state, outputs: state })(one)
    expect(traces).toBe(3)
    expect(compile(f).name).toBe("f")
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

  test("refuses options of the wrong kind", () => {
    const cases: [object, RegExp][] = [
      [{ inputs: one }, /inputs must be a tree.*received an array itself. Keep it in a list/],
      [{ outputs: 3 }, /outputs must be a tree.*received the number 3/],
      [{ inputs: new Map([["a", one]]) }, /received a value of type Map/],
      [{ shapeless: 1 }, /shapeless must be a boolean/],
      [{ onRecompile: "log" }, /onRecompile must be a function/],
    ]
    for (const [options, message] of cases) expect(() => compile(() => one, options)).toThrow(message)
    const hidden = compile(() => one, { inputs: { cache: new Map([["a", one]]) } })
    expect(() => hidden()).toThrow(/the captured state.cache is a Map that holds arrays/)
    const frozen = compile(() => one, { inputs: [Object.freeze({ a: one })] })
    expect(() => frozen()).toThrow(/the captured state\[0\].a cannot be replaced.*frozen/)
  })

  test("refuses trees that contain themselves", () => {
    const tree: { x: mx.Array; self?: unknown } = { x: one }
    tree.self = [tree]
    expect(() => compile((t: object) => t)(tree)).toThrow(/argument 0.self\[0\] contains itself/)
    expect(() =>
      compile((x: mx.Array) => {
        const out: Record<string, unknown> = { x }
        out.self = out
        return out
      })(one),
    ).toThrow(/the result.self contains itself/)
  })

  test("refuses results that calls could not give again", () => {
    class Pair {
      constructor(readonly first: mx.Array) {}
    }
    const cases: [(x: mx.Array) => unknown, RegExp][] = [
      [(x) => [x, new Pair(x.add(1))], /the result\[1\] is an instance of Pair.*registerTreeNode/],
      [(x) => new Map([["y", x.add(1)]]), /the result is an instance of Map/],
      [
        function* (x) {
          yield x
        },
        /the result is an iterator/,
      ],
      [(x) => ({ later: Promise.resolve(x) }), /the result.later is a promise/],
    ]
    for (const [f, message] of cases) expect(() => compile(f)(one)).toThrow(message)
    const kept = new Pair(one)
    expect(compile(() => kept)()).toBe(kept)
  })

  test("tells constants of equal looks apart", () => {
    const f = compile((x: mx.Array, key: symbol) => (key === first ? x.add(1) : x))
    const first = Symbol("key")
    expect([f(one, first).item(), f(one, Symbol("key")).item()]).toEqual([2, 1])
  })
})

describe("arguments that are updated in place", () => {
  const add = (x: mx.Array, by: mx.Array): mx.Array => {
    x.set([0], by)
    return x.add(by)
  }
  test.each([{}, { shapeless: true }])("stay for the caller what they were, with %o", (options) => {
    const f = compile(add, options)
    for (const n of [3, 3, 2]) {
      const x = mx.ones([n])
      expect(f(x, mx.array(5)).tolist()).toEqual(add(mx.ones([n]), mx.array(5)).tolist())
      expect(x.tolist()).toEqual(mx.ones([n]).tolist())
    }
    expect(f.stats().traces).toBe("shapeless" in options ? 1 : 2)
  })

  test("stay so where one array is given twice, inside another trace, and where nothing is compiled", () => {
    const twice = compile((x: mx.Array, y: mx.Array) => {
      x.set([0], 7)
      return y.add(0)
    })
    const x = mx.ones([2])
    const expectSame = (): void =>
      expect([twice(x, x).tolist(), x.tolist()]).toEqual([
        [1, 1],
        [1, 1],
      ])
    expectSame()
    const outer = compile((v: mx.Array) => {
      twice(v, v)
      return v
    })
    expect(outer(x).tolist()).toEqual([1, 1])
    disableCompile()
    try {
      expectSame()
    } finally {
      enableCompile()
    }
  })

  test("have derivatives", () => {
    const f = compile((x: mx.Array) => {
      x.set([0], 3)
      return x.square().sum()
    })
    f(mx.ones([2]))
    expect(grad(f)(mx.ones([2])).tolist()).toEqual([0, 2])
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
      `[TransformError: [compile] the function uses an array from another trace, which was not passed to it as an argument. Pass it as an argument, or name the tree that holds it in \`inputs\`. If an earlier compiled call left it in a variable, it never gets a value: name the tree that holds it in that function's \`outputs\`]`,
    )
  })
})

test("symbols are constants by identity, registered ones by name", () => {
  const f = compile((x: mx.Array, s: symbol) => x.add(s.description === "a" ? 1 : 2))
  const [one, other] = [Symbol("a"), Symbol("a")]
  const calls = [one, other, Symbol.for("a"), Symbol.for("a"), Symbol.for("b"), Symbol.iterator, one, other]
  expect(calls.map((s) => f(mx.array(0), s).item())).toEqual([1, 1, 1, 1, 2, 2, 1, 1])
  expect(f.stats().traces).toBe(5)
})

test("a selection made outside is good for every trace", () => {
  const selection = mx.zeros([3]).at(0)
  const f = compile((v: mx.Array) => selection.add(v))
  expect(f(mx.array(1)).tolist()).toEqual([1, 0, 0])
  expect(f(mx.array([2])).tolist()).toEqual([2, 0, 0])
})
