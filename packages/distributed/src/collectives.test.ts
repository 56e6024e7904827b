/** The collectives as primitives, with every rule, in a group of two of which one is this process. */
import { compile } from "@lazuli/compile"
import { formatChecks, opCheck, standardColumns } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { grad, vmap } from "@lazuli/transforms"
import { expect, test } from "vitest"
import { gatherParameters, recv, scatterGradients } from "./collectives"
import { type Communicator, numberOf, type Work } from "./communicators"

const ran: string[] = []

/** The other member has zeros, so that what one member's arrays do to the results can be told from here. */
const silent: Communicator = {
  backend: "silent",
  rank: 0,
  size: 2,
  split: () => silent,
  run({ kind, input, output }: Work): void {
    ran.push(kind)
    const half = input.length / 2
    output.fill(0)
    output.set(kind === "sumScatter" || kind === "allToAll" ? input.subarray(0, half) : input)
  },
}
const group = numberOf(silent)
const size = 2
const inputs = [
  mx.array(Float64Array.of(1, -2, 3, 5)),
  mx.array(Float64Array.of(1, 2, 3, 4, 5, 6)).reshape([2, 3]),
]

const params = {
  allReduce: { group, reduction: "sum", structure: 0, derivative: 0 },
  allGather: { group, size, derivative: 0 },
  sumScatter: { group, size, derivative: 0 },
  allToAll: { group, size, derivative: 0 },
  broadcast: { group, root: 0, derivative: 0 },
  send: { group, to: 1, serial: 1 },
  recvLike: { group, from: 1, serial: 1 },
  barrier: { group, serial: 1 },
  sumGradients: { group },
  scatterGradients: { group, size, derivative: 0 },
}

test.each(Object.entries(params))("%s keeps what its definition promises", (name, its) => {
  const report = opCheck(
    `@lazuli/distributed/${name}`,
    inputs.map((x) => ({ inputs: [x], params: its })),
  )
  expect(formatChecks(report.ok ? [] : [report])).toBe(formatChecks([]))
})

test("recv keeps what its definition promises", () => {
  const report = opCheck("@lazuli/distributed/recv", [
    { inputs: [], params: { group, from: 1, serial: 1, shape: [2, 3], dtype: mx.float32 } },
  ])
  expect(formatChecks(report.ok ? [] : [report])).toBe(formatChecks([]))
})

test("a batch receives a message for each example", () => {
  const its = { group, from: 1, serial: 1 }
  const shapes: (readonly number[])[] = []
  const receive = (x: mx.Array): mx.Array =>
    vmap((y: mx.Array) => {
      const one = recv([], { ...its, shape: [3], dtype: mx.float64 })
      shapes.push(one.shape)
      return one.add(y)
    })(x)
  ran.length = 0
  expect(receive(inputs[1]).tolist()).toEqual(inputs[1].tolist())
  expect([ran, shapes]).toEqual([["recv"], [[3]]])
  expect(vmap((_x: mx.Array) => recv([], { ...its, shape: [3], dtype: mx.int8 }))(inputs[1]).shape).toEqual([
    2, 3,
  ])
  expect(receive(mx.zeros([0, 3])).shape).toEqual([0, 3])
})

test("averages of float16 hold what their sums would not", () => {
  const twin: Communicator = {
    backend: "twin",
    rank: 0,
    size: 2,
    split: () => twin,
    run({ kind, input, output }: Work): void {
      const [from, to] = [input, output].map(
        (x) => new Float32Array(x.buffer, x.byteOffset, x.byteLength / 4),
      )
      if (kind === "sumScatter") to.set(from.subarray(0, to.length).map((x) => 2 * x))
      else for (let i = 0; i < to.length; i += from.length) to.set(from, i)
    },
  }
  const x = mx.array([1, 2], mx.float16)
  const loss = (y: mx.Array): mx.Array =>
    gatherParameters
      .all([y], { group: numberOf(twin), size, derivative: 0 })[0]
      .multiply(40_000)
      .astype(mx.float32)
      .sum()
  const g = grad(loss)(x)
  expect(g.dtype).toBe(mx.float16)
  expect(g.tolist()).toEqual([40_000, 40_000])
})

test.each(["scatterGradients", "gatherParameters"])("%s does so for several arrays", (name) => {
  // Of gathered parameters the gradient is the average of the members' losses, not of their sum.
  const own = name === "gatherParameters" ? ["vjp", "dtypes"] : []
  const columns = standardColumns().filter((column) => !own.includes(column.name))
  const report = opCheck(
    `@lazuli/distributed/${name}`,
    [{ inputs, params: { group, size, derivative: 0 } }],
    { columns },
  )
  expect(formatChecks(report.ok ? [] : [report])).toBe(formatChecks([]))
})

test("a number is gathered as one row, and has a gradient that is a number", () => {
  const sum = (x: mx.Array): mx.Array => gatherParameters.all([x], { group, size, derivative: 0 })[0].sum()
  expect(gatherParameters.all([mx.array(3)], { group, size, derivative: 0 })[0].shape).toEqual([2])
  expect(grad(sum)(mx.array(3)).tolist()).toBe(0.5)
})

test("gradients that nobody wants exchange nothing", () => {
  ran.length = 0
  const sum = (x: mx.Array): mx.Array =>
    scatterGradients
      .all([x, inputs[1]], { group, size, derivative: 0 })
      .map((y) => y.sum())
      .reduce((a, b) => a.add(b))
  mx.eval(grad(sum)(inputs[0]))
  expect(ran).toEqual(["allGather"])
})

test("a compiled function exchanges what it does not read of several arrays, as others do that are not compiled", () => {
  const second = (x: mx.Array): mx.Array =>
    gatherParameters.all([x, x.add(1), x.add(2)], { group, size, derivative: 0 })[1].multiply(2)
  const expected = second(inputs[0]).tolist()
  ran.length = 0
  expect(compile(second)(inputs[0]).tolist()).toEqual(expected)
  expect(ran).toEqual(["allGather", "allGather", "allGather"])
})
