/**
 * Several streams on the test double, where a stream does nothing until somebody waits for it: what was not ordered reads memory that was
 * not written yet.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { afterEach, beforeAll, expect, it, vi } from "vitest"
import { failing } from "../test/double"
import { cudaRuntime } from "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})
afterEach(() => {
  vi.restoreAllMocks()
})
const streams = Array.from({ length: 3 }, () => mx.newStream(mx.gpu))
const onEach = <T>(body: (s: mx.Stream, i: number) => T): T[] =>
  streams.map((s, i) => mx.stream(s, () => body(s, i)))

it("wait for each other where one reads what another makes", () => {
  const [a, b] = streams
  const x = mx.stream(a, () => mx.arange(1000).astype(mx.float32).add(1))
  const y = mx.stream(b, () => x.multiply(2).sum())
  const z = mx.stream(a, () => y.add(x.index(0)))
  expect(mx.stream(b, () => z.multiply(1)).item()).toBe(1_001_001)
}, 60_000)

it("wait for memory that another one still reads or writes", () => {
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
  expect(run((drawn) => streams[drawn])).toEqual(run(() => mx.cpu))
}, 60_000)

it("are streams of the driver, and work of one is waited for alone", () => {
  const waits = vi.spyOn(cudaRuntime, "synchronize")
  const all = onEach((_, i) => mx.ones([10]).multiply(i + 1))
  mx.eval(all)
  mx.synchronize(streams[1])
  expect(waits.mock.calls).toHaveLength(1)
  expect(all.map((each) => each.index(0).item())).toEqual([1, 2, 3])
})

it("keep what went wrong with the arrays that have no value for it", () => {
  const kept = onEach((_, i) => mx.full([4], i).add(1))
  mx.eval(kept)
  const lost = mx.stream(streams[1], () => mx.ones([3]).multiply(3))
  expect(() => failing("launch", () => mx.eval(lost))).toThrow("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
  expect(() => mx.stream(streams[2], () => lost.add(1)).tolist()).toThrow(
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
  )
  expect(
    onEach((_, i) =>
      kept[i]
        .add(kept[(i + 1) % 3])
        .index(0)
        .item(),
    ),
  ).toEqual([3, 5, 4])
})

it("run products of their own memory, and graphs", () => {
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
