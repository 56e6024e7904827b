/** Compiled functions on several streams and devices: what names a stream runs there, as when it is not compiled. */
import "@lazuli/backend-metal"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { backendOf, type Storage } from "@lazuli/core/engine"
import { mx } from "lazuli"
import { afterEach, describe, expect, test } from "vitest"

type Unary = (x: mx.Array) => mx.Array

/** The device that computed an array. */
const deviceOf = (x: mx.Array): string => {
  mx.eval(x)
  return backendOf((x.node.storage as Storage).memory).device
}

afterEach(() => mx.setDefaultDevice(mx.cpu))

const twice = mx.fast.metalKernel({
  name: "twice",
  inputNames: ["x"],
  outputNames: ["y"],
  source: "uint i = thread_position_in_grid.x; y[i] = 2 * x[i];",
})
const doubled = (x: mx.Array): mx.Array =>
  twice({
    inputs: [x],
    grid: [x.size, 1, 1],
    threadgroup: [x.size, 1, 1],
    outputShapes: [x.shape],
    outputDtypes: [mx.float32],
  })[0]

const s = mx.newStream(mx.cpu)
const functions: Record<string, readonly [Unary, string]> = {
  "an operation's stream": [(x) => mx.cosh(x, { stream: mx.gpu }), "gpu"],
  "a stream around a part": [(x) => mx.stream(mx.gpu, () => x.exp().add(1)), "gpu"],
  "all on another stream of the device": [(x) => mx.stream(s, () => x.exp().add(1)), "cpu"],
  "a custom kernel": [(x) => doubled(x), "gpu"],
  "a custom kernel between": [(x) => doubled(x.exp()).add(1).sin(), "cpu"],
  "to and fro": [(x) => mx.exp(mx.sin(x, { stream: mx.gpu }).add(1), { stream: "gpu" }).multiply(x), "cpu"],
  "several streams of a device": [(x) => mx.sin(x.add(1), { stream: s }).add(x.sum()), "cpu"],
  "the processor by name": [(x) => mx.cosh(x, { stream: mx.cpu }), "cpu"],
  "one of two results": [(x) => mx.split(mx.sin(x, { stream: mx.gpu }), 2)[1].add(1), "cpu"],
}

describe.each(Object.entries(functions))("%s", (name, [f, device]) => {
  const x = mx.array([0.1, 0.2, 0.3, 0.4])
  for (const shapeless of [false, true])
    test(shapeless ? "shapeless" : "of these sizes", () => {
      const g = mx.compile((v: mx.Array) => f(v), { shapeless })
      // The kernel is called with sizes, which stay those of the first call.
      const others = shapeless && name.startsWith("a custom") ? [] : [mx.arange(6).astype(mx.float32)]
      for (const given of [x, x.add(1), ...others]) {
        const [expected, got] = [f(given), g(given)]
        expect([deviceOf(expected), deviceOf(got)]).toEqual([device, device])
        expect(mx.allclose(got, expected, 1e-6).item()).toBe(true)
      }
      expect(g.stats().traces).toBe(shapeless ? 1 : 2)
    })

  test("under a gradient and a batch", () => {
    const loss = (v: mx.Array): mx.Array => mx.cosh(v, { stream: mx.gpu }).multiply(v).sum()
    const g = mx.grad(mx.compile(loss))
    expect(mx.allclose(g(x), mx.grad(loss)(x), 1e-6).item()).toBe(true)
    expect(mx.vmap(mx.compile(loss))(x.reshape([2, 2])).shape).toEqual([2])
  })
})

test("the default device is that of the call", () => {
  const x = mx.array([0.1, 0.2])
  const follows = mx.compile((v: mx.Array) => v.exp().add(1))
  const stays = mx.compile((v: mx.Array) => [
    v.exp(),
    mx.add(v, 1, { stream: mx.cpu }),
    mx.sin(v, { stream: mx.gpu }),
  ])
  const devices = (): string[] => [follows(x), ...stays(x)].map(deviceOf)
  expect(devices()).toEqual(["cpu", "cpu", "cpu", "gpu"])
  mx.setDefaultDevice(mx.gpu)
  expect(devices()).toEqual(["gpu", "gpu", "cpu", "gpu"])
  mx.setDefaultDevice(mx.cpu)
  expect(devices()).toEqual(["cpu", "cpu", "cpu", "gpu"])
  expect([follows.stats().traces, stays.stats()]).toMatchObject([1, { traces: 2, programs: 2 }])
  mx.stream(mx.gpu, () => {
    expect(deviceOf(mx.grad((v: mx.Array) => follows(v).sum())(x))).toBe("gpu")
  })
})

test("state that a step on the GPU changes", () => {
  const state = { w: mx.array([1, 2]) }
  const step = mx.compile(
    (g: mx.Array) => {
      state.w = mx.subtract(state.w, g, { stream: mx.gpu })
      return state.w.sum()
    },
    { inputs: state, outputs: state },
  )
  expect([step(mx.array([1, 1])).item(), step(mx.array([1, 1])).item()]).toEqual([1, -1])
  expect(state.w.tolist()).toEqual([-1, 0])
})

test("explain tells of every part", () => {
  const f = mx.compile((x: mx.Array) => mx.sin(x.add(1), { stream: mx.gpu }).multiply(2))
  const { applications, kernels, steps } = f.explain(mx.array([1]))
  expect([applications, kernels, steps.flatMap(({ operations }) => operations)]).toEqual([
    3,
    3,
    ["add", "sin", "multiply"],
  ])
})

test("files keep the device", () => {
  const path = join(tmpdir(), `lazuli-streams-${process.pid}.lazuli`)
  const f = (x: mx.Array): mx.Array[] => [mx.cosh(x, { stream: mx.gpu }), x.add(1)]
  mx.exportFunction(path, f, [mx.ones([2])])
  const g = mx.importFunction<[mx.Array], mx.Array[]>(path)
  expect(g(mx.zeros([2])).map(deviceOf)).toEqual(["gpu", "cpu"])
})
