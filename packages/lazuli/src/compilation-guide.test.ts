/**
 * A walk through what `compile` does, from the first call to shapeless training: each example of MLX's guide to compilation, in this API,
 * with what it promises held. docs/compile.md tells the same in prose.
 */
import { mx, nn, optim } from "lazuli"
import { describe, expect, test, vi } from "vitest"

type Binary = (x: mx.Array, y: mx.Array) => mx.Array

/** A function and how often its body ran. */
function counted<A extends unknown[], R>(f: (...args: A) => R) {
  return vi.fn(f)
}

describe("the first steps", () => {
  const fun: Binary = (x, y) => x.negative().exp().add(y)

  test("a compiled function gives what the function gives", () => {
    const [x, y] = [mx.array(1), mx.array(2)]
    const compiled = mx.compile(fun)
    expect(compiled(x, y).item()).toBe(fun(x, y).item())
    expect(compiled(x, y).item()).toBeCloseTo(2.36788, 5)
  })

  test("the first call traces, later ones run what it built", () => {
    const body = counted(fun)
    const compiled = mx.compile(body)
    for (let i = 0; i < 3; i++) compiled(mx.array(i), mx.array(1))
    expect(body).toHaveBeenCalledTimes(1)
    expect(compiled.stats()).toEqual({ calls: 3, traces: 1, programs: 1 })
  })

  test("a call is lazy, as operations are", () => {
    const run = vi.fn()
    const y = mx.compile((x: mx.Array) => x.add(1))(mx.array(1))
    void mx.asyncEval(y).then(run)
    expect(run).not.toHaveBeenCalled()
    expect(y.item()).toBe(2)
  })

  test("another shape, rank, dtype or number of inputs is traced anew, and what was seen before is not", () => {
    const body = counted((...xs: mx.Array[]) => xs.reduce((a, b) => a.add(b)).exp())
    const compiled = mx.compile(body)
    const kinds: mx.Array[][] = [
      [mx.ones([2])],
      [mx.ones([3])],
      [mx.ones([3, 1])],
      [mx.ones([3], mx.float16)],
      [mx.ones([3], mx.int32)],
      [mx.ones([3]), mx.ones([3])],
      [mx.ones([3]), mx.ones([1])],
    ]
    for (const [i, xs] of kinds.entries()) {
      const want = xs.reduce((a, b) => a.add(b)).exp()
      for (let again = 0; again < 2; again++) {
        const got = compiled(...xs)
        expect([got.dtype, got.tolist()]).toEqual([want.dtype, want.tolist()])
      }
      expect(body).toHaveBeenCalledTimes(i + 1)
    }
    for (const xs of kinds) compiled(...xs)
    expect(body).toHaveBeenCalledTimes(kinds.length)
  })

  test("numbers, texts and flags among the arguments are part of the program", () => {
    const body = counted((x: mx.Array, k: number, how: { negate: boolean }) =>
      how.negate ? x.multiply(k).negative() : x.multiply(k),
    )
    const compiled = mx.compile(body)
    const x = mx.array([1, 2])
    expect(compiled(x, 2, { negate: false }).tolist()).toEqual([2, 4])
    expect(compiled(x, 3, { negate: false }).tolist()).toEqual([3, 6])
    expect(compiled(x, 3, { negate: true }).tolist()).toEqual([-3, -6])
    expect(compiled(x, 2, { negate: false }).tolist()).toEqual([2, 4])
    expect(body).toHaveBeenCalledTimes(3)
  })

  test("a function compiled where it is made, in a loop, is another one each time; one that has a name is not", () => {
    const a = mx.array([1, 2])
    let traces = 0
    for (let i = 0; i < 5; i++) {
      // Made anew by every turn of the loop, so that there is nothing to find again.
      const compiled = mx.compile((x: mx.Array) => x.abs().exp())
      compiled(a)
      traces += compiled.stats().traces
    }
    expect(traces).toBe(5)

    const body = counted((x: mx.Array) => x.abs().exp())
    for (let i = 0; i < 5; i++) mx.compile(body)(a)
    expect(body).toHaveBeenCalledTimes(1)
  })

  test("trees go in and come out, arguments pass through unchanged, and one array may be given twice", () => {
    const compiled = mx.compile((tree: { x: mx.Array; ys: mx.Array[] }, z: mx.Array) => ({
      sum: tree.ys.reduce((a, b) => a.add(b), tree.x),
      same: tree.x,
      pair: [z, z.add(tree.x)] as const,
      name: "kept",
    }))
    const x = mx.array([1, 2])
    const got = compiled({ x, ys: [x, x] }, x)
    expect([got.sum, got.same, ...got.pair].map((a) => a.tolist())).toEqual([
      [3, 6],
      [1, 2],
      [1, 2],
      [2, 4],
    ])
    expect(got.name).toBe("kept")
  })
})

describe("speed", () => {
  const gelu = (x: mx.Array): mx.Array => x.multiply(mx.erf(x.divide(Math.SQRT2)).add(1)).divide(2)

  test("five operations of a gelu become one kernel with the same answers, bit for bit", () => {
    const x = mx.random.uniform(-4, 4, [32, 1000])
    const compiled = mx.compile(gelu)
    const { kernels, steps } = compiled.explain(x)
    expect(kernels).toBe(1)
    expect(steps[0].operations).toEqual(["divide", "erf", "add", "multiply", "divide"])
    expect(mx.arrayEqual(compiled(x), gelu(x)).item()).toBe(true)
  })
})

describe("looking inside", () => {
  test("a placeholder prints as one", () => {
    const seen: string[] = []
    mx.compile((x: mx.Array) => {
      const z = x.negative()
      seen.push(String(z))
      return z.exp()
    })(mx.ones([2, 3]))
    expect(seen).toEqual(["array(<being traced>, shape=[2, 3], dtype=float32)"])
  })

  test("its value cannot be had, and the error says what to do", () => {
    const compiled = mx.compile((x: mx.Array) => {
      const z = x.negative()
      mx.eval(z)
      return z.exp()
    })
    expect(() => compiled(mx.ones([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [eval] an array that is being traced by vmap or compile has no value yet. Return it from the function, or move what needs its value (item, tolist, printing, if) out of the traced function. One that a compiled function left in a variable never gets a value: name the tree that holds it in \`outputs\`]`,
    )
    const branching = mx.compile((x: mx.Array) => ((x.sum().item() as number) > 0 ? x : x.negative()))
    expect(() => branching(mx.ones([2]))).toThrow(/has no value yet.*out of the traced function/)
  })

  test("without compile the function runs as it is written", () => {
    const seen: unknown[] = []
    const compiled = mx.compile((x: mx.Array) => {
      const z = x.negative()
      seen.push(z.tolist())
      return z.exp()
    })
    mx.disableCompile()
    try {
      expect(compiled(mx.array([0])).tolist()).toEqual([1])
      compiled(mx.array([1]))
    } finally {
      mx.enableCompile()
    }
    expect(seen).toEqual([[-0], [-1]])
    expect(() => compiled(mx.array([0]))).toThrow(mx.TransformError)
  })
})

describe("pure functions", () => {
  const one = mx.array(1)

  test("an array that is put aside is a placeholder for ever, and says so", () => {
    const state: mx.Array[] = []
    const fun = mx.compile((x: mx.Array, y: mx.Array) => {
      const z = x.add(y)
      state.push(z)
      return z.exp()
    })
    fun(mx.array(1), mx.array(2))
    expect(state).toHaveLength(1)
    expect(String(state[0])).toBe("array(<being traced>, shape=[], dtype=float32)")
    expect(() => state[0].item()).toThrow(/never gets a value: name the tree that holds it in `outputs`/)
  })

  test("what is given back has a value", () => {
    const fun = mx.compile((x: mx.Array, y: mx.Array) => {
      const z = x.add(y)
      return [z.exp(), [z]] as const
    })
    const [, [z]] = fun(mx.array(1), mx.array(2))
    expect(z.item()).toBe(3)
  })

  test("so has what is put into a tree among the outputs", () => {
    const state: mx.Array[] = []
    const fun = mx.compile(
      (x: mx.Array, y: mx.Array) => {
        const z = x.add(y)
        state.push(z)
        return z.exp()
      },
      { outputs: state },
    )
    fun(mx.array(1), mx.array(2))
    expect(state.map((z) => z.item())).toEqual([3])
  })

  test("an array that is only read is a constant, until its tree is among the inputs", () => {
    const state = [mx.array(1)]
    const add = (x: mx.Array): mx.Array => x.add(state[0])
    const asConstant = mx.compile(add)
    const asInput = mx.compile(add, { inputs: state })
    expect([asConstant(one).item(), asInput(one).item()]).toEqual([2, 2])
    state[0] = mx.array(5)
    expect([asConstant(one).item(), asInput(one).item()]).toEqual([2, 6])
  })

  test("random numbers repeat unless the generator's state is captured", () => {
    const draw = (): mx.Array => mx.random.uniform({ shape: [3] })
    const frozen = mx.compile(draw)
    expect(frozen().tolist()).toEqual(frozen().tolist())

    const drawing = mx.compile(draw, { inputs: mx.random.state, outputs: mx.random.state })
    const run = (f: typeof draw): unknown[] => {
      mx.random.seed(11)
      return [f().tolist(), f().tolist(), draw().tolist()]
    }
    const [got, want] = [run(drawing), run(draw)]
    expect(got).toEqual(want)
    expect(got[0]).not.toEqual(got[1])
  })
})

describe("whole steps of training", () => {
  /** A hundred points around a line of ten features. */
  function data() {
    mx.random.seed(0)
    const target = mx.random.normal([10])
    const x = mx.random.normal([100, 10])
    return { x, y: x.matmul(target).add(mx.random.normal([100]).multiply(1e-2)) }
  }

  test("descent along gradients of a linear model", () => {
    const { x, y } = data()
    const train = (compiled: boolean): unknown[] => {
      let w = mx.zeros([10])
      const step = (weights: mx.Array): [mx.Array, mx.Array] => {
        const [loss, slope] = mx.valueAndGrad((v: mx.Array) => x.matmul(v).subtract(y).square().mean())(
          weights,
        )
        return [loss, weights.subtract(slope.multiply(0.1))]
      }
      const run = compiled ? mx.compile(step) : step
      const losses: unknown[] = []
      for (let i = 0; i < 20; i++) {
        const [loss, next] = run(w)
        w = next
        losses.push(loss.item())
      }
      return [...losses, w.tolist()]
    }
    const [eager, traced] = [train(false), train(true)]
    expect(traced).toEqual(eager)
    expect(traced[19]).toBeLessThan((traced[0] as number) / 10)
  })

  class Net extends nn.Module {
    first = new nn.Linear(10, 16)
    dropout = new nn.Dropout(0.2)
    second = new nn.Linear(16, 1)
    forward(x: mx.Array): mx.Array {
      return this.second.forward(this.dropout.forward(nn.relu(this.first.forward(x)))).squeeze(-1)
    }
  }

  test.each<[string, () => optim.Optimizer]>([
    ["SGD with momentum", () => new optim.SGD(0.05, { momentum: 0.8 })],
    ["Adam", () => new optim.Adam(0.01)],
    ["AdamW with a schedule", () => new optim.AdamW(optim.cosineDecay(0.01, 100))],
  ])("forward, backward and update with dropout and %s", (_name, make) => {
    const { x, y } = data()
    const train = (compiled: boolean): unknown[] => {
      mx.random.seed(5)
      const model = new Net()
      const optimizer = make()
      optimizer.init(model.trainableParameters())
      const lossAndGrad = nn.valueAndGrad(model, (a: mx.Array, b: mx.Array) =>
        nn.losses.mseLoss(model.forward(a), b),
      )
      const step = (a: mx.Array, b: mx.Array): mx.Array => {
        const [loss, grads] = lossAndGrad(a, b)
        optimizer.update(model, grads)
        return loss
      }
      const state = [model.state, optimizer.state, mx.random.state]
      const run = compiled ? mx.compile(step, { inputs: state, outputs: state }) : step
      const losses: unknown[] = []
      for (let i = 0; i < 10; i++) {
        const loss = run(x, y)
        mx.eval(state, loss)
        losses.push(loss.item())
      }
      return [...losses, model.second.weight.tolist(), optimizer.step.item(), mx.random.state[0].tolist()]
    }
    const [eager, traced] = [train(false), train(true)]
    expect(traced).toEqual(eager)
    expect(traced[9]).toBeLessThan(traced[0] as number)
  })

  test("a model in evaluation mode is compiled with its state among the inputs", () => {
    const model = new Net()
    model.eval()
    const predict = mx.compile((x: mx.Array) => model.forward(x), { inputs: model.state })
    const { x } = data()
    expect(predict(x).tolist()).toEqual(model.forward(x).tolist())
    model.second.bias = mx.array([100])
    expect(predict(x).tolist()).toEqual(model.forward(x).tolist())
    expect(predict.stats().traces).toBe(1)
  })
})

describe("with transforms", () => {
  const fun = (x: mx.Array): mx.Array => x.sin().multiply(x).sum()
  const x = mx.array([0.5, 1, 2])

  test("gradients can be compiled, and compiled functions have gradients", () => {
    const want = mx.grad(fun)(x).tolist()
    expect(mx.compile(mx.grad(fun))(x).tolist()).toEqual(want)
    expect(mx.grad(mx.compile(fun))(x).tolist()).toEqual(want)
    expect(
      mx
        .compile(mx.grad(mx.compile(fun)))(x)
        .tolist(),
    ).toEqual(want)
  })

  test("so have second derivatives, and batches", () => {
    const slope = (v: mx.Array): mx.Array => mx.grad(fun)(v).sum()
    const want = mx.grad(slope)(x).tolist()
    expect(
      mx
        .compile(mx.grad(mx.compile((v: mx.Array) => mx.grad(mx.compile(fun))(v).sum())))(x)
        .tolist(),
    ).toEqual(want)
    const rows = mx.stack([x, x.multiply(2)])
    const each = mx.vmap(fun)(rows).tolist()
    expect(mx.vmap(mx.compile(fun))(rows).tolist()).toEqual(each)
    expect(mx.compile(mx.vmap(fun))(rows).tolist()).toEqual(each)
  })

  test("only the outermost call makes a program: a compiled function within one is part of it", () => {
    const inner = mx.compile((a: mx.Array) => a.negative().exp().abs())
    const outer = mx.compile((a: mx.Array) => inner(a).add(inner(a)))
    const { applications, kernels } = outer.explain(x)
    expect(applications).toBe(7)
    expect(kernels).toBe(1)
    expect(inner.stats().traces).toBe(0)
    expect(outer(x).tolist()).toEqual(x.negative().exp().abs().multiply(2).tolist())
  })
})

describe("shapeless", () => {
  test("one trace serves all sizes, and ranks that the operations take; other dtypes are traced anew", () => {
    const body = counted((x: mx.Array, y: mx.Array) => x.add(y).abs())
    const compiled = mx.compile(body, { shapeless: true })
    for (const [a, b] of [
      [[2], [2]],
      [[5], [5]],
      [[7], [1]],
    ])
      expect(compiled(mx.full(a, 1), mx.full(b, -3)).tolist()).toEqual(mx.full(a, 2).tolist())
    expect(body).toHaveBeenCalledTimes(1)
    expect(compiled(mx.ones([2, 2]), mx.ones([2])).shape).toEqual([2, 2])
    expect(body).toHaveBeenCalledTimes(1)
    compiled(mx.ones([2], mx.float16), mx.ones([2]))
    expect(body).toHaveBeenCalledTimes(2)
  })

  test("a number taken from a shape is that of each call", () => {
    const flat = mx.compile((x: mx.Array) => x.reshape([x.shape[0] * x.shape[1], -1]), { shapeless: true })
    expect(flat(mx.zeros([2, 3, 4])).shape).toEqual([6, 4])
    expect(flat(mx.zeros([5, 5, 3])).shape).toEqual([25, 3])
    expect(flat.stats().traces).toBe(2)
  })

  test("flatten, unflatten and -1 leave the sizes to the operations", () => {
    const flat = mx.compile((x: mx.Array) => x.flatten(0, 1), { shapeless: true })
    expect([
      flat(mx.zeros([2, 3, 4])).shape,
      flat(mx.zeros([5, 5, 3])).shape,
      flat(mx.zeros([0, 5, 3])).shape,
    ]).toEqual([
      [6, 4],
      [25, 3],
      [0, 3],
    ])
    const heads = mx.compile((x: mx.Array) => x.unflatten(-1, [4, -1]).swapaxes(1, 2), { shapeless: true })
    expect([heads(mx.zeros([2, 3, 8])).shape, heads(mx.zeros([1, 5, 12])).shape]).toEqual([
      [2, 4, 3, 2],
      [1, 4, 5, 3],
    ])
    expect([flat.stats().traces, heads.stats().traces]).toEqual([1, 1])
  })

  test("a training step takes batches of any size", () => {
    mx.random.seed(2)
    const model = new nn.Sequential(new nn.Linear(3, 4), nn.relu, new nn.Dropout(0.5), new nn.Linear(4, 1))
    const optimizer = new optim.Adam(0.01)
    optimizer.init(model.trainableParameters())
    const lossAndGrad = nn.valueAndGrad(model, (x: mx.Array) => model.forward(x).square().mean())
    const state = [model.state, optimizer.state, mx.random.state]
    const step = mx.compile(
      (x: mx.Array) => {
        const [loss, grads] = lossAndGrad(x)
        optimizer.update(model, grads)
        return loss
      },
      { inputs: state, outputs: state, shapeless: true },
    )
    // A long function has programs for sizes that came twice.
    for (const n of [8, 3, 8, 1, 3]) expect(Number.isFinite(step(mx.ones([n, 3])).item())).toBe(true)
    expect(step.stats()).toEqual({ calls: 5, traces: 1, programs: 2 })
    expect(optimizer.step.item()).toBe(5n)
  })
})
