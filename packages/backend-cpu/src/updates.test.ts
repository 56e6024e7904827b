/** Writes in place: an update of an array that nothing else needs writes what it changes, and every other handle keeps its value. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import "./index"

const addressOf = (x: mx.Array): bigint => {
  mx.eval(x)
  const { storage } = x.node
  return storage?.memory.address?.(storage) ?? 0n
}

/** An array with memory of its own. */
function filled(shape: number[], value = 0): mx.Array {
  const x = mx.zeros(shape).add(value)
  mx.eval(x)
  return x
}

test("a broadcast is written at positions without a copy of it", () => {
  const [rows, columns] = [4, 2 ** 20]
  const at = mx.array([1], mx.int32)
  const changes: (() => mx.Array)[] = [
    () => mx.sliceUpdate(mx.zeros([rows, columns]), mx.full([1, columns], 3), at, [0]),
    () => mx.zeros([rows, columns]).at(at).add(3),
  ]
  for (const change of changes) {
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const y = change()
    mx.eval(y)
    expect(mx.getPeakMemory() - before).toBeLessThan(4 * rows * columns + 2 ** 20)
    expect(y.sum(1).tolist()).toEqual([0, 3 * columns, 0, 0])
    y.dispose()
  }
})

describe("an update runs where its array lies", () => {
  const kinds: [string, (x: mx.Array) => void][] = [
    ["an element", (x) => x.set([3, 5], 7)],
    ["a row", (x) => x.set([2], mx.ones([512]))],
    ["every second column", (x) => x.set([":", "::2"], 1)],
    ["rows at positions", (x) => x.set([mx.array([1, 4], mx.int32)], 2)],
    [
      "single elements at positions",
      (x) => x.set([mx.array([1, 4], mx.int32), mx.array([0, 9], mx.int32)], 2),
    ],
  ]
  test.each(kinds)("of %s by set", (_name, change) => {
    const x = filled([256, 512])
    const address = addressOf(x)
    for (let round = 0; round < 3; round++) {
      change(x)
      expect(addressOf(x)).toBe(address)
    }
    const other = mx.zeros([256, 512])
    change(other)
    expect(mx.arrayEqual(x, other).item()).toBe(true)
  })

  const functions: [string, (x: mx.Array) => mx.Array][] = [
    ["at.add", (x) => x.at("4:6").add(2)],
    ["at.subtract", (x) => x.at(4).subtract(2)],
    ["at.multiply", (x) => x.at("...", 0).multiply(2)],
    ["at.divide", (x) => x.at(mx.array([3], mx.int32)).divide(2)],
    ["at.maximum", (x) => x.at(0).maximum(2)],
    ["sliceUpdate", (x) => mx.sliceUpdate(x, mx.ones([1, 512]), mx.array([9], mx.int32), [0])],
    ["scatter", (x) => mx.scatter(x, [1, 1], mx.ones([2, 512]), { reduction: "sum" })],
    ["putAlongAxis", (x) => mx.putAlongAxis(x, mx.zeros([1, 512], mx.int32), mx.ones([1, 512]), 0)],
  ]
  test.each(functions)("by %s, once the old handle is gone", (_name, change) => {
    const x = filled([256, 512], 1)
    const want = change(filled([256, 512], 1)).tolist()
    const address = addressOf(x)
    const y = change(x)
    x.dispose()
    expect(addressOf(y)).toBe(address)
    expect(y.tolist()).toEqual(want)
    const kept = change(y)
    expect(addressOf(kept)).not.toBe(address)
    expect(y.tolist()).toEqual(want)
  })

  test("a cache of which each step leaves a view behind is not copied for ever", () => {
    // As decoding does: views of what is there are read, and nobody keeps them.
    const cache = filled([8, 1024, 600])
    const sums: mx.Array[] = []
    let moved = 0
    for (let n = 0; n < 30; n++) {
      const before = addressOf(cache)
      cache.set([":", n], n)
      sums.push(cache.index(":", mx.s(0, n + 1)).sum())
      mx.eval(sums[n], cache)
      if (addressOf(cache) !== before) moved++
    }
    expect(sums[29].item()).toBe(((29 * 30) / 2) * 8 * 600)
    expect(moved).toBeLessThan(10)
  })

  test("a loop of updates of blocks, evaluated each or all at the end, takes its result alone", () => {
    const [blocks, n] = [16, 1 << 17]
    const block = filled([n], 1)
    mx.clearCache()
    for (const every of [1, 16]) {
      const before = mx.getActiveMemory()
      mx.resetPeakMemory()
      const out = mx.zeros([blocks, n])
      for (let i = 0; i < blocks; i++) {
        out.set([i], block)
        if ((i + 1) % every === 0) mx.eval(out)
      }
      expect(mx.getPeakMemory() - before).toBeLessThan(1.1 * out.nbytes)
      expect(out.sum().item()).toBe(blocks * n)
      out.dispose()
    }
  })
})

describe("ten elementwise results, each with another shape", () => {
  const n = 1 << 20
  const chain = (x: mx.Array): mx.Array => {
    let y = x
    for (let i = 0; i < 10; i++) y = mx.abs(y).reshape(i % 2 === 0 ? [1024, -1] : [n])
    return y
  }
  // The result, and one more that the interpreter may still refer to.
  test.each([
    ["eager", chain, 2],
    ["compiled", compile(chain), 1],
  ])("take the memory of few, %s", (_name, f, most) => {
    const x = filled([n], -1)
    mx.clearCache()
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const y = f(x)
    mx.eval(y)
    expect(mx.getPeakMemory() - before).toBeLessThan((most + 0.1) * x.nbytes)
    expect([y.sum().item(), x.sum().item()]).toEqual([n, -n])
  })
})

describe("gradients of updates and of parts take the memory of a few arrays", () => {
  const [rows, columns] = [32, 2 ** 16]
  const losses: [string, most: number, (x: mx.Array) => mx.Array][] = [
    [
      "rows set one by one",
      3,
      (x) => {
        const y = mx.zeros([rows, columns])
        for (let i = 0; i < rows; i++) y.set([i], x.index(i))
        return y.square().sum()
      },
    ],
    [
      "numbers set",
      1,
      (x) => {
        const y = x.multiply(1)
        for (let i = 0; i < rows; i++) y.set([i], i)
        return y.sum()
      },
    ],
    [
      "rows multiplied",
      1,
      (x) =>
        Array.from({ length: 16 }, (_, i) => i)
          .reduce((y, i) => y.at(i).multiply(2), x)
          .sum(),
    ],
    [
      "rows read one by one",
      1,
      (x) => Array.from({ length: rows }, (_, i) => x.index(i).square().sum()).reduce((a, b) => a.add(b)),
    ],
    [
      "pieces",
      1,
      (x) =>
        mx
          .split(x, 8)
          .map((part) => part.square().sum())
          .reduce((a, b) => a.add(b)),
    ],
  ]
  test.each(losses)("%s", (_name, most, loss) => {
    const x = filled([rows, columns], 3)
    mx.memoryReport()
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const g = grad(loss)(x)
    mx.eval(g)
    expect((mx.getPeakMemory() - before) / x.nbytes).toBeLessThan(most + 0.2)
    expect(mx.arrayEqual(g, gradOfCopies(loss, x)).item()).toBe(true)
  })
})

/** The gradient where a trace is open, in which nothing is written in place. */
function gradOfCopies(loss: (x: mx.Array) => mx.Array, x: mx.Array): mx.Array {
  let inner: mx.Array | null = null
  grad((y: mx.Array) => {
    inner = grad(loss)(y)
    mx.eval(inner)
    return y.sum()
  })(x)
  return inner as unknown as mx.Array
}

describe("nothing is written over what can still be read", () => {
  const cases: [string, (x: mx.Array) => mx.Array][] = [
    ["another handle", (x) => x.index("...")],
    ["a view of a part", (x) => x.index("1:", "3:")],
    ["a transposed view", (x) => x.T],
    ["a pending graph", (x) => x.add(1)],
    ["a pending view", (x) => x.reshape([-1])],
    ["a pending update", (x) => x.at(0).add(1)],
    ["an array on its way to another thread", (x) => mx.receive(mx.share([x]))[0]],
  ]
  test.each(cases)("%s", (_name, other) => {
    for (const evaluated of [false, true]) {
      const x = filled([128, 256], 1)
      const kept = other(x)
      const want = other(filled([128, 256], 1)).tolist()
      if (evaluated) mx.eval(kept)
      x.set(["2:4"], 9)
      x.set([0, 0], mx.array(3))
      mx.eval(x)
      expect(kept.tolist()).toEqual(want)
      expect([x.index(0, 0).item(), x.index(3, 3).item()]).toEqual([3, 9])
    }
  })
  test("the array is its own update, turned round", () => {
    const x = filled([64, 512])
    x.set(["..."], mx.arange(64 * 512).reshape([64, 512]))
    mx.eval(x)
    x.set(["::-1"], x)
    expect([x.index(0, 0).item(), x.index(63, 1).item()]).toEqual([63 * 512, 1])
    x.set(["1:"], x.index(":-1"))
    expect([x.index(1, 0).item(), x.index(63, 0).item()]).toEqual([63 * 512, 512])
  })
  test("a trace goes through the values before and after", () => {
    const x = filled([256, 256], 2)
    const f = (v: mx.Array): mx.Array => {
      const y = v.multiply(3)
      mx.eval(y)
      const z = y.at(0).multiply(y.index(1))
      mx.eval(z)
      return z.square().sum().add(y.sum())
    }
    const g = grad(f)(x)
    expect([g.index(0, 0).item(), g.index(1, 0).item(), g.index(2, 0).item()]).toEqual([
      2 * 36 * 18 + 3,
      2 * 36 * 18 + 36 + 3,
      39,
    ])
    expect(x.index(0, 0).item()).toBe(2)
  })
})

describe("compiled", () => {
  const steps = (x: mx.Array, row: mx.Array, position: mx.Array): mx.Array =>
    mx.sliceUpdate(x, row, position, [0]).at(0).add(row.squeeze(0)).at("...", 3).multiply(2)
  const make = () => ({ cache: filled([256, 512], 1) })
  const row = mx.arange(512).reshape([1, 512])

  test("a chain of updates runs in its result's memory", () => {
    const { cache } = make()
    const f = compile(steps)
    const at = mx.array([7], mx.int32)
    const want = steps(cache, row, at).tolist()
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const y = f(cache, row, at)
    mx.eval(y)
    expect(mx.getPeakMemory() - before).toBeLessThan(1.1 * cache.nbytes)
    expect(y.tolist()).toEqual(want)
    expect(cache.sum().item()).toBe(256 * 512)
  })
  test("donated state is written where it lies; without the option, or where another reads it, it is copied", () => {
    for (const donate of [true, false]) {
      const [state, eager] = [make(), make()]
      const step = compile(
        (at: mx.Array) => {
          state.cache = steps(state.cache, row, at)
        },
        { inputs: state, outputs: state, donate },
      )
      const address = addressOf(state.cache)
      for (const n of [3, 9, 4]) {
        step(mx.array([n], mx.int32))
        if (n === 9) mx.eval(state.cache)
        eager.cache = steps(eager.cache, row, mx.array([n], mx.int32))
      }
      expect(addressOf(state.cache) === address).toBe(donate)
      expect(state.cache.tolist()).toEqual(eager.cache.tolist())
      const view = state.cache.index("5:")
      const want = view.tolist()
      step(mx.array([5], mx.int32))
      mx.eval(state.cache)
      expect(view.tolist()).toEqual(want)
    }
  })
  test("an array that is written to itself is read as it was", () => {
    const turned = (x: mx.Array): mx.Array => {
      const y = x.add(1)
      y.set(["::-1"], y)
      return y.multiply(1)
    }
    const x = mx.arange(1000)
    expect(compile(turned)(x).tolist()).toEqual(turned(x).tolist())
  })
})

/** A small generator, so that a failure can be repeated. */
function randomFrom(seed: number): (n: number) => number {
  let state = seed
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * n)
  }
}

test("random updates, aliases, views, pending graphs, traces and compiled calls leave every handle its value", async () => {
  for (let seed = 1; seed <= 9; seed++) {
    const pick = randomFrom(seed)
    // Of such sizes that some are tiny, some are watched by their nodes, and some by their handles.
    const [rows, columns] = [4, [4, 600, 17_000][seed % 3]]
    const known: { x: mx.Array; want: Float32Array }[] = []
    const add = (x: mx.Array, want: Float32Array): void => {
      known.push({ x, want })
      if (known.length > 7) {
        const [old] = known.splice(pick(known.length), 1)
        if (pick(2) === 0) old.x.dispose()
      }
    }
    const fresh = (): void => {
      const value = pick(100)
      add(mx.zeros([rows, columns]).add(value), new Float32Array(rows * columns).fill(value))
    }
    const update = compile(
      (x: mx.Array, at: mx.Array) => mx.sliceUpdate(x, mx.full([1, columns], 5), at, [0]),
      {
        donate: [0],
      },
    )
    fresh()
    for (let step = 0; step < 60; step++) {
      const entry = known[pick(known.length)]
      const { x, want } = entry
      const [row, column, value] = [pick(rows), pick(columns), pick(50)]
      const changed = (change: (v: number, i: number) => number): Float32Array => want.map(change)
      const inRow = (i: number): boolean => Math.floor(i / columns) === row
      switch (pick(12)) {
        case 0:
          fresh()
          break
        case 1:
          x.set([row, column], value)
          entry.want = changed((v, i) => (i === row * columns + column ? value : v))
          break
        case 2:
          x.set([row], value)
          entry.want = changed((v, i) => (inRow(i) ? value : v))
          break
        case 3:
          add(
            x.at(row).add(value),
            changed((v, i) => (inRow(i) ? v + value : v)),
          )
          break
        case 4:
          x.set([mx.array([row], mx.int32)], mx.full([1, columns], value))
          entry.want = changed((v, i) => (inRow(i) ? value : v))
          break
        case 5:
          add(
            x.add(value),
            changed((v) => v + value),
          )
          break
        case 6:
          add(x.reshape([columns, rows]).reshape([rows, columns]), want)
          break
        case 7: {
          const from = pick(rows)
          x.set([row], x.index(from))
          entry.want = changed((v, i) => (inRow(i) ? want[from * columns + (i % columns)] : v))
          break
        }
        case 8: {
          const g = grad((v: mx.Array) => {
            const y = v.at(row).multiply(2)
            if (pick(2) === 0) mx.eval(y)
            return y.at(row).add(1).sum()
          })(x)
          add(
            g,
            changed((_, i) => (inRow(i) ? 2 : 1)),
          )
          break
        }
        case 9: {
          const given = x.index("...")
          add(
            update(given, mx.array([row], mx.int32)),
            changed((v, i) => (inRow(i) ? 5 : v)),
          )
          break
        }
        case 10:
          if (pick(2) === 0) mx.eval(x)
          else await mx.asyncEval(...known.slice(pick(known.length)).map((each) => each.x))
          break
        default:
          expect([seed, step, ...x.toTypedArray().subarray(0, 3)]).toEqual([
            seed,
            step,
            ...entry.want.subarray(0, 3),
          ])
      }
    }
    for (const { x, want } of known)
      expect([seed, Buffer.from(x.toTypedArray().buffer).equals(Buffer.from(want.buffer))]).toEqual([
        seed,
        true,
      ])
  }
})
