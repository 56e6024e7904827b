/**
 * Captured state: what a compiled function does to the trees it reads and changes is what the function does to them.
 * It is long because state changes in many ways, a test for each.
 */
import * as mx from "@lazuli/core"
import { replaceTree } from "@lazuli/core/engine"
import { vmap } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import { compile, disableCompile, enableCompile } from "./compile"

type Tree = Record<string, unknown>

/** A tree with numbers in place of its arrays, undefined made visible. */
const shown = (tree: unknown): unknown =>
  JSON.parse(
    JSON.stringify(tree, function (this: Record<string, unknown>, key) {
      // Not what an array would be in JSON.
      const value = this[key]
      return value instanceof mx.Array ? `array ${value.tolist()}` : value === undefined ? "undefined" : value
    }),
  )

/** Changes to a tree, each as the function of an eager and a compiled run; `make` begins with a fresh tree. */
const changes: Record<string, { make: () => Tree; change: (state: Tree, x: mx.Array) => unknown }> = {
  "a key is deleted": {
    make: () => ({ a: mx.array(1), b: mx.array(2) }),
    change: (state, x) => {
      const b = state.b as mx.Array | undefined
      delete state.b
      state.a = (state.a as mx.Array).add(b ?? x)
    },
  },
  "a container is deleted": {
    make: () => ({ a: mx.array(1), cache: { k: mx.array(2), v: mx.array(3) } }),
    change: (state, x) => {
      const cache = state.cache as { k: mx.Array } | undefined
      delete state.cache
      state.a = (state.a as mx.Array).add(cache?.k ?? x)
    },
  },
  "an array becomes null": {
    make: () => ({ a: mx.array(1), b: mx.array(2) }),
    change: (state, x) => {
      state.a = ((state.b as mx.Array | null) ?? x).add(state.a as mx.Array)
      state.b = null
    },
  },
  "an array becomes a container": {
    make: () => ({ a: mx.array(1) }),
    change: (state, x) => {
      const a = state.a instanceof mx.Array ? state.a : (state.a as { value: mx.Array }).value
      state.a = { value: a.add(x) }
    },
  },
  "a list gets shorter": {
    make: () => ({ list: [mx.array(1), mx.array(2), mx.array(3), mx.array(4), mx.array(5)] }),
    change: (state, x) => {
      const list = state.list as mx.Array[]
      const first = list.shift() as mx.Array
      list[0] = list[0].add(first).add(x)
    },
  },
  "a list gets longer": {
    make: () => ({ list: [mx.array(1)] }),
    change: (state, x) => {
      const list = state.list as mx.Array[]
      list.push(x.add(list[list.length - 1]))
    },
  },
  "containers are replaced": {
    make: () => ({ opt: { m: mx.array(1), v: [mx.array(2)] } }),
    change: (state, x) => {
      const { m, v } = state.opt as { m: mx.Array; v: mx.Array[] }
      state.opt = { m: m.add(x), v: v.map((each) => each.multiply(x)) }
    },
  },
  "arrays are swapped": {
    make: () => ({ a: mx.array(1), b: mx.array(2) }),
    change: (state) => {
      const { a, b } = state
      state.a = b
      state.b = a
    },
  },
}

describe("a captured tree changes as it does without compile, call by call, when", () => {
  for (const [name, { make, change }] of Object.entries(changes))
    test.each([
      ["it is an input and an output", true],
      ["it is an output alone", false],
    ])(`${name}, and %s`, (_how, isInput) => {
      const [eager, traced] = [make(), make()]
      const step = compile((x: mx.Array) => change(traced, x), {
        ...(isInput ? { inputs: traced } : {}),
        outputs: traced,
      })
      // An array read without being an input keeps its first value, so there is one call to compare.
      for (let call = 0; call < (isInput ? 4 : 1); call++) {
        change(eager, mx.array(10 + call))
        step(mx.array(10 + call))
        expect(shown(traced)).toEqual(shown(eager))
      }
    })
})

test("deleted keys vanish at every call that finds them", () => {
  const state: Tree = { a: mx.array(1), cache: mx.array(5), list: [mx.array(1), mx.array(2)] }
  let traces = 0
  const step = compile(
    () => {
      traces++
      delete state.cache
      ;(state.list as mx.Array[]).length = 1
      state.a = (state.a as mx.Array).add(1)
    },
    { inputs: state, outputs: state },
  )
  for (let call = 1; call <= 3; call++) {
    step()
    expect(shown(state)).toEqual({ a: `array ${1 + call}`, list: ["array 1"] })
    state.cache = mx.array(5)
    state.list = [mx.array(1), mx.array(2)]
  }
  // The second call found the keys in another order.
  expect(traces).toBe(2)
})

test("an output that the function leaves alone may change between calls", () => {
  const state = { a: mx.array(1), b: mx.array(1) }
  const step = compile(
    (x: mx.Array) => {
      state.a = x
    },
    { outputs: state },
  )
  step(mx.array(2))
  state.b = mx.array(7)
  step(mx.array(3))
  expect(shown(state)).toEqual({ a: "array 3", b: "array 7" })
})

describe("what else is in a captured input", () => {
  test("is part of the program: changes make another one, and the reason names the path", () => {
    const reasons: string[] = []
    const state = { w: mx.array(3), mode: "twice", frozen: new Set<string>() }
    const f = compile(() => state.w.multiply(state.mode === "twice" ? 2 : state.frozen.size + 3), {
      inputs: [state],
      onRecompile: (reason) => reasons.push(reason),
    })
    expect([f().item(), f().item()]).toEqual([6, 6])
    state.mode = "more"
    expect([f().item(), f().item()]).toEqual([9, 9])
    state.frozen.add("w")
    expect(f().item()).toBe(12)
    state.frozen.clear()
    expect(f().item()).toBe(9)
    state.mode = "twice"
    state.w = mx.array(4)
    expect([f().item(), f.stats().traces]).toEqual([8, 3])
    state.w = mx.array([1, 2])
    f()
    Object.assign(state, { extra: mx.array(0) })
    f()
    expect(reasons).toEqual([
      "first call",
      'state[0].mode: "twice" became "more"',
      'state[0].frozen: {} became {"w"}',
      "state[0].w: float32[] became float32[2]",
      "the structure of the captured state changed at state[0].extra",
    ])
  })

  test("may be changed by the function itself, for all sizes", () => {
    const state = { calls: 0 }
    const f = compile((x: mx.Array) => x.add(++state.calls), { inputs: state, shapeless: true })
    for (const n of [1, 2, 3]) {
      state.calls = 0
      expect([f(mx.zeros([n])).tolist(), state.calls]).toEqual([new Array(n).fill(1), 1])
    }
    expect(f(mx.zeros([1])).tolist()).toEqual([2])
    expect(f.stats().traces).toBe(2)
  })

  test("may be changed by the function itself, at each call", () => {
    const state = { w: mx.array(1), calls: 0 }
    const f = compile(
      () => {
        state.calls++
        state.w = state.w.add(1)
      },
      { inputs: state, outputs: state },
    )
    for (let i = 0; i < 3; i++) f()
    expect([state.calls, state.w.item(), f.stats().traces]).toEqual([3, 4, 3])
    state.calls = 0
    f()
    expect([state.calls, f.stats()]).toEqual([1, { calls: 4, traces: 3, programs: 3 }])
  })

  test.each([
    ["an input and an output", true],
    ["an input", false],
  ])("is %s and turned by the function and by the caller, who both see it", (_how, isOutput) => {
    const state = { flip: false, w: mx.array(1) }
    const f = compile(
      (x: mx.Array) => {
        state.flip = !state.flip
        return state.flip ? x.add(1) : x.add(2)
      },
      { inputs: state, ...(isOutput ? { outputs: state } : {}) },
    )
    const seen: unknown[] = []
    for (const flip of [false, true, false, true, true, false]) {
      state.flip = flip
      seen.push(f(mx.array(0)).item(), state.flip)
    }
    expect(seen).toEqual([1, true, 2, false, 1, true, 2, false, 2, false, 1, true])
    expect(f.stats().traces).toBe(2)
  })

  test("is the class of the tree itself, whose methods the function calls", () => {
    class Doubling {
      w = mx.array(2)
      apply(x: mx.Array): mx.Array {
        return x.multiply(this.w)
      }
    }
    class Adding extends Doubling {
      override apply(x: mx.Array): mx.Array {
        return x.add(this.w)
      }
    }
    const model = new Doubling()
    const reasons: string[] = []
    const f = compile((x: mx.Array) => model.apply(x), {
      inputs: model,
      onRecompile: (reason) => void reasons.push(reason),
    })
    const call = (): unknown => f(mx.array(5)).item()
    expect([call(), call()]).toEqual([10, 10])
    Object.setPrototypeOf(model, Adding.prototype)
    expect([call(), call()]).toEqual([7, 7])
    Object.setPrototypeOf(model, Doubling.prototype)
    expect([call(), f.stats().traces]).toEqual([10, 2])
    expect(reasons[1]).toMatchInlineSnapshot(`"state: Doubling became Adding"`)
  })

  test("is set aside by the function and put back by the caller, for one trace", () => {
    class Model {
      training = true
      mode: Tree | null = { name: "a", extra: 1 }
      frozen = new Set<string>()
      w = mx.array(2)
    }
    const model = new Model()
    const f = compile(
      (x: mx.Array) => {
        const factor = model.training && model.mode?.extra ? 10 : 1
        model.training = false
        if (model.mode) delete model.mode.extra
        model.mode = null
        model.frozen.add("w")
        return x.multiply(model.w).multiply(factor)
      },
      { inputs: [model] },
    )
    for (let call = 0; call < 4; call++) {
      model.training = true
      model.mode = { name: "a", extra: 1 }
      model.frozen.clear()
      expect(f(mx.array(1)).item()).toBe(20)
      expect([model.training, model.mode, [...model.frozen]]).toEqual([false, null, ["w"]])
    }
    expect(f.stats().traces).toBe(1)
    expect([f(mx.array(1)).item(), f(mx.array(1)).item(), f.stats().traces]).toEqual([2, 2, 2])
  })

  test("is the contents of a set, a map or a date, whatever they look like as texts", () => {
    const state = { set: new Set<unknown>(), map: new Map<string, unknown>(), date: new Date(0) }
    const f = compile(
      (x: mx.Array) => {
        const first = [...state.set].map((element) => (typeof element === "string" ? 100 : 1))
        const sum = first.reduce((a, b) => a + b, 0)
        return x.add(sum + Number(state.map.get("n") ?? 0) + state.date.getTime())
      },
      { inputs: state },
    )
    const fill = (...elements: unknown[]): unknown => {
      state.set.clear()
      for (const element of elements) state.set.add(element)
      return f(mx.array(0)).item()
    }
    const sets = () => [fill(1), fill("1"), fill("a,b"), fill("a", "b"), fill("{}"), fill()]
    expect(sets()).toEqual([1, 100, 100, 200, 100, 0])
    expect(sets()).toEqual([1, 100, 100, 200, 100, 0])
    expect(f.stats().traces).toBe(6)
    state.map.set("n", 5)
    expect(f(mx.array(0)).item()).toBe(5)
    state.map.set("n", 6)
    expect(f(mx.array(0)).item()).toBe(6)
    state.date.setTime(1000)
    expect(f(mx.array(0)).item()).toBe(1006)
    expect([f(mx.array(1)).item(), f.stats().traces]).toEqual([1007, 9])
  })

  test("may be a set, a map or a date that the function changes in place, and gets back where it throws", () => {
    const [set, map, date] = [new Set([1]), new Map([["n", 1]]), new Date(1)]
    const state = { set, map, date }
    const shownNow = (): unknown => [[...set], [...map], date.getTime()]
    let broken = true
    const f = compile(
      (x: mx.Array) => {
        const n = map.get("n") as number
        set.delete(n)
        set.add(n + 1)
        map.set("n", n + 1)
        date.setTime(n + 1)
        if (broken) throw new RangeError("broken")
        return x.add(n)
      },
      { inputs: state },
    )
    const first = shownNow()
    expect(() => f(mx.array(0))).toThrow(RangeError)
    expect(shownNow()).toEqual(first)
    broken = false
    for (let call = 0; call < 3; call++) {
      set.clear()
      set.add(1)
      map.set("n", 1)
      date.setTime(1)
      expect([f(mx.array(0)).item(), shownNow()]).toEqual([1, [[2], [["n", 2]], 2]])
    }
    expect([state.set === set, state.map === map, state.date === date, f.stats().traces]).toEqual([
      true,
      true,
      true,
      1,
    ])
  })

  test.each<[string, unknown]>([
    ["Float32Array", new Float32Array(2)],
    ["DataView", new DataView(new ArrayBuffer(2))],
    ["ArrayBuffer", new ArrayBuffer(2)],
    ["SharedArrayBuffer", new SharedArrayBuffer(2)],
    ["Set", new Set([{}])],
    ["Map", new Map([["a", [1]]])],
  ])("is no %s that could change unseen", (kind, value) => {
    const state: Tree = { deep: { w: mx.array(1), value: 1 } }
    const f = compile((x: mx.Array) => x, { inputs: state })
    f(mx.array(1))
    ;(state.deep as Tree).value = value
    const refusal = new RegExp(
      `^\\[compile\\] the captured state.deep.value is a value of type ${kind}, whose contents`,
    )
    expect(() => f(mx.array(1))).toThrow(refusal)
    expect(() => compile((x: mx.Array) => x, { inputs: state })(mx.array(1))).toThrow(mx.TransformError)
    // Of what is an output alone, nothing is part of the program.
    if (kind !== "Map" && kind !== "Set")
      expect(compile((x: mx.Array) => x, { outputs: state })(mx.array(1)).item()).toBe(1)
  })

  test("holds no array of a trace where it is no output", () => {
    const state: Tree = { cache: null, w: mx.array(1) }
    const f = compile(
      (x: mx.Array) => {
        state.cache = x.add(1)
        return x
      },
      { inputs: state },
    )
    for (let call = 0; call < 3; call++) f(mx.array(call))
    expect(shown(state)).toEqual({ cache: null, w: "array 1" })
    expect(f.stats().traces).toBe(1)
  })

  test("and what the function puts there is left alone by an explanation", () => {
    const state: Tree = { flip: false, w: mx.array(1) }
    const f = compile(
      (x: mx.Array) => {
        state.flip = !state.flip
        state.w = x
        state.fresh = x
        return x.add(state.flip ? 1 : 2)
      },
      { inputs: state, outputs: state },
    )
    f.explain(mx.array(5))
    expect(shown(state)).toEqual({ flip: false, w: "array 1" })
    expect(f(mx.array(5)).item()).toBe(6)
    expect(shown(state)).toEqual({ flip: true, w: "array 5", fresh: "array 5" })
    expect(f.stats().traces).toBe(1)
  })
})

test.each([[false], [true]])(
  "an output that the function fills needs no more programs (shapeless: %s)",
  (shapeless) => {
    const state: Tree = {}
    const f = compile(
      (x: mx.Array) => {
        state.y = x.add(1)
        return x
      },
      { outputs: state, shapeless },
    )
    for (const n of [2, 3, 2, 3, 2, 3]) {
      f(mx.zeros([n]))
      expect((state.y as mx.Array).shape).toEqual([n])
    }
    delete state.y
    f(mx.zeros([2]))
    expect((state.y as mx.Array).shape).toEqual([2])
    expect(f.stats()).toEqual({ calls: 7, traces: shapeless ? 1 : 2, programs: 2 })
  },
)

test("an output alone that is updated in place has its new value, and none if the function throws", () => {
  const state = { c: mx.array([1, 2]) }
  const kept = state.c
  let broken = true
  const f = compile(
    (x: mx.Array) => {
      state.c.set([0], x)
      if (broken) throw new RangeError("broken")
    },
    { outputs: state },
  )
  expect(() => f(mx.array(5))).toThrow(RangeError)
  expect(kept.tolist()).toEqual([1, 2])
  broken = false
  for (const value of [5, 6]) {
    f(mx.array(value))
    expect(state.c.tolist()).toEqual([value, 2])
  }
  expect(kept.tolist()).toEqual([1, 2])
})

test("an output alone that is updated in place and evaluated in the trace shows what it showed", () => {
  const state = { c: mx.array([1, 2]) }
  const kept = state.c
  const f = compile(
    () => {
      state.c.set([0], 5)
      mx.eval(state.c)
      state.c.set([1], 6)
    },
    { outputs: state },
  )
  f()
  expect([kept.tolist(), state.c.tolist()]).toEqual([
    [1, 2],
    [5, 6],
  ])
})

/** Calls for which no program is made: a function, a name and how it is called with a new one. */
type Call = (f: (x: mx.Array, n: number) => mx.Array) => mx.Array
const unplanned: [string, Call][] = [
  ["with one more number than get a program", (f) => f(mx.array(1), 17)],
  ["under vmap", (f) => vmap((x: mx.Array) => f(x, 0))(mx.ones([1]))],
  ["in a compiled function", (f) => compile((x: mx.Array) => f(x, 0))(mx.array(1))],
  ["in one for any sizes", (f) => compile((x: mx.Array) => f(x, 0), { shapeless: true })(mx.array(1))],
  [
    "where nothing is compiled",
    (f) => {
      disableCompile()
      try {
        return f(mx.array(1), 0)
      } finally {
        enableCompile()
      }
    },
  ],
]

describe.each(unplanned)("a function called %s", (how, call) => {
  type Options = { outputs: boolean }
  /** A compiled function of such a state, which has been called for other numbers where `call` takes one more. */
  const make = (body: (state: Tree, x: mx.Array) => unknown, { outputs }: Options = { outputs: true }) => {
    const q = mx.zeros([2])
    const state: Tree = { a: q, b: q }
    let calls = 0
    const f = compile(
      (x: mx.Array, _n: number) => {
        calls++
        return body(state, x) as mx.Array
      },
      { inputs: [state, mx.random.state], ...(outputs ? { outputs: [state, mx.random.state] } : {}) },
    )
    const isNumber = how.includes("number")
    for (let n = 0; isNumber && n < 16; n++) {
      f(mx.array(1), n)
      state.a = state.b = q
    }
    const before = calls
    return { state, q, f, called: () => calls - before, programs: () => f.stats().programs }
  }

  test("changes by `set` neither what was captured nor the same array elsewhere in the state", () => {
    const { state, q, f, called, programs } = make((state, x) => {
      const [a, b] = [state.a as mx.Array, state.b as mx.Array]
      a.set([0], 5)
      return a.add(b).sum().multiply(x)
    })
    const planned = programs()
    const result = call(f)
    expect([called(), programs()]).toEqual([1, planned])
    expect(result.sum().item()).toBe(5)
    expect(shown(state)).toEqual({ a: "array 5,0", b: "array 0,0" })
    expect(q.tolist()).toEqual([0, 0])
    expect([state.a === q, state.b === q]).toEqual([false, false])
  })

  test("leaves state alone that is an input and no output", () => {
    const { state, q, f } = make(
      (state) => {
        state.a = (state.a as mx.Array).add(1)
        state.extra = state.a
        return (state.a as mx.Array).sum()
      },
      { outputs: false },
    )
    expect(call(f).sum().item()).toBe(2)
    expect(Object.keys(state)).toEqual(["a", "b"])
    expect([state.a === q, state.b === q]).toEqual([true, true])
  })

  test("leaves captured trees as they were where it throws", () => {
    let broken = false
    const { state, q, f } = make((state, x) => {
      ;(state.b as mx.Array).set([0], x)
      state.a = mx.random.normal([2]).add(x)
      if (!broken) return x
      state.extra = 1
      throw new RangeError("broken")
    })
    const [key] = mx.random.state
    broken = true
    expect(() => call(f)).toThrow(RangeError)
    expect(shown(state)).toEqual({ a: "array 0,0", b: "array 0,0" })
    expect([state.a === q, state.b === q, mx.random.state[0] === key]).toEqual([true, true, true])
  })
})

test("a tree that its owner replaced is followed, and back", () => {
  const owner = {
    values: { a: mx.array(1) },
    set(values: { a: mx.Array }): void {
      replaceTree(this.values, values)
      this.values = values
    },
  }
  const first = owner.values
  const state = [owner.values]
  let traces = 0
  const step = compile(
    () => {
      traces++
      owner.values.a = owner.values.a.multiply(2)
      return owner.values.a
    },
    { inputs: state, outputs: state },
  )
  step()
  const second = { a: mx.array(10) }
  owner.set(second)
  expect(step().item()).toBe(20)
  expect([first.a.item(), second.a.item()]).toEqual([2, 20])
  owner.set(first)
  expect(step().item()).toBe(4)
  expect([first.a.item(), second.a.item(), traces]).toEqual([4, 20, 1])
})

describe("a function that throws", () => {
  const make = () => ({ a: mx.array(1), deep: { list: [mx.array(2), mx.array(3)] }, n: 0 })
  test.each([
    ["at its first trace", {}],
    ["at its first shapeless trace", { shapeless: true }],
  ])("%s leaves everything as it was, and may be called again", (_when, options) => {
    const state = make()
    const { a, deep } = state
    const arrays = [...deep.list]
    let broken = true
    const step = compile(
      (x: mx.Array) => {
        state.a = state.a.add(x)
        state.deep = { list: [x] }
        ;(state as Tree).fresh = x
        deep.list.pop()
        state.n++
        if (broken) throw new RangeError("broken")
        return state.a
      },
      { inputs: state, outputs: state, ...options },
    )
    expect(() => step(mx.array(1))).toThrow(RangeError)
    expect(Object.keys(state)).toEqual(["a", "deep", "n"])
    expect([state.a === a, state.deep === deep, state.n]).toEqual([true, true, 0])
    expect(deep.list.map((array, i) => array === arrays[i])).toEqual([true, true])
    expect(step.stats()).toEqual({ calls: 1, traces: 0, programs: 0 })
    broken = false
    expect(step(mx.array(1)).item()).toBe(2)
  })

  test("for other sizes leaves the state as it was", () => {
    const state = { w: mx.array([1, 2]) }
    const step = compile(
      (x: mx.Array) => {
        state.w = state.w.add(x.reshape([2]))
        return state.w
      },
      { inputs: state, outputs: state, shapeless: true },
    )
    step(mx.ones([1, 2]))
    const { w } = state
    expect(() => step(mx.ones([3, 2]))).toThrow("[reshape] cannot reshape")
    expect(state.w).toBe(w)
    expect(step(mx.ones([2, 1])).tolist()).toEqual([3, 4])
  })

  test("when it looks at a value leaves the random state as it was", () => {
    mx.random.seed(3)
    const want = mx.random.normal([2]).tolist()
    mx.random.seed(3)
    const draw = compile(() => mx.random.normal().item(), {
      inputs: mx.random.state,
      outputs: mx.random.state,
    })
    expect(() => draw()).toThrow(/has no value yet/)
    expect(mx.random.normal([2]).tolist()).toEqual(want)
  })
})

test("two functions interleaved with evaluation in the background keep their states apart", async () => {
  const make = (factor: number) => {
    const state = { total: mx.zeros([3]) }
    const step = compile(
      (x: mx.Array) => {
        state.total = state.total.add(x.multiply(factor))
        return state.total.sum()
      },
      { inputs: state, outputs: state },
    )
    return { state, step }
  }
  const [one, two] = [make(1), make(2)]
  const pending: Promise<void>[] = []
  const sums: mx.Array[] = []
  for (let i = 1; i <= 20; i++) {
    sums.push(one.step(mx.full([3], i)), two.step(mx.full([3], i)))
    pending.push(mx.asyncEval(sums, i % 2 ? one.state : two.state))
    if (i % 5 === 0) await pending[pending.length - 1]
  }
  await Promise.all(pending)
  const total = (i: number): number => (i * (i + 1)) / 2
  expect(sums.map((s) => s.item())).toEqual(
    sums.map((_, k) => 3 * (1 + (k % 2)) * total(Math.floor(k / 2) + 1)),
  )
  expect(two.state.total.tolist()).toEqual([420, 420, 420])
})

test("numbers that alternate find their programs, whatever happens to the state in between", () => {
  const state: Record<string, mx.Array> = { w: mx.array([1, 2]) }
  const f = compile(
    (x: mx.Array, n: number) => {
      state.w = state.w.multiply(n).add(x)
      return state.w.sum()
    },
    { inputs: state, outputs: state },
  )
  let want = [1, 2]
  const call = (n: number): void => {
    want = want.map((v) => v * n + 1)
    expect(f(mx.array([1, 1]), n).item()).toBe(want[0] + want[1])
    expect(state.w.tolist()).toEqual(want)
  }
  for (const n of [0, 1, 0, 1, 2, 0, 2, 1]) call(n)
  expect(f.stats()).toMatchObject({ traces: 3, programs: 3 })
  state.other = mx.zeros([1])
  for (const n of [0, 1, 0]) call(n)
  expect(f.stats().traces).toBe(5)
  delete state.other
  for (const n of [0, 1, 2]) call(n)
  expect(f.stats().traces).toBe(5)
  state.w = mx.array([1, 2])
  want = [1, 2]
  for (const n of [1, 0, 1]) call(n)
  expect(f.stats()).toMatchObject({ traces: 5, programs: 5 })
})

test("more numbers in turn than are remembered, and then two, find their programs", () => {
  const f = compile((x: mx.Array, n: number) => x.add(n))
  const call = (n: number): void => expect(f(mx.array([1, 2]), n).tolist()).toEqual([1 + n, 2 + n])
  for (let k = 0; k < 60; k++) call(k % 12)
  for (let k = 0; k < 140; k++) call(k % 2)
  expect(f.stats()).toEqual({ calls: 200, traces: 12, programs: 12 })
})
