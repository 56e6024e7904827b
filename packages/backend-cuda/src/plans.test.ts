/**
 * Compiled functions on the test double: recorded once, run with other buffers, replayed as graphs of the driver.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { afterEach, beforeAll, describe, expect, it } from "vitest"
import { failing } from "../test/double"
import "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})
afterEach(() => mx.resetBackendStats())

const numbers = (n: number, from = 0): mx.Array => mx.arange(n).add(from).astype(mx.float32)

describe("a compiled function", () => {
  it("gives what the function gives, call after call, with other arrays", () => {
    // Elementwise work, a reduction with scratch memory, a product, a view and a copy.
    const f = (x: mx.Array, w: mx.Array): mx.Array[] => {
      const y = x.multiply(2).add(1)
      const z = mx.matmul(y, w)
      return [z.sub(z.mean(0)).square(), mx.softmax(z, -1), y.transpose(), y.sum()]
    }
    const g = compile(f)
    for (let call = 0; call < 6; call++) {
      const [x, w] = [numbers(12, call).reshape(3, 4), numbers(8, -call).reshape(4, 2).multiply(0.1)]
      const [got, expected] = [g(x, w), f(x, w)]
      got.forEach((each, i) => {
        expect(mx.allclose(each, expected[i], 1e-4, 1e-4).item(), `call ${call}, result ${i}`).toBe(true)
      })
    }
    expect(mx.backendStats().cuda).toBeUndefined()
  }, 120_000)
  it("has convolutions, attention and packed weights in its graph", () => {
    const [w, scales, biases] = mx.quantize(numbers(256).sin().reshape(4, 64), { groupSize: 64, bits: 4 })
    const f = (x: mx.Array): mx.Array => {
      const y = mx.conv2d(x, numbers(54).multiply(0.01).reshape(2, 3, 3, 3), { padding: 1 })
      const h = y.reshape(1, 1, 2, 16).astype(mx.float16)
      const o = mx.fast.scaledDotProductAttention(h, h, h, { scale: 0.1 }).astype(mx.float32)
      const row = mx.concatenate([o.reshape(1, 32), y.reshape(1, 32)], 1)
      return mx
        .quantizedMatmul(row, w, scales, biases, { transpose: true, groupSize: 64, bits: 4 })
        .exp()
        .tanh()
    }
    const g = compile(f)
    for (let call = 0; call < 4; call++) {
      const x = numbers(48, call).multiply(0.02).reshape(1, 4, 4, 3)
      expect(mx.allclose(g(x), f(x), 1e-3, 1e-3).item(), `call ${call}`).toBe(true)
    }
    expect(mx.backendStats().cuda).toBeUndefined()
  }, 60_000)
  it("reads parts of arrays that begin anywhere, and transposed ones", () => {
    const g = compile((x: mx.Array) => x.exp().sum(-1))
    const whole = numbers(41).multiply(0.1)
    mx.eval(whole)
    for (const start of [1, 2, 4]) {
      const part = whole.slice([start], [0], [36]).reshape(6, 6)
      for (const x of [part, part.transpose()])
        expect(mx.allclose(g(x), x.exp().sum(-1)).item(), `from ${start}`).toBe(true)
    }
  })
  it("changes state in place where it is donated", () => {
    const state = { w: numbers(1000) }
    const step = compile(
      (x: mx.Array) => {
        state.w = state.w.add(x)
      },
      { inputs: state, outputs: state, donate: true } as never,
    )
    for (let i = 0; i < 5; i++) {
      step(mx.ones([1000]))
      mx.eval(state.w)
    }
    expect((state.w.toTypedArray() as Float32Array)[999]).toBe(1004)
  })
  it("of many kernels that cannot be fused runs them all, in order", () => {
    const f = (x: mx.Array): mx.Array => {
      let y = x
      for (let i = 0; i < 40; i++) y = mx.cumsum(y, 0).multiply(0.5)
      return y
    }
    const g = compile(f)
    const x = mx.ones([7])
    const expected = f(x).tolist()
    for (let i = 0; i < 4; i++) expect(g(x).tolist()).toEqual(expected)
  })
})

describe("graphs of the driver", () => {
  it("compute parts of a concatenation where they lie in it, if these begin where arrays do", () => {
    const f = (x: mx.Array): mx.Array => {
      const parts = [0, 1, 2].map((i) => mx.cumsum(x.add(i), 0))
      return mx.cumsum(mx.concatenate([...parts, parts[1].square()]), 0)
    }
    const folder = mkdtempSync(join(tmpdir(), "lazuli-graphs-"))
    process.env.LAZULI_CUDA_DOUBLE_GRAPHS = join(folder, "graphs")
    try {
      for (const length of [128, 129]) {
        const g = compile(f)
        for (let call = 0; call < 3; call++) {
          const x = numbers(length, call).multiply(0.01)
          expect(mx.allclose(g(x), f(x)).item(), `${length}, call ${call}`).toBe(true)
        }
      }
      const [aligned, other] = readFileSync(join(folder, "graphs"), "utf8").trim().split("\n")
      // Four parts, of which the first begins with the whole.
      expect(Number.parseInt(other, 10) - Number.parseInt(aligned, 10)).toBe(3)
    } finally {
      delete process.env.LAZULI_CUDA_DOUBLE_GRAPHS
      rmSync(folder, { recursive: true })
    }
  })
  const f = (x: mx.Array): mx.Array => {
    let y = x
    for (let i = 0; i < 6; i++) y = mx.cumsum(y, 0).multiply(0.5)
    return mx.cumsum(mx.matmul(y.reshape(1, 4), y.reshape(4, 1)), 0)
  }
  const call = (g: typeof f, x: mx.Array): unknown => {
    const y = g(x)
    const value = y.tolist()
    y.dispose()
    return value
  }
  it("run calls after the second, for results in other memory too, without another launch", () => {
    const g = compile((x: mx.Array) => f(x.reshape(100, 4).index(0)).add(x))
    const x = numbers(400)
    const expected = f(numbers(4)).add(x).tolist()
    for (let i = 0; i < 3; i++) expect(call(g, x)).toEqual(expected)
    expect(failing("single-launch", () => call(g, x))).toEqual(expected)
  })
  it("serve small arrays wherever they lie, those of libraries too", () => {
    const g = compile(f)
    const [x, y] = [numbers(4), numbers(4, 1)]
    const expected = [x, y].map((each) => f(each).tolist())
    for (let i = 0; i < 3; i++) expect(call(g, x)).toEqual(expected[0])
    const results: mx.Array[] = []
    failing("capture", () => {
      for (let i = 0; i < 20; i++) {
        const each = [x, y][i % 2].add(0)
        results.push(g(each))
        mx.eval(results[i])
      }
    })
    results.forEach((each, i) => {
      expect(each.tolist()).toEqual(expected[i % 2])
    })
  })
  it("of a step whose state is donated stay as they are", () => {
    const state = { w: numbers(600).reshape(20, 30), m: mx.zeros([20, 30]), small: mx.zeros([4]) }
    const g = compile(
      (x: mx.Array) => {
        const y = mx.matmul(mx.cumsum(x, 0), state.w)
        const slopes = mx.cumsum(y, 0).multiply(0.001)
        const back = mx.matmul(slopes, state.w.T).sum()
        const gradient = mx.matmul(x.T, slopes)
        state.m = state.m.multiply(0.5).add(gradient)
        state.w = state.w.sub(state.m.multiply(0.01))
        state.small = state.small.add(1)
        return back
      },
      { inputs: state, outputs: state, donate: true } as never,
    ) as unknown as (x: mx.Array) => mx.Array
    const x = numbers(400).reshape(20, 20).multiply(0.01)
    mx.eval(x, state.w, state.m, state.small)
    const step = (): void => mx.eval(g(x), state.w, state.m, state.small)
    for (let i = 0; i < 4; i++) step()
    failing("capture", () => {
      for (let i = 0; i < 4; i++) step()
    })
    expect(state.small.tolist()).toEqual([8, 8, 8, 8])
  })
  it("are given up where the next call always has other memory, and results are right", () => {
    const g = compile((x: mx.Array) =>
      f(x.reshape(100, 4).index(0)).add(mx.matmul(x.reshape(1, 400), x).sum()),
    )
    const held: mx.Array[] = []
    for (let i = 0; i < 24; i++) {
      const x = numbers(400, i).multiply(0.01)
      mx.eval(x)
      held.push(x)
      const expected = f(x.reshape(100, 4).index(0)).add(x.square().sum()).item() as number
      expect(g(x).item()).toBeCloseTo(expected, 1)
    }
  })
  it("are updated for other memory, of which there is more than graphs are kept for", () => {
    const g = compile(f)
    for (let round = 0; round < 3; round++)
      for (let i = 0; i < 7; i++) {
        const x = numbers(4, i)
        const y = g(x)
        expect(y.tolist()).toEqual(f(x).tolist())
      }
  })
  it("that fail to launch leave their results without a value, and the next call runs", () => {
    const g = compile((x: mx.Array) => f(x.reshape(100, 4).index(0)).add(x))
    const x = numbers(400)
    const expected = f(numbers(4)).add(x).tolist()
    for (let i = 0; i < 3; i++) call(g, x)
    expect(() => failing("launch", () => call(g, x))).toThrow(
      "[@lazuli/compile/program] the launch of a graph failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    )
    expect(call(g, x)).toEqual(expected)
  })
  it("go with their function", () => {
    const before = mx.getActiveMemory()
    for (let i = 0; i < 20; i++) {
      const g = compile((x: mx.Array) => mx.cumsum(mx.cumsum(mx.cumsum(mx.cumsum(x, 0), 0), 0), 0).add(i))
      for (let k = 0; k < 3; k++) call(g as typeof f, mx.ones([4]))
    }
    expect(mx.getActiveMemory() - before).toBeLessThan(1 << 20)
  })
})
