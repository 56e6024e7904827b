/** One trace for all sizes: the function runs once, and again where it looks at sizes itself. */
import * as mx from "@lazuli/core"
import {
  checkpoint,
  customFunction,
  grad,
  hessian,
  jacfwd,
  jacrev,
  jvp,
  linearize,
  valueAndGrad,
  vmap,
} from "@lazuli/transforms"
import { describe, expect, test, vi } from "vitest"
import { compile } from "./compile"

type Unary = (x: mx.Array) => mx.Array

const numbers = (shape: number[]): mx.Array =>
  mx
    .arange(shape.reduce((a, b) => a * b, 1))
    .multiply(0.37)
    .sin()
    .reshape(shape)

const functions: Record<string, Unary> = {
  broadcasting: (x) => x.add(x.sum(0, true)).divide(x.max(-1, true)),
  means: (x) => x.subtract(x.mean(0)).square().mean(-1).sqrt(),
  "variance and softmax": (x) => x.softmax(-1).multiply(x.var(1, true)),
  flatten: (x) => x.flatten().square(),
  "reshape with -1": (x) => x.reshape([-1, 1]).exp(),
  slices: (x) => x.index(":", "1:").subtract(x.index(":", ":-1")),
  reversed: (x) => x.index("::-1", "::2"),
  "indices from the end": (x) => x.index(-1).add(x.index("...", -2).sum()),
  gathers: (x) => x.index([0, -1, 1]).multiply(x.take(mx.array([1, 0], mx.int32), 1).sum()),
  "updates in place": (x) => {
    const y = x.multiply(1)
    y.set(["1:", 0], 7)
    return y.at(0).add(y.index(-1))
  },
  sorting: (x) => x.sort(0).add(x.argsort(1).astype(mx.float32)),
  scans: (x) => x.cumsum(0).multiply(x.cumsum(1, { reverse: true })),
  joining: (x) => mx.concatenate([x, x.T.contiguous().reshape([-1])], { axis: null }),
  splitting: (x) => mx.split(x, [1], 1)[1].sum(0),
  padding: (x) =>
    mx.pad(x, [
      [1, 0],
      [0, 2],
    ]),
  "like functions": (x) => mx.zerosLike(x).add(mx.onesLike(x)).add(mx.full([], 2)),
  matmul: (x) => x.matmul(x.T).tanh(),
  norms: (x) => mx.fast.layerNorm(x, null, null, 1e-5).add(mx.fast.rmsNorm(x, null, 1e-5)),
  triangles: (x) => mx.tril(x.matmul(x.T)),
  repeats: (x) => x.repeat(2, 0).add(mx.tile(x, [2, 1])),
  gradient: (x) => grad((v: mx.Array) => v.sin().mean(0).square().sum())(x),
  "gradient through slices and gathers": (x) =>
    grad((v: mx.Array) =>
      v
        .index("1:")
        .multiply(v.index([0]))
        .softmax(-1)
        .max(0)
        .sum(),
    )(x),
  "second derivative": (x) =>
    grad((v: mx.Array) => grad((w: mx.Array) => w.exp().mean().add(w.square().sum()))(v).sum())(x),
  jvp: (x) => jvp((v: mx.Array) => v.softmax(0), [x], [mx.onesLike(x)])[1][0],
  linearize: (x) => linearize((v: mx.Array) => [v.softmax(0), mx.ones([1])], [x])[1](mx.onesLike(x))[0],
  jacrev: (x) => jacrev((v: mx.Array) => v.softmax(-1).sum(0).square())(x),
  jacfwd: (x) => jacfwd((v: mx.Array) => v.multiply(v.sum(0)).mean(1))(x),
  hessian: (x) => hessian((v: mx.Array) => v.sin().multiply(v.mean(0)).sum())(x),
  vmap: (x) => vmap((row: mx.Array) => row.subtract(row.mean()).cumsum())(x),
  "batch of a custom function": (x) =>
    vmap(customFunction((row: mx.Array) => row.cumsum()).vmap((rows, axis) => [rows.cumsum(1), axis]))(x),
  "gradient of a batch": (x) => vmap(grad((row: mx.Array) => row.square().mean()))(x),
  checkpoint: (x) => grad((v: mx.Array) => checkpoint((w: mx.Array) => w.sin().mean(0))(v).sum())(x),
  "custom rule": (x) => {
    const f = customFunction((v: mx.Array) => v.mean(0)).vjp((v, g) => mx.zerosLike(v).add(g.multiply(3)))
    return grad((v: mx.Array) => f(v).sum())(x)
  },
}

describe("a shapeless program gives what the function gives, for sizes it was not traced for", () => {
  for (const [name, f] of Object.entries(functions))
    test(name, () => {
      const body = vi.fn(f)
      const compiled = compile(body, { shapeless: true })
      for (const shape of [
        [3, 4],
        [5, 4],
        [2, 7],
        [3, 4],
        [6, 6],
      ]) {
        const x = numbers(shape)
        const [got, want] = [compiled(x), f(x)]
        expect(got.shape).toEqual(want.shape)
        expect(got.tolist()).toEqual(want.tolist())
      }
      expect(body).toHaveBeenCalledTimes(1)
      expect(compiled.stats()).toEqual({ calls: 5, traces: 1, programs: 4 })
    })
})

describe("shapeless", () => {
  test("a training step with state takes batches of any size", () => {
    const make = () => ({
      w: mx.array([
        [0.5, -0.25],
        [0.125, 1],
      ]),
      b: mx.zeros([2]),
    })
    const stepOf = (model: ReturnType<typeof make>) => (x: mx.Array) => {
      const [loss, g] = valueAndGrad((p: typeof model) => mx.addmm(p.b, x, p.w).tanh().square().mean())(model)
      model.w = model.w.subtract(g.w.multiply(0.1))
      model.b = model.b.subtract(g.b.multiply(0.1))
      return loss
    }
    const [eager, traced] = [make(), make()]
    const body = vi.fn(stepOf(traced))
    const step = compile(body, { inputs: traced, outputs: traced, shapeless: true })
    for (const n of [3, 5, 1, 3])
      expect(step(numbers([n, 2])).item()).toBeCloseTo(stepOf(eager)(numbers([n, 2])).item() as number, 6)
    expect(traced.w.tolist()).toEqual(eager.w.tolist())
    expect(body).toHaveBeenCalledTimes(1)
  })

  test("random draws follow the captured state", () => {
    const draw = (x: mx.Array) => mx.random.bernoulli(0.5, { shape: [4] }).multiply(x.sum())
    const compiled = compile(draw, { inputs: mx.random.state, outputs: mx.random.state, shapeless: true })
    for (const n of [2, 3, 5]) {
      mx.random.seed(n)
      const want = [draw(mx.ones([n])).tolist(), draw(mx.ones([n])).tolist()]
      mx.random.seed(n)
      expect([compiled(mx.ones([n])).tolist(), compiled(mx.ones([n])).tolist()]).toEqual(want)
    }
    expect(compiled.stats().traces).toBe(1)
  })

  test("other numbers of axes make no new trace where the operations take them and nothing looked at shapes", () => {
    const traces = (f: Unary): number => {
      const compiled = compile((v: mx.Array) => f(v), { shapeless: true })
      for (const shape of [[3, 4], [4], [2, 3, 4], [1, 2, 3, 4], [5, 4], [3]]) {
        const x = numbers(shape)
        const [got, want] = [compiled(x), f(x)]
        expect([got.shape, got.tolist()]).toEqual([want.shape, want.tolist()])
      }
      return compiled.stats().traces
    }
    expect(traces((x) => x.softmax(-1).multiply(x).sum())).toBe(1)
    expect(traces((x) => mx.fast.rmsNorm(x.add(1), null, 1e-5).index("...", "1:"))).toBe(1)
    expect(traces((x) => x.flatten().cumsum(0))).toBe(1)
    // Sizes that the function looked at itself.
    expect(traces((x) => (x.ndim === 2 ? x.add(1) : x.add(2)))).toBe(4)
    expect(traces((x) => x.sum(x.ndim - 1))).toBe(4)
    const f = compile((x: mx.Array) => x.transpose([1, 0]), { shapeless: true })
    expect(f(mx.ones([2, 3])).shape).toEqual([3, 2])
    expect(() => f(mx.ones([2, 3, 4]))).toThrow("[transpose]")
    expect(f(mx.ones([5, 3])).shape).toEqual([3, 5])
  })

  test("dtypes and constants still make a new trace", () => {
    const f = compile((x: mx.Array, k: number) => x.multiply(k), { shapeless: true })
    f(mx.ones([2]), 2)
    f(mx.ones([3]), 2)
    expect(f.stats().traces).toBe(1)
    f(mx.ones([3, 1]), 2)
    f(mx.ones([3], mx.int32), 2)
    f(mx.ones([3]), 3)
    expect(f.stats().traces).toBe(3)
  })

  test("sizes that the function reads itself are those of each call: it is traced for them", () => {
    const functions: [Unary, number[][]][] = [
      [
        (x) => x.reshape([x.shape[0] * x.shape[1]]),
        [
          [2, 3],
          [4, 3],
          [2, 3],
        ],
      ],
      [
        (x) => x.reshape([6, -1]).sum(1),
        [
          [2, 3],
          [4, 3],
          [3, 4],
        ],
      ],
      [
        (x) => mx.arange(x.shape[1]).add(x),
        [
          [2, 3],
          [2, 5],
          [2, 3],
        ],
      ],
      [
        (x) => x.reshape([x.shape[0], x.shape[1], 2, -1]).swapaxes(1, 2),
        [
          [2, 3, 4],
          [1, 5, 8],
          [3, 3, 6],
        ],
      ],
      [
        (x) => x.index(x.shape[0] - 1).multiply(x.size),
        [
          [2, 3],
          [4, 3],
          [7, 3],
        ],
      ],
      [
        (x) => (x.length > 3 ? x.sum() : x.neg()),
        [
          [2, 3],
          [4, 3],
          [3, 3],
          [5, 3],
        ],
      ],
      [
        (x) => [...x].reduce((sum, row, i) => sum.add(row.multiply(i))),
        [
          [2, 3],
          [5, 3],
          [1, 3],
        ],
      ],
      [
        (x) => mx.stack(x.split(x.nbytes / 24)).sum(0),
        [
          [2, 3],
          [4, 3],
          [6, 3],
        ],
      ],
      [
        (x) => x.unstack()[1].add(x.sum()),
        [
          [2, 3],
          [4, 3],
          [3, 3],
        ],
      ],
      [
        (x) => grad((v: mx.Array) => v.sum().divide(v.shape[0]))(x),
        [
          [2, 3],
          [4, 3],
        ],
      ],
      [
        (x) => vmap((row: mx.Array) => row.sum().divide(row.shape[0]))(x),
        [
          [2, 3],
          [4, 5],
        ],
      ],
    ]
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    for (const [f, shapes] of functions) {
      const compiled = compile((x: mx.Array) => f(x), { shapeless: true })
      for (const shape of shapes)
        expect([shape, compiled(numbers(shape)).tolist()]).toEqual([shape, f(numbers(shape)).tolist()])
    }
    expect(warn).not.toHaveBeenCalled()
    warn.mockRestore()
  })

  test("sizes of the captured state may change, and of what the function reads there", () => {
    const state = { cache: mx.zeros([1, 2]) }
    const grow = compile(
      (x: mx.Array) => {
        const n = state.cache.shape[0]
        state.cache = mx.concatenate([state.cache, x.add(n)])
        return state.cache.sum()
      },
      { inputs: state, outputs: state, shapeless: true },
    )
    expect([1, 2, 3].map(() => grow(mx.zeros([1, 2])).item())).toEqual([2, 6, 12])
    expect(state.cache.shape).toEqual([4, 2])
  })

  test("where sizes make it trace again and again, a warning shows where they are read", () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    const reasons: string[] = []
    const f = compile((x: mx.Array) => x.reshape([x.shape[0] * 2]), {
      shapeless: true,
      onRecompile: (reason) => reasons.push(reason),
    })
    for (let n = 1; n < 12; n++) expect(f(mx.ones([n, 2])).shape).toEqual([2 * n])
    expect(reasons.slice(0, 2)).toEqual(["first call", "argument 0: float32[1, 2] became float32[2, 2]"])
    expect(warn.mock.calls.map(([message]) => String(message))).toEqual([
      expect.stringMatching(/traced 9 times.*-1 in reshape, flatten, unflatten.*here:[\s\S]*shapeless\.test/),
    ])
    warn.mockRestore()
  })

  describe("a long function", () => {
    const long = (x: mx.Array): mx.Array => {
      let y = x
      for (let i = 0; i < 60; i++) y = y.multiply(0.5).add(x.mean(0))
      return y
    }
    const bits = (x: mx.Array): number[] => [...new Int32Array((x.toTypedArray() as Float32Array).buffer)]

    test("runs without a program for sizes that come for the first time, and has one from the second time on", () => {
      for (const [f, traces] of [
        [long, 1],
        [(x: mx.Array) => long(x).multiply(x.shape[0]), 3],
      ] as const) {
        const body = vi.fn(f)
        const compiled = compile((x: mx.Array) => body(x), { shapeless: true })
        const programs: number[] = []
        for (const n of [3, 5, 4, 5, 4, 3, 5]) {
          expect(bits(compiled(numbers([n, 2])))).toEqual(bits(f(numbers([n, 2]))))
          programs.push(compiled.stats().programs)
        }
        expect(programs).toEqual([1, 1, 1, 2, 3, 3, 3])
        expect(compiled.stats().traces).toBe(traces)
        expect(body).toHaveBeenCalledTimes(traces === 1 ? 1 : 5)
      }
    })

    test("has a program from the second time on where its numbers changed often, too", () => {
      const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
      const compiled = compile((x: mx.Array, n: number) => long(x).add(n), { shapeless: true })
      for (let n = 0; n < 16; n++) compiled(numbers([3, 2]), n)
      compiled(numbers([5, 2]), 16)
      const programs = [1, 2, 3].map(() => {
        compiled(numbers([3, 2]), 16)
        return compiled.stats().programs
      })
      expect(programs).toEqual([17, 18, 18])
      warn.mockRestore()
    })

    test.each([false, true])("leaves its state as a program does (looks at sizes: %s)", (looks) => {
      const make = () => ({ w: numbers([2]), steps: mx.array(0), last: null as mx.Array | null })
      const stepOf = (state: ReturnType<typeof make>) => (x: mx.Array) => {
        const g = grad((w: mx.Array) => long(x.multiply(w)).square().mean())(state.w)
        state.w = state.w.subtract(g.multiply(looks ? 0.1 / x.shape[0] : 0.1))
        state.steps = state.steps.add(1)
        state.last = x
        return mx.random.bernoulli(0.5, { shape: [4] }).multiply(g.sum())
      }
      const [eager, traced] = [make(), make()]
      const trees = [traced, mx.random.state]
      const step = compile(stepOf(traced), { inputs: trees, outputs: trees, shapeless: true, donate: true })
      const written = stepOf(eager)
      const sizes = [3, 5, 4, 5, 3]
      mx.random.seed(1)
      const want = sizes.map((n) => written(numbers([n, 2])).tolist())
      mx.random.seed(1)
      expect(sizes.map((n) => step(numbers([n, 2])).tolist())).toEqual(want)
      expect([traced.w.tolist(), traced.steps.item(), traced.last?.shape]).toEqual([
        eager.w.tolist(),
        5,
        [3, 2],
      ])
    })

    test("that throws leaves its state as it was, with or without a program", () => {
      const state = { w: mx.ones([2]) }
      const step = compile(
        (x: mx.Array) => {
          state.w = state.w.add(long(x).sum(0))
          if (x.shape[0] === 4) throw new RangeError("four")
          return state.w
        },
        { inputs: state, outputs: state, shapeless: true },
      )
      step(mx.ones([3, 2]))
      const { w } = state
      expect(() => step(mx.ones([4, 2]))).toThrow("four")
      expect(state.w).toBe(w)
    })
  })
})

describe("what changes nothing for the sizes of the trace changes something for others", () => {
  const range = (n: number): mx.Array => mx.arange(n).astype(mx.float32)
  const cases: [string, (x: mx.Array) => mx.Array, mx.Array, mx.Array][] = [
    ["a slice of everything", (x) => x.index(":4"), range(4), range(6)],
    ["every second of one", (x) => x.index("::2"), range(1), range(6)],
    ["all but the first of none", (x) => x.index("1:"), range(0), range(3)],
    ["a roll by the size", (x) => mx.roll(x, 2), range(2), range(5)],
    ["a softmax of nothing", (x) => mx.softmax(x), range(0), range(3)],
    ["a sum kept over one", (x) => x.sum(0, true), range(1), range(4)],
    ["a broadcast to the same", (x) => mx.broadcastTo(x, [4]), range(4), range(1)],
    ["a reshape to the same", (x) => x.reshape([-1]), range(4), range(6).reshape([2, 3])],
  ]
  test.each(cases)("%s", (_name, change, a, b) => {
    const value = (x: mx.Array): mx.Array => change(x).add(x.sum())
    const gradient = grad((x: mx.Array) => value(x).square().sum())
    for (const f of [value, gradient])
      for (const [first, second] of [
        [a, b],
        [b, a],
      ]) {
        const compiled = compile(f, { shapeless: true })
        expect(compiled(first).tolist()).toEqual(f(first).tolist())
        expect(compiled(second).tolist()).toEqual(f(second).tolist())
      }
  })
})
