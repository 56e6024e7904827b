/**
 * Eager loops on the test double: commands that come again with other arrays run as graphs of the driver, and give the same.
 */
import { integers } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { failing } from "../test/double"
import { cudaRuntime } from "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

const numbers = (n: number, from = 0): mx.Array => {
  const x = mx.array(
    Float32Array.from({ length: n }, (_, i) => Math.sin(i + 7 * from)),
    mx.float32,
  )
  mx.eval(x)
  return x
}
const chain = (x: mx.Array, length = 40): mx.Array => {
  let y = x
  for (let i = 0; i < length; i++) y = i % 3 === 2 ? y.multiply(0.5) : y.add(x)
  return y
}
const valueOf = (y: mx.Array): unknown => {
  const value = y.tolist()
  y.dispose()
  return value
}
const onHost = (f: () => mx.Array): unknown => mx.stream(mx.cpu, () => f().tolist())
/** Runs `f` until its commands are known. */
const loop = (f: () => mx.Array, times = 24): void => {
  for (let i = 0; i < times; i++) valueOf(f())
}

it("make their own kernel when a stream has repeated, and not before", () => {
  const hasKernel = (): boolean => [...cudaRuntime.kernels].some((name) => name.startsWith("stage "))
  const x = numbers(16)
  for (let i = 0; i < 40; i++) valueOf(chain(x, 9 + (i % 20)))
  expect(hasKernel()).toBe(false)
  loop(() => chain(x, 12))
  expect(hasKernel()).toBe(true)
}, 60_000)

it("run small arrays that are new each time without another launch", () => {
  const xs = [numbers(16), numbers(16, 1)]
  const expected = xs.map((x) => onHost(() => chain(mx.array(x.tolist() as number[]))))
  const kept: mx.Array[] = []
  loop(() => chain(xs[0]))
  failing("single-launch", () => {
    for (let i = 0; i < 6; i++) {
      const y = chain(xs[i % 2])
      mx.eval(y)
      kept.push(y)
    }
  })
  kept.forEach((y, i) => {
    expect(y.tolist()).toEqual(expected[i % 2])
  })
}, 60_000)

it("keep the values of everything in between that is still held", () => {
  const x = numbers(16)
  const f = (): mx.Array[] => {
    const all = [x]
    for (let i = 0; i < 32; i++) all.push((all[i] as mx.Array).add(x))
    return all.slice(1)
  }
  for (let round = 0; round < 12; round++) {
    const all = f()
    mx.eval(all)
    all.forEach((each, i) => {
      expect(each.index(3).item()).toBeCloseTo((i + 2) * Math.sin(3), 4)
    })
  }
}, 60_000)

it("tell parts of an array, and arrays of other sizes, apart", () => {
  const f = (x: mx.Array): mx.Array => {
    const n = x.size - 8
    let y = x.slice([0], [0], [n])
    for (let i = 0; i < 24; i++) y = y.multiply(0.5).add(x.slice([i % 8], [0], [n]))
    return y
  }
  for (const n of [16, 300, 1000, 5000]) {
    const x = numbers(n)
    const expected = onHost(() => f(mx.array(x.tolist() as number[])))
    for (let round = 0; round < 16; round++) expect(valueOf(f(x)), `${n} elements`).toEqual(expected)
  }
}, 60_000)

it("tell arrays of their own from the beginnings of larger ones", () => {
  // The array that is read last is copied out behind the results, which lie beside it where it is small.
  const step = numbers(16, 1)
  const f = (x: mx.Array): mx.Array[] => {
    const all = [step]
    for (let i = 0; i < 24; i++) all.push(all[i].add(step))
    return [...all.slice(1), all[24].add(x.index("0:16"))]
  }
  const check = (x: mx.Array, first: number): void => {
    const all = f(x)
    mx.eval(all)
    all.forEach((each, i) => {
      const more = i === 24 ? first - Math.sin(7) : 0
      expect(each.index(0).item(), `result ${i}`).toBeCloseTo((i + 2) * Math.sin(7) + more, 4)
      each.dispose()
    })
  }
  const large = numbers(200, 2)
  for (let round = 0; round < 24; round++) check(large, Math.sin(14))
  for (let round = 0; round < 12; round++) {
    const small = step.multiply(round)
    mx.eval(small)
    check(small, round * Math.sin(7))
  }
}, 60_000)

it("change state in place and see what was written meanwhile", () => {
  let x = mx.zeros([16])
  mx.eval(x)
  for (let round = 1; round <= 20; round++) {
    let y = x
    for (let i = 0; i < 32; i++) y = y.add(1)
    mx.eval(y)
    x.dispose()
    x = y
    expect(x.index(5).item()).toBe(32 * round)
    if (round % 5 === 0) mx.clearCache()
  }
}, 60_000)

it("of any operations give the same as the first time, which is the CPU's", () => {
  const below = integers(11)
  const steps: readonly ((x: mx.Array, y: mx.Array, k: number) => mx.Array)[] = [
    (x, y) => x.add(y).multiply(0.5),
    (x, y, k) => x.multiply(y.slice([k % 3], [0], [1])),
    (x, y) => mx.where(mx.greater(x, y), x, y.multiply(0.5)),
    (x) => x.reshape([4, -1]).transpose().reshape([-1]).multiply(0.75),
    (x) => x.subtract(x.sum()).multiply(0.125),
    (x) => mx.softmax(x.reshape([4, -1]), -1).reshape([-1]),
    (x) => mx.cumsum(x, 0).multiply(0.1),
    (x) => mx.sort(x),
    (x, y) => mx.concatenate([y.slice([0], [0], [4]), x.slice([0], [0], [x.size - 4])]),
    (x, y, k) => x.at(k % 4).add(y.slice([k % 4], [0], [1]).reshape([])),
  ]
  for (const n of [16, 64, 800]) {
    const program = Array.from({ length: 30 }, () => [below(steps.length), below(4), below(99)])
    const f = (x: mx.Array): mx.Array => {
      const all = [x, x.multiply(0.5), x.add(0.25), x.square()]
      for (const [step, other, k] of program) {
        all.push(steps[step](all[all.length - 1], all[all.length - 1 - other], k))
      }
      return mx.stack(all)
    }
    const xs = [numbers(n), numbers(n, 1)]
    const want = xs.map((x) => valueOf(f(x)) as number[][])
    const host = xs[1].tolist() as number[]
    const onCpu = onHost(() => f(mx.array(host))) as number[][]
    want[1].flat().forEach((v, k) => {
      const expected = onCpu[Math.floor(k / n)][k % n]
      expect(Math.abs(v - expected)).toBeLessThan(1e-3 * Math.max(1, Math.abs(expected)))
    })
    for (let i = 0; i < 12; i++) expect(valueOf(f(xs[i % 2]))).toEqual(want[i % 2])
  }
}, 120_000)

it("run launch by launch where a graph fails, and say what has no value where all do", () => {
  const x = numbers(16, 2)
  const f = (): mx.Array => chain(x, 36).subtract(1)
  const expected = onHost(() => chain(mx.array(x.tolist() as number[]), 36).subtract(1))
  failing("capture", () => {
    loop(f, 12)
    expect(valueOf(f())).toEqual(expected)
  })
  loop(f)
  const y = f()
  expect(() => failing("launch", () => mx.eval(y))).toThrow("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
  expect(valueOf(f())).toEqual(expected)
}, 60_000)

it("are kept for a bounded number of loops", () => {
  const x = numbers(16, 3)
  for (let k = 1; k < 80; k++) {
    const f = (): mx.Array => {
      let y = x
      for (let i = 0; i < 10; i++) y = y.add(k / 8)
      return y
    }
    loop(f, 6)
    expect((valueOf(f()) as number[])[0]).toBeCloseTo((10 * k) / 8 + Math.sin(21), 4)
  }
}, 120_000)
