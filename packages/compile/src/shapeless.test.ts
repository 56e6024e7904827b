/** One trace for all sizes: the function runs once, and what depends on the sizes of the first call says so. */
import * as mx from "@lazuli/core"
import { checkpoint, customFunction, grad, jvp, linearize, valueAndGrad, vmap } from "@lazuli/transforms"
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

  test("sizes that the function read itself are those of the first call, and the error says so", () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    const f = compile((x: mx.Array) => x.reshape([x.shape[0] * x.shape[1]]), { shapeless: true })
    expect(f(mx.ones([2, 3])).shape).toEqual([6])
    expect(() => f(mx.ones([4, 3]))).toThrow(
      /the shapeless program does not take arrays of shape \[4, 3\]: \[reshape\].*-1 in reshape, flatten, unflatten.*looked at sizes here:[\s\S]*shapeless\.test/,
    )
    expect(warn.mock.calls.map(([message]) => String(message))).toEqual([
      expect.stringMatching(
        /looked at sizes, and numbers that it computed from them stay those of its first call:[\s\S]*shapeless\.test/,
      ),
    ])
    warn.mockRestore()
    // Nothing is broken by it.
    expect(f(mx.ones([3, 2])).shape).toEqual([6])
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
