/** The collectives as primitives, with every rule, in a group of two of which one is this process. */
import { formatChecks, opCheck } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./collectives"
import { type Communicator, numberOf, type Work } from "./communicators"

/** The other member has zeros, so that what one member's arrays do to the results can be told from here. */
const silent: Communicator = {
  backend: "silent",
  rank: 0,
  size: 2,
  split: () => silent,
  run({ kind, input, output }: Work): void {
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
  allReduce: { group, reduction: "sum" },
  allGather: { group, size },
  sumScatter: { group, size },
  allToAll: { group, size },
  broadcast: { group, root: 0 },
  send: { group, to: 1, serial: 1 },
  barrier: { group, serial: 1 },
  sumGradients: { group },
  scatterGradients: { group, size },
}

test.each(Object.entries(params))("%s keeps what its definition promises", (name, its) => {
  const report = opCheck(
    `@lazuli/distributed/${name}`,
    inputs.map((x) => ({ inputs: [x], params: its })),
  )
  expect(formatChecks(report.ok ? [] : [report])).toBe(formatChecks([]))
})
