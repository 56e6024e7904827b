/**
 * Several streams on the Apple runtime: each has a queue of Metal's, and events order them. The fake under it ends the process where
 * work reads what another queue writes with no event between.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { appleBackend } from "../test/apple-backend"
import { fake } from "../test/fake-metal"

const ENCODER = "MTLComputeCommandEncoder"
let streams: mx.Stream[] = []
beforeAll(() => {
  mx.setBackend("apple", "gpu")
  mx.setDefaultDevice(mx.gpu)
  streams = Array.from({ length: 3 }, () => mx.newStream(mx.gpu))
})
const onEach = <T>(body: (s: mx.Stream, i: number) => T): T[] =>
  streams.map((s, i) => mx.stream(s, () => body(s, i)))

it("have a queue each, which events order where one reads what another makes", () => {
  const [a, b] = streams
  fake.forgetMessages()
  const x = mx.stream(a, () => mx.arange(1000).astype(mx.float32).add(1))
  const y = mx.stream(b, () => x.multiply(2).sum())
  const z = mx.stream(a, () => y.add(x.index(0)))
  expect(mx.stream(b, () => z.multiply(1)).item()).toBe(1_001_001)
  const messages = fake.messages()
  // The first with the device.
  expect(messages["MTLDevice newCommandQueue"]).toBe(2)
  expect(messages["MTLCommandBuffer encodeWaitForEvent:value:"]).toBe(3)
  expect(messages[`${ENCODER} updateFence:`]).toBe(messages[`${ENCODER} endEncoding`])
})

it("that have nothing to do with each other wait for nothing", () => {
  const xs = onEach((_, i) => mx.full([100], i).add(1))
  mx.eval(xs)
  fake.forgetMessages()
  const ys = onEach((_, i) => {
    let y = xs[i]
    for (let k = 0; k < 30; k++) y = y.multiply(2).remainder(97)
    return y
  })
  mx.eval(ys)
  expect(fake.messages()["MTLCommandBuffer encodeWaitForEvent:value:"]).toBeUndefined()
  expect(fake.messages()["MTLCommandBuffer commit"]).toBeGreaterThan(3)
})

it("wait for memory that another one still reads or writes", async () => {
  let seed = 7
  const below = (n: number): number => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31
    return Math.floor((seed / 2 ** 31) * n)
  }
  const run = (streamOf: (drawn: number) => mx.Stream | mx.Device): unknown => {
    seed = 7
    let live = [1, 2, 3].map((n) => mx.full([300], n))
    for (let step = 0; step < 300; step++) {
      const [i, j] = [below(live.length), below(live.length)]
      const made = mx
        .stream(streamOf(below(3)), () =>
          below(3) === 0 ? live[i].multiply(live[j].reshape(300, 1).sum()) : live[i].add(live[j]),
        )
        .remainder(17)
      live = [made, ...live].slice(0, 6)
      // Memory goes back while work waits, and serves the next stream that asks.
      if (step % 5 === 0) mx.eval(live)
    }
    return live.map((each) => each.tolist())
  }
  await appleBackend.rehearse(() => run(() => mx.gpu))
  expect(run((drawn) => streams[drawn])).toEqual(run(() => mx.cpu))
}, 60_000)

it("go on where the work of another one fails, without its arrays", () => {
  const kept = onEach((_, i) => mx.full([4], i).add(1))
  mx.eval(kept)
  const seen = new Set<string>()
  // Every call of two streams' work that may fail, those that hand work over among them.
  for (let call = 1; call <= 10; call++) {
    const lost = mx.stream(streams[1], () => kept[1].multiply(3))
    const after = mx.stream(streams[2], () => lost.add(kept[2]))
    fake.failAt(call, 8)
    try {
      expect(after.tolist()).toEqual([9, 9, 9, 9])
    } catch (error) {
      seen.add((error as Error).message.replace(/^.*?\] /, "").replace(/:.*/, ""))
    }
    fake.failAt(0)
    expect(
      onEach((_, i) =>
        kept[i]
          .add(kept[(i + 1) % 3])
          .index(0)
          .item(),
      ),
    ).toEqual([3, 5, 4])
  }
  expect(seen.size).toBeGreaterThan(3)
  expect(seen).toContain("the GPU has no memory for its work")
}, 60_000)

it("run recorded programs", () => {
  const f = compile((x: mx.Array) => {
    let y = x
    for (let i = 0; i < 6; i++) y = mx.cumsum(y.matmul(x), 0).multiply(0.25)
    return y
  })
  const x = mx.eye(3).add(0.5)
  mx.eval(x)
  const want = mx.stream(mx.cpu, () => f(mx.eye(3).add(0.5)) as mx.Array).tolist() as number[][]
  for (let call = 0; call < 4; call++) {
    const got = onEach(() => f(x) as mx.Array)
    mx.eval(got)
    for (const each of got)
      (each.tolist() as number[][]).flat().forEach((v, i) => {
        expect(v).toBeCloseTo(want.flat()[i], 3)
      })
  }
}, 60_000)
