/** Work that meets the memory limit: it is refused before it begins, nothing is lost, and it goes on once there is room. */
import { integers } from "@lazuli/conformance/generator"
import { mx, nn, optim } from "lazuli"
import { afterEach, describe, expect, test } from "vitest"

const MB = 2 ** 20
const machine = mx.setMemoryLimit(mx.getActiveMemory())
mx.setMemoryLimit(machine)

/** An array with memory of its own: what `full` gives shows one element. */
const filled = (size: number, value: number): mx.Array => mx.zeros([size]).add(value)

/** Leaves so much room above what is alive. */
function leave(bytes: number): void {
  mx.setMemoryLimit(machine)
  mx.synchronize()
  mx.setMemoryLimit(mx.memoryReport().active + bytes)
}
afterEach(() => {
  mx.setMemoryLimit(machine)
})

const OUT_OF_MEMORY = /^\[\w+\] out of memory: needs \d+ bytes more with \d+ active, limit \d+\. Nothing was/

describe("a loop of far more bytes than the limit allows", () => {
  test("goes on, evaluated or handed over, in eager operations or from JavaScript's data", async () => {
    leave(24 * MB)
    let x = mx.zeros([512, 512])
    for (let i = 0; i < 200; i++) {
      x = x.add(1)
      mx.eval(x)
    }
    for (let i = 0; i < 200; i++) {
      x = x.add(1)
      mx.asyncEval(x)
    }
    for (let i = 0; i < 200; i++) {
      x = x.add(1)
      await mx.asyncEval(x)
    }
    expect(x.index(511, 511).item()).toBe(600)
    const data = new Float32Array(MB / 4).fill(2)
    let y = mx.array(data)
    for (let i = 0; i < 200; i++) y = mx.array(data)
    expect(y.index(7).item()).toBe(2)
    expect(mx.getActiveMemory()).toBeLessThanOrEqual(mx.setMemoryLimit(machine))
  })

  test("of arrays that take more memory than their elements", () => {
    const x = mx.zeros([3])
    mx.eval(x)
    for (const room of [20_000, 100_000, 1_000_000]) {
      leave(room)
      for (let i = 0; i < 20_000; i++) mx.eval(x.add(1))
    }
    expect(x.add(1).tolist()).toEqual([1, 1, 1])
  })
})

describe("small arrays between the steps of a chain, which nobody holds", () => {
  const x = mx.ones([10_000])
  const chain = (): mx.Array => {
    let y = x
    for (let i = 0; i < 300; i++) y = y.add(1).multiply(0.5)
    return y
  }

  test("need no room under a limit, at any call", () => {
    mx.eval(x)
    for (let call = 0; call < 4; call++) {
      leave(MB)
      const y = chain()
      mx.eval(y)
      expect(y.index(9_999).item()).toBe(1)
    }
  })

  test("are not kept where there is no limit", () => {
    mx.synchronize()
    mx.resetPeakMemory()
    const before = mx.getActiveMemory()
    const y = chain()
    mx.eval(y)
    expect(mx.getPeakMemory() - before).toBeLessThan(2 * MB)
  })

  test("keep their values where somebody does", () => {
    leave(MB)
    const held = x.add(1)
    const y = held.multiply(0.5).add(held)
    mx.eval(chain(), y)
    expect([held.index(7).item(), y.index(7).item()]).toEqual([2, 3])
  })
})

describe("an evaluation that does not fit", () => {
  const big = (): mx.Array => mx.arange(4 * MB, { dtype: mx.float32 }).add(1)

  test("is refused with what it needs, and is computed when there is room", async () => {
    const x = mx.ones([8]).add(1)
    const y = big()
    const sum = y.sum().add(x)
    leave(8 * MB)
    expect(() => mx.eval(y)).toThrow(OUT_OF_MEMORY)
    await expect(mx.asyncEval(sum, x)).rejects.toThrow(OUT_OF_MEMORY)
    await expect(y.data()).rejects.toThrow(mx.DeviceError)
    expect(() => mx.array(new Float32Array(4 * MB))).toThrow(OUT_OF_MEMORY)
    // An evaluation that fits is computed, also when asked for together with one that does not.
    expect(x.index(0).item()).toBe(2)
    mx.setMemoryLimit(machine)
    expect(sum.index(3).item()).toBe(Math.fround((y.sum().item() as number) + 2))
  })

  test("on several streams: the others go on", async () => {
    const s = mx.newStream(mx.cpu)
    const small = mx.add(mx.ones([64]), 1, { stream: s })
    const y = mx.stream(s, big)
    leave(8 * MB)
    const fine = mx.asyncEval(small)
    await expect(mx.asyncEval(y)).rejects.toThrow(OUT_OF_MEMORY)
    await fine
    expect(mx.multiply(small, 2).index(5).item()).toBe(4)
    mx.setMemoryLimit(machine)
    await mx.asyncEval(y)
    expect(y.index(-1).item()).toBe(4 * MB)
  })

  test("with a limit below what is in use: nothing is taken away, nothing is added", () => {
    const held = Array.from({ length: 4 }, (_, i) => filled(MB, i))
    mx.eval(held)
    mx.setMemoryLimit(MB)
    expect(held.map((a) => a.reshape([1024, 1024]).index(3, 3).item())).toEqual([0, 1, 2, 3])
    const more = held[1].add(1)
    expect(() => mx.eval(more)).toThrow(OUT_OF_MEMORY)
    mx.setMemoryLimit(mx.getActiveMemory())
    held[3].dispose()
    expect(more.index(0).item()).toBe(2)
  })

  test("counts what dies on the way only while it lives", () => {
    const x = filled(MB, 1)
    mx.eval(x)
    let y = x
    for (let i = 0; i < 50; i++) y = mx.tidy(() => y.add(1).reshape([1024, 1024]).T.flatten())
    leave(14 * MB)
    expect(y.index(0).item()).toBe(51)
  })

  test("counts intermediates whose handles are gone as such, at the first try", () => {
    const b = filled(MB, 1)
    mx.eval(b)
    const old = (): mx.Array => {
      const steps = [b]
      for (let i = 0; i < 20; i++) steps.push(steps[i].add(1))
      // Only a full collection finds handles that outlived some.
      for (let round = 0; round < 2; round++) mx.memoryReport()
      return steps[20]
    }
    const young = (): mx.Array => {
      let y = b.add(0)
      const garbage: number[][] = []
      for (let i = 0; i < 24; i++) {
        y = y.multiply(1).add(b)
        for (let k = 0; k < 1000; k++) garbage[k % 10] = [i, k]
      }
      return y
    }
    for (const [chain, value] of [
      [old, 21],
      [young, 25],
    ] as const) {
      leave(0)
      const y = chain()
      // A report would find them before the evaluation does.
      mx.setMemoryLimit(mx.getActiveMemory() + 40 * MB)
      mx.eval(y)
      expect(y.index(0).item()).toBe(value)
      mx.setMemoryLimit(machine)
    }
  })
})

describe("a training step that meets the limit", () => {
  /** Three steps, the second of which does not fit at first; or does. */
  async function train(kind: "eager" | "compiled" | "donated", wait: "eval" | "async", limited: boolean) {
    mx.random.seed(3)
    const model = new nn.Linear(64, 512)
    const optimizer = new optim.Adam({ learningRate: 1e-2 })
    optimizer.init(model)
    const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array) =>
      mx.mean(mx.square(mx.tanh(model.forward(x)))),
    )
    const update = (x: mx.Array): mx.Array => {
      const [loss, gradient] = lossAndGradient(x)
      optimizer.update(model, gradient)
      return loss
    }
    const state = [model.state, optimizer.state]
    const step =
      kind === "eager"
        ? update
        : mx.compile(update, { inputs: state, outputs: state, donate: kind === "donated" })
    const [small, large] = [mx.random.normal([16, 64]), mx.random.normal([8192, 64])]
    mx.eval(small, large, state)
    const settle = async (loss: mx.Array): Promise<void> => {
      if (wait === "eval") mx.eval(loss, state)
      else await mx.asyncEval(loss, state)
    }
    const losses: mx.Array[] = []
    losses.push(step(small))
    await settle(losses[0])
    if (limited) leave(4 * MB)
    losses.push(step(large))
    if (limited) {
      await expect(settle(losses[1])).rejects.toThrow(OUT_OF_MEMORY)
      expect(losses[0].item()).toBeGreaterThan(0)
      mx.setMemoryLimit(machine)
    }
    await settle(losses[1])
    losses.push(step(small))
    await settle(losses[2])
    return { losses: losses.map((loss) => loss.item()), weight: model.weight.tolist() }
  }

  for (const kind of ["eager", "compiled", "donated"] as const)
    for (const wait of ["eval", "async"] as const)
      test(`loses nothing: ${kind}, ${wait}`, async () => {
        const [met, free] = [await train(kind, wait, true), await train(kind, wait, false)]
        expect(met).toEqual(free)
      })
})

describe("the cache", () => {
  test("keeps as much as it may, and can be emptied", () => {
    mx.clearCache()
    const before = mx.setCacheLimit(2 * MB)
    expect(before).toBeGreaterThan(2 * MB)
    try {
      const parts = Array.from({ length: 8 }, (_, i) => filled(MB / 4, i))
      mx.eval(parts)
      for (const part of parts) part.dispose()
      mx.synchronize()
      expect(mx.getCacheMemory()).toBeLessThanOrEqual(2 * MB)
      expect(mx.getCacheMemory()).toBeGreaterThan(0)
      mx.clearCache()
      expect(mx.getCacheMemory()).toBe(0)
      expect(mx.setCacheLimit(0)).toBe(2 * MB)
      mx.eval(filled(MB, 1).add(1))
      mx.memoryReport()
      expect(mx.getCacheMemory()).toBe(0)
    } finally {
      mx.setCacheLimit(before)
    }
    expect(mx.setCacheLimit(before)).toBe(before)
  })

  test("gives way to what lives", () => {
    leave(40 * MB)
    const parts = Array.from({ length: 32 }, (_, i) => filled(MB / 4, i))
    mx.eval(parts)
    for (const part of parts) part.dispose()
    mx.synchronize()
    const x = filled(8 * MB, 1)
    mx.eval(x)
    expect(mx.getActiveMemory() + mx.getCacheMemory()).toBeLessThanOrEqual(mx.setMemoryLimit(machine))
  })
})

describe("the peak and the report", () => {
  test("count what runs beside the program", async () => {
    mx.memoryReport()
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const s = mx.newStream(mx.cpu)
    const parts = [mx.exp(filled(MB, 1)), mx.stream(s, () => mx.exp(filled(MB, 2)))]
    await mx.asyncEval(parts)
    expect(mx.getPeakMemory() - before).toBeGreaterThanOrEqual(8 * MB)
    const { byOp, active } = mx.memoryReport()
    expect(byOp.find(({ op }) => op === "exp")).toEqual({ op: "exp", buffers: 2, bytes: 8 * MB })
    expect(active - before).toBeLessThan(8 * MB + 4096)
    for (const part of parts) part.dispose()
    mx.synchronize()
    mx.synchronize(s)
    expect(mx.memoryReport().byOp.find(({ op }) => op === "exp")).toBeUndefined()
  })

  test("name what a compiled function keeps", () => {
    const f = mx.compile((x: mx.Array) => [x.exp().add(1), x.sum()])
    const kept = f(filled(MB, 1))
    mx.eval(kept)
    const report = mx.memoryReport()
    expect(report.byOp.find(({ bytes }) => bytes >= 4 * MB)?.op).toBe("@lazuli/compile/program")
    expect(report.byOp.reduce((sum, { buffers }) => sum + buffers, 0)).toBe(report.buffers)
  })
})

describe("any program under any limit", () => {
  for (const seed of [1, 2, 3, 4]) {
    test(`gives its results or is refused, seed ${seed}`, async () => {
      const pick = integers(seed)
      const size = 128 * 1024
      const held: { array: mx.Array; value: number }[] = [{ array: mx.ones([size]), value: 1 }]
      let refused = 0
      for (let i = 0; i < 200; i++) {
        const [x, y] = [held[pick(held.length)], held[pick(held.length)]]
        held.push(
          pick(2)
            ? { array: x.array.add(y.array).multiply(0.5), value: (x.value + y.value) / 2 }
            : { array: x.array.reshape([256, -1]).T.reshape([-1]).subtract(1), value: x.value - 1 },
        )
        if (held.length > 12) held.splice(pick(6), pick(5))
        if (pick(5) > 0) continue
        mx.setMemoryLimit(mx.getActiveMemory() + (pick(4) * MB) / 4)
        const { array } = held[pick(held.length)]
        try {
          if (pick(2)) mx.eval(array)
          else await mx.asyncEval(array)
        } catch (error) {
          expect((error as Error).message).toMatch(OUT_OF_MEMORY)
          refused++
        }
        mx.setMemoryLimit(machine)
      }
      expect(refused).toBeGreaterThan(0)
      for (const { array, value } of held) expect(array.index(12345).item()).toBeCloseTo(value, 3)
    })
  }
})
