/** Loops that nobody evaluates: what is pending is computed of itself, whatever its size, so that memory stays flat. */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { mx } from "lazuli"
import { afterEach, describe, expect, test } from "vitest"

const MB = 2 ** 20
const SLOW = 120_000

/** The peak of a loop's memory above what was in use, in MB. */
function peakOf(loop: () => mx.Array): { peak: number; value: unknown } {
  mx.memoryReport()
  mx.synchronize()
  const before = mx.getActiveMemory()
  mx.resetPeakMemory()
  const x = loop()
  const value = x.ndim === 0 ? x.item() : x.index(0).item()
  return { peak: (mx.getPeakMemory() - before) / MB, value }
}
afterEach(() => mx.clearCache())

describe("a loop of 20,000 steps of 40 KB takes little of their 800 MB", () => {
  const STEPS = 20_000
  const start = mx.zeros([10_000])
  const loop = (step: (x: mx.Array, i: number) => mx.Array, steps = STEPS): ReturnType<typeof peakOf> =>
    peakOf(() => {
      let x = start
      for (let i = 0; i < steps; i++) x = step(x, i)
      return x
    })
  const compiled = mx.compile((x: mx.Array) => x.multiply(0.5).add(1))
  const pair = mx.compile((x: mx.Array) => [x.add(1), x.multiply(2)])
  const half = mx.vmap((x: mx.Array) => x.multiply(0.5).add(1))
  const gradient = mx.grad((x: mx.Array) => x.subtract(1).square().sum())
  const unrelated = mx.ones([2])

  test.each<[string, number, (x: mx.Array, i: number) => mx.Array, number]>([
    ["eager", STEPS, (x) => x.add(1), STEPS],
    ["compiled", STEPS, (x) => compiled(x), 2],
    ["compiled, several results", STEPS, (x) => pair(x)[0], STEPS],
    [
      "results that nobody wants on the way",
      STEPS / 2,
      (x) => {
        x.sum()
        return x.add(1)
      },
      STEPS / 2,
    ],
    [
      "evaluations of something else on the way",
      STEPS / 2,
      (x, i) => {
        if (i % 10 === 0) mx.eval(unrelated.add(i))
        return x.add(1)
      },
      STEPS / 2,
    ],
    ["several results of one operation", STEPS / 4, (x) => mx.concatenate(mx.split(x.add(1), 2)), STEPS / 4],
    ["grad", STEPS / 4, (x) => x.subtract(gradient(x).multiply(0.5)), 1],
    ["jvp", STEPS, (x) => mx.jvp((y: mx.Array) => y.add(1), [x], [x])[0][0], STEPS],
    ["vmap", STEPS / 2, (x) => half(x), 2],
  ])("%s", { timeout: SLOW }, (_, steps, step, result) => {
    const { peak, value } = loop(step, steps)
    expect(value).toBe(result)
    expect(peak).toBeLessThan(400)
  })
})

test("a loop of large arrays", { timeout: SLOW }, () => {
  const { peak, value } = peakOf(() => {
    let x = mx.zeros([30_000])
    for (let i = 0; i < 80_000; i++) x = x.add(1)
    return x
  })
  expect(value).toBe(80_000)
  expect(peak).toBeLessThan(100)
})

describe("a loop of large arrays with readers that nobody evaluates", () => {
  const losses: mx.Array[] = []
  const points = mx.linspace(0, 1, 1_000_000)
  const gradient = mx.valueAndGrad((w: mx.Array) => points.multiply(w).subtract(1).square().mean())
  const evaluated = (x: mx.Array): mx.Array => {
    mx.eval(x)
    losses.push(x.reshape(-1, 100).sum(1))
    return x.add(1)
  }

  test.each<[string, number[], number, (x: mx.Array) => mx.Array, number]>([
    [
      "small ones, dropped",
      [30_000],
      10_000,
      (x) => {
        x.sum()
        return x.add(1)
      },
      10_000,
    ],
    [
      "small ones, kept",
      [1_000_000],
      400,
      (x) => {
        losses.push(x.reshape(1000, 1000).sum(0).max())
        return x.add(1)
      },
      400,
    ],
    ["large ones, kept, of what is evaluated", [3_000_000], 100, evaluated, 100],
    ["smaller ones, kept, of what is evaluated", [100_000], 4000, evaluated, 4000],
    [
      "losses of small parameters",
      [],
      300,
      (w) => {
        const [loss, slope] = gradient(w)
        losses.push(loss)
        return w.subtract(slope.multiply(0))
      },
      0,
    ],
  ])("%s", { timeout: SLOW }, (_, shape, steps, step, result) => {
    const { peak, value } = peakOf(() => {
      let x = mx.zeros(shape)
      for (let i = 0; i < steps; i++) x = step(x)
      return x.ndim === 0 ? x : x.reshape(-1)
    })
    expect(value).toBe(result)
    expect(peak).toBeLessThan(500)
    losses.length = 0
  })
})

test("a loop that reads much and keeps little", () => {
  const data = new Float32Array(2 * MB).fill(1)
  const { peak, value } = peakOf(() => {
    let x = mx.zeros([])
    for (let i = 0; i < 120; i++) x = x.add(mx.array(data).index(i))
    return x
  })
  expect(value).toBe(120)
  expect(peak).toBeLessThan(500)
})

test("an application's results outlive what the first of their handles sets off", { timeout: SLOW }, () => {
  const parts = mx.split(mx.arange(100_000), 100_000)
  expect([0, 65_535, 65_536, 99_999].map((i) => parts[i].item())).toEqual([0, 65_535, 65_536, 99_999])
})

test("a model's parameters that nobody reads are not computed", () => {
  const before = mx.getActiveMemory()
  const parameters = Array.from({ length: 500 }, (_, i) => mx.random.normal([1024, 1024]).multiply(i))
  expect(parameters.length).toBe(500)
  mx.eval(mx.ones([2]).add(1))
  expect(mx.getActiveMemory() - before).toBeLessThan(100 * MB)
})

test("gradients of checkpoints, listed from the first layer to the last, keep the layers' inputs alone", () => {
  const LAYERS = 24
  const start = mx.ones([MB])
  const weights = Array.from({ length: LAYERS }, (_, i) => mx.array(1 + i / 100))
  mx.eval(start, weights)
  const layer = mx.checkpoint((x: mx.Array, w: mx.Array) => x.multiply(w).sin().multiply(w).cos())
  const through = (...each: mx.Array[]): mx.Array => each.reduce((x, w) => layer(x, w), start).sum()
  const everyWeight = weights.map((_, i) => i)
  const before = mx.getActiveMemory()
  const { peak } = peakOf(() => {
    const gradients = mx.grad(through, everyWeight)(...weights) as mx.Array[]
    mx.eval(gradients)
    return gradients[0]
  })
  expect(peak).toBeLessThan(1.3 * 4 * LAYERS)
  // Values that were computed again are gone without a collection.
  expect(mx.getActiveMemory() - before).toBeLessThan(4 * 4 * MB)
})

test("a long trace keeps no dead value for having taken long", () => {
  setFlagsFromString("--expose-gc")
  const collectYoung = (): void =>
    (runInNewContext("gc") as (options: { type: "minor" }) => void)({ type: "minor" })
  const STEPS = 1200
  const loss = (x: mx.Array): mx.Array => {
    let y = x
    for (let i = 1; i <= STEPS; i++) {
      y = y.add(1)
      // Objects that survive two collections are old.
      if (i % 300 === 0) collectYoung()
    }
    return y.max()
  }
  const { peak, value } = peakOf(() => mx.valueAndGrad(loss)(mx.zeros([10_000]))[0])
  expect(value).toBe(STEPS)
  expect(peak).toBeLessThan((STEPS * 40_000) / MB / 3)
})
