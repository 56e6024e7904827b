/** Work that runs beside JavaScript: asynchronous evaluation, streams that wait for each other, errors and memory on the way. */

import { generator } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { lifetimes } from "@lazuli/core/engine"
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest"
import "./index"
import { native } from "./native"
import { main, queueOf, storages } from "./queues"

const MB = 2 ** 20
const GATE = 4000
native.attachCommands(new ArrayBuffer(8), GATE)

/** Keeps a stream's work from running until `open` is called: by the test, or after it. */
function hold(stream = mx.defaultStream(mx.cpu)): { open: () => void } {
  const queue = queueOf(stream)
  const ticket = native.done(GATE) + 1
  queue.reserve(3)
  queue.commands.wait(GATE, ticket)
  mx.asyncEval(mx.add(mx.zeros([1]), 1, { stream }))
  const open = (): void => {
    if (native.done(GATE) < ticket) native.run(0, GATE)
  }
  onTestFinished(open)
  return { open }
}

test("work tells that it is done while more waits behind it", async () => {
  const x = mx.ones([200, 200])
  mx.eval(x)
  for (let round = 0; round < 200; round++) {
    const first = x.matmul(x)
    const done = mx.asyncEval(first)
    const behind = mx.asyncEval(first.exp().sum().add(round))
    await done
    await behind
  }
})

describe("errors of work that was handed over", () => {
  const singular = (): mx.Array => mx.linalg.inv(mx.zeros([3, 3]))

  test("belong to what depends on it, and are thrown by nothing else", async () => {
    const bad = singular()
    const promise = mx.asyncEval(bad)
    promise.catch(() => {})
    expect(mx.array(1).add(1).item()).toBe(2)
    mx.eval(mx.ones([2]).add(1))
    expect(() => bad.tolist()).toThrow(mx.NumericError)
    expect(() => bad.add(1).item()).toThrow()
    expect(mx.array(2).add(1).item()).toBe(3)
    await expect(promise).rejects.toThrow(mx.NumericError)
  })

  test("are not thrown by other arrays of the same stream that were encoded with them", async () => {
    const [bad, good] = [singular(), mx.ones([2]).add(1)]
    const both = [mx.asyncEval(bad), mx.asyncEval(good)]
    both[0].catch(() => {})
    await both[1]
    expect(good.tolist()).toEqual([2, 2])
    await expect(both[0]).rejects.toThrow(mx.NumericError)
    // Nor forgotten where others ask meanwhile what is done.
    for (let i = 0; i < 20; i++) {
      const x = singular()
      mx.asyncEval(x).catch(() => {})
      while (main.isBusy());
      mx.eval(mx.ones([2]).add(1))
      expect(() => x.tolist()).toThrow(mx.NumericError)
    }
    // A failure whose array is gone is nobody's.
    mx.asyncEval(singular()).catch(() => {})
    lifetimes.collectGarbage()
    expect(mx.array(3).multiply(2).item()).toBe(6)
  })
})

describe("asyncEval", () => {
  test("lets JavaScript go on while work runs", async () => {
    const before = mx.ones([3]).add(1)
    mx.eval(before)
    const gate = hold()
    const x = before.multiply(4)
    const promise = mx.asyncEval(x)
    let settled = false
    promise.then(() => {
      settled = true
    })
    // Done work can be read, new arrays can be made, more can be handed over.
    expect(before.tolist()).toEqual([2, 2, 2])
    const later = mx.array([1, 2, 3]).add(x)
    const second = mx.asyncEval(later)
    await new Promise((resolve) => setTimeout(resolve, 5))
    expect([settled, main.isBusy()]).toEqual([false, true])
    gate.open()
    await promise
    expect(x.tolist()).toEqual([8, 8, 8])
    await second
    expect(later.tolist()).toEqual([9, 10, 11])
  })

  test("waits where a value is needed, and nowhere else", () => {
    const a = mx.ones([2]).add(1)
    const b = a.add(1)
    mx.asyncEval(a)
    mx.asyncEval(b)
    expect(a.add(b).tolist()).toEqual([5, 5])
    expect(b.tolist()).toEqual([3, 3])
    const s = mx.newStream(mx.cpu)
    const gate = hold(s)
    const slow = mx.multiply(a, 10, { stream: s })
    const promise = mx.asyncEval(slow)
    // Another stream's evaluation does not wait for this one's.
    expect(b.multiply(2).tolist()).toEqual([6, 6])
    expect(queueOf(s).isBusy()).toBe(true)
    gate.open()
    expect(slow.add(b).tolist()).toEqual([23, 23])
    return promise
  })

  test("leaves nothing to be called in a loop that never yields", () => {
    const { then } = Promise.prototype
    let handlers = 0
    const spy = vi.spyOn(Promise.prototype, "then").mockImplementation(function (
      this: Promise<unknown>,
      ...args
    ) {
      handlers++
      return then.apply(this, args as never)
    } as typeof then)
    let x = mx.zeros([4])
    for (let i = 0; i < 3000; i++) {
      x = x.add(1)
      mx.asyncEval(x)
      if (i % 3 === 0) mx.asyncEval()
    }
    spy.mockRestore()
    expect(handlers).toBe(0)
    expect(x.tolist()).toEqual([3000, 3000, 3000, 3000])
  })

  test("of nothing, of what is done, and twice of the same", async () => {
    const x = mx.ones([2])
    await mx.asyncEval()
    await Promise.all([mx.asyncEval(x), mx.asyncEval(x), mx.asyncEval({ x: [x] })])
    await mx.asyncEval(x)
    expect(await x.add(1).data()).toEqual(new Float32Array([2, 2]))
    const t = mx.arange(4, { dtype: mx.float32 }).reshape([2, 2]).T
    expect(await t.data()).toEqual(new Float32Array([0, 2, 1, 3]))
  })

  test("data() gives what the handle showed when it was asked for, whatever becomes of the handle", async () => {
    const make = (): mx.Array => mx.arange(1000).add(1)
    const disposed = make()
    const first = disposed.data()
    disposed.dispose()
    const changed = make()
    const second = changed.data()
    changed.set([0], 99)
    const third = mx.tidy(() => [make().data()])[0]
    const want = [...Array(1000).keys()].map((i) => i + 1)
    for (const read of [first, second, third]) expect([...((await read) as Int32Array)]).toEqual(want)
  })

  test("an error surfaces at the await, at the next use, and spares the rest", async () => {
    const x = mx.array([1, 2, 3])
    const bad = mx.take(x, mx.array([7], mx.int32))
    const fine = x.add(1)
    const promise = mx.asyncEval(bad, fine)
    const dependent = bad.multiply(2)
    const both = mx.asyncEval(dependent)
    await expect(promise).rejects.toThrow(mx.IndexError)
    await expect(both).rejects.toThrow("[gather] index 7 is out of bounds for axis 0 with size 3")
    expect(fine.tolist()).toEqual([2, 3, 4])
    expect(() => bad.tolist()).toThrow(mx.IndexError)
    expect(() => dependent.add(1).tolist()).toThrow(mx.IndexError)
    await expect(bad.data()).rejects.toThrow(mx.IndexError)
    // The memory of what failed is used again.
    bad.dispose()
    for (let i = 0; i < 50; i++) expect(mx.array([i]).add(1).item()).toBe(i + 1)
  })

  test("an error in work that was handed over twice stays with its own array", () => {
    const x = mx.array([1, 2, 3])
    const gate = hold()
    const bad = mx.take(x, mx.array([9], mx.int32))
    mx.asyncEval(bad)
    const after = Array.from({ length: 40 }, (_, i) => x.add(i))
    mx.asyncEval(after)
    const late = bad.add(after[0])
    mx.asyncEval(late)
    gate.open()
    expect(after.map((a) => a.index(0).item())).toEqual(after.map((_, i) => i + 1))
    expect(() => late.tolist()).toThrow("index 9 is out of bounds")
    mx.eval(after)
  })

  test("a limit of memory is an error of what would pass it", async () => {
    const before = mx.setMemoryLimit(mx.getActiveMemory() + 8 * MB)
    try {
      const big = mx.zeros([16, 1024, 1024]).add(1)
      const small = mx.ones([4]).add(1)
      await expect(mx.asyncEval(small, big)).rejects.toThrow(/out of memory: needs \d+ bytes more/)
      expect(small.tolist()).toEqual([2, 2, 2, 2])
    } finally {
      mx.setMemoryLimit(before)
    }
  })

  test("a primitive that runs in JavaScript runs too", async () => {
    const addIndex = mx.definePrimitive({
      name: "@lazuli/test/addIndexLater",
      infer: ([x]) => x,
      reference: ([x], [out]) => {
        for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i] + i
      },
    })
    const x = mx.ones([3]).multiply(2)
    mx.asyncEval(x)
    const y = addIndex([x]).multiply(10)
    await mx.asyncEval(y)
    expect(y.tolist()).toEqual([20, 30, 40])
  })
})

describe("streams", () => {
  test("run at once, and wait for what they read of each other", () => {
    const [s, t] = [mx.newStream(mx.cpu), mx.newStream(mx.cpu)]
    const gate = hold(s)
    const a = mx.add(mx.ones([8]), 1, { stream: s })
    mx.asyncEval(a)
    const b = mx.multiply(mx.arange(8, { dtype: mx.float32 }), 2, { stream: t })
    // t does not wait for s …
    expect(b.index(3).item()).toBe(6)
    const c = mx.add(a, b, { stream: t })
    const promise = mx.asyncEval(c)
    expect(queueOf(t).isBusy()).toBe(true)
    gate.open()
    // … and here it did.
    expect(c.tolist()).toEqual([2, 4, 6, 8, 10, 12, 14, 16])
    mx.synchronize(s)
    mx.synchronize(t)
    expect(queueOf(s).isBusy() || queueOf(t).isBusy()).toBe(false)
    return promise
  })

  test("an error crosses streams", () => {
    const s = mx.newStream(mx.cpu)
    const bad = mx.take(mx.zeros([2]), mx.array([5], mx.int32), { stream: s })
    const after = bad.add(1)
    expect(() => mx.eval(after)).toThrow(mx.IndexError)
    expect(() => bad.tolist()).toThrow(mx.IndexError)
  })

  test("memory that another stream reads is not given away before it has", () => {
    const s = mx.newStream(mx.cpu)
    const x = mx.arange(1000, { dtype: mx.float32 }).add(0)
    mx.eval(x)
    const gate = hold(s)
    const y = mx.multiply(x, 2, { stream: s })
    mx.asyncEval(y)
    x.dispose()
    // A new owner of that block must not write into what s will read.
    const others = Array.from({ length: 20 }, () => mx.zeros([1000]).subtract(1))
    mx.eval(others)
    gate.open()
    expect(y.index(999).item()).toBe(1998)
    expect(others[7].sum().item()).toBe(-1000)
  })
})

describe("any program gives the same, however it is evaluated", () => {
  for (const seed of [1, 2, 3]) {
    test(`seed ${seed}`, async () => {
      const random = generator(seed)
      const pick = (n: number): number => Math.floor(random() * n)
      const streams = [mx.defaultStream(mx.cpu), mx.newStream(mx.cpu), mx.newStream(mx.cpu)]
      const sizes = [3, 20_000]
      const held: { array: mx.Array; expected: Float32Array }[] = []
      const add = (size: number): void => {
        const data = Float32Array.from({ length: size }, (_, i) => (i + pick(9)) % 17)
        held.push({ array: mx.array(data), expected: data })
      }
      for (const size of sizes) add(size)
      const promises: Promise<unknown>[] = []
      for (let step = 0; step < 250; step++) {
        const x = held[pick(held.length)]
        const same = held.filter(({ expected }) => expected.length === x.expected.length)
        const y = same[pick(same.length)]
        const stream = streams[pick(3)]
        const kind = pick(3)
        const array =
          kind === 0
            ? mx.add(x.array, y.array, { stream })
            : kind === 1
              ? mx.maximum(x.array, y.array, { stream })
              : mx.stream(stream, () => x.array.index("::-1").multiply(0.5))
        const expected =
          kind === 0
            ? x.expected.map((v, i) => Math.fround(v + y.expected[i]))
            : kind === 1
              ? x.expected.map((v, i) => Math.max(v, y.expected[i]))
              : x.expected
                  .slice()
                  .reverse()
                  .map((v) => v * 0.5)
        held.push({ array, expected })
        const chosen = held[pick(held.length)]
        switch (pick(6)) {
          case 0:
            mx.eval(chosen.array)
            break
          case 1:
          case 2:
            promises.push(mx.asyncEval(chosen.array))
            break
          case 3:
            expect(chosen.array.index(0).item()).toBe(chosen.expected[0])
            break
          case 4:
            if (held.length > 10) held.splice(pick(held.length), 1)[0].array.dispose()
            if (held.length < 3) for (const size of sizes) add(size)
            break
          default:
            add(sizes[pick(2)])
        }
        if (pick(60) === 0) await promises.pop()
        if (pick(100) === 0) mx.synchronize(stream)
        // Dropping handles lets their memory be used by what comes next.
        if (held.length > 14) held.splice(0, 5)
        if (held.length === 0) for (const size of sizes) add(size)
      }
      await Promise.all(promises)
      for (const { array, expected } of held) expect(array.toTypedArray()).toEqual(expected)
    })
  }
})

describe("memory", () => {
  test("stays flat where nobody awaits", () => {
    const x = mx.zeros([512, 512])
    mx.eval(x)
    mx.resetPeakMemory()
    let [living, behind] = [0, 0]
    for (let i = 0; i < 2000; i++) {
      mx.asyncEval(x.add(i))
      if (i % 10 > 0) continue
      living = Math.max(living, storages.filter(({ refs, nbytes }) => refs > 0 && nbytes === MB).length)
      behind = Math.max(behind, main.open - 1 - native.done(main.id))
    }
    // 2,000 arrays of 1 MB were made. However late the queue is: this thread lets go of what nobody can read, and does not run far ahead.
    expect(living).toBeLessThanOrEqual(300)
    expect(behind).toBeLessThanOrEqual(130)
    // Memory that it let go of and the queue has not given back yet comes on top.
    expect(mx.getPeakMemory()).toBeLessThan(600 * MB)
  })

  test("is given back when the work that uses it is done", async () => {
    lifetimes.collectGarbage()
    mx.synchronize()
    const before = mx.getActiveMemory()
    const x = mx.ones([MB]).add(1)
    const gate = hold()
    const promise = mx.asyncEval(x)
    const staged = mx.array(new Float32Array(MB))
    const y = staged.add(x)
    const second = mx.asyncEval(y)
    staged.dispose()
    x.dispose()
    gate.open()
    await promise
    await second
    expect((await y.data())[5]).toBe(2)
    y.dispose()
    mx.synchronize()
    expect(mx.getActiveMemory() - before).toBeLessThan(MB)
  })
})

afterAll(() => {
  expect(main.isBusy()).toBe(false)
})
