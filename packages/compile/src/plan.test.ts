/** Plans, by what a backend is asked to record: which memory each step reads and writes, and what of the inputs' a call may take over. */
import * as mx from "@lazuli/core"
import {
  type Backend,
  backendFor,
  currentStream,
  LazuliError,
  Mark,
  type Node,
  outputsOf,
  type Plans,
  type Storage,
  sourceNode,
} from "@lazuli/core/engine"
import { describe, expect, test, vi } from "vitest"
import { makePlan, type Planned } from "./plan"

interface Recorded {
  readonly op: string
  readonly reads: readonly string[]
  readonly writes: readonly string[]
}

/** A backend that takes everything but `lacking`, and writes down what it is asked for; inputs are a, b, …, outputs A, B, …. */
function recorder(lacking = ""): { backend: Backend; steps: Recorded[] } {
  const reference = backendFor(currentStream().device)
  const steps: Recorded[] = []
  let counts = [0, 0]
  const shown = (node: Node): string[] => {
    if (node.storage === null) return []
    const { id } = node.storage as Storage
    const [inputs, outputs] = counts
    if (id < inputs) return [String.fromCharCode(97 + id)]
    if (id < inputs + outputs) return [String.fromCharCode(65 + id - inputs)]
    return [`${node.offset * node.dtype.size}`]
  }
  const note = (op: string, reads: readonly Node[], writes: readonly Node[]): void => {
    steps.push({ op, reads: reads.flatMap(shown), writes: writes.flatMap(shown) })
  }
  const encoder = {
    encode: (node: Node) => note(node.primitive?.name ?? "", node.inputs, outputsOf(node)),
    partsAt(node: Node) {
      if (node.primitive?.name !== "concatenate") return null
      let at = 0
      return node.inputs.map(({ nbytes }) => (at += nbytes) - nbytes)
    },
  }
  return {
    steps,
    backend: {
      ...reference,
      queue: {
        ...reference.queue,
        lower: (node) => (node.primitive?.name === lacking ? null : encoder),
        encodeCopy: (from, to) => note("copy", [from], [to]),
      },
      plans: {
        record(inputs, outputs, _arenaBytes, body) {
          counts = [inputs, outputs]
          body()
          return { id: 1 }
        },
        encode() {},
        takesCompanions: ({ primitive }) => isProduct(primitive),
        takesEpilogue: ({ primitive }) => isProduct(primitive),
        encodeEpilogue: (node) => note("epilogue", node.inputs, outputsOf(node)),
      },
    },
  }
}

const isProduct = (primitive: Node["primitive"]): boolean =>
  primitive?.name === "matmul" || primitive?.name === "quantizedMatmul"

const input = (...shape: number[]): mx.Array =>
  new mx.Array(sourceNode(shape, mx.float32, null, Mark.Abstract))

function planned(
  inputs: readonly mx.Array[],
  outputs: readonly mx.Array[],
  donated: readonly number[] = [],
  lacking = "",
  successors: ReadonlyMap<number, number> = new Map(),
): { plan: Planned | null; steps: Recorded[] } {
  const { backend, steps } = recorder(lacking)
  const nodes = (arrays: readonly mx.Array[]): Node[] => arrays.map(({ node }) => node)
  const graph = { inputs: nodes(inputs), outputs: nodes(outputs), donated: new Set(donated), successors }
  return { plan: makePlan(backend, graph), steps }
}

describe("memory", () => {
  test("of intermediates is in the arena, and used again once it is read", () => {
    const x = input(4, 64)
    const y = x.sort(-1).cumsum(1).sort(0).cumsum(0)
    const { plan, steps } = planned([x], [y])
    expect(steps.map(({ op }) => op)).toEqual(["sort", "cumsum", "sort", "cumsum"])
    expect(steps[0].reads).toEqual(["a"])
    expect(steps[3].writes).toEqual(["A"])
    // The third result lies where the first did.
    expect(steps[2].writes).toEqual(steps[0].writes)
    expect(plan?.stats).toEqual({ applications: 4, kernels: 4, arenaBytes: 2048, liveBytes: 2048 })
  })

  test("of an elementwise input that ends is the result's", () => {
    const x = input(8)
    const { plan, steps } = planned([x], [x.sort(0).exp().cumsum(0)])
    expect(steps[1].reads).toEqual(steps[1].writes)
    expect(plan?.stats.arenaBytes).toBe(64)
  })

  test("of outputs is their own: what is given twice, or is an input, is copied", () => {
    const x = input(8)
    const y = x.sort(0)
    const { steps } = planned([x], [y, y, x])
    expect(steps.map(({ op, reads, writes }) => `${op} ${reads} ${writes}`)).toEqual([
      "sort a A",
      "copy A B",
      "copy a C",
    ])
  })

  test("of parts is that of their concatenation, unless they are read later or begin where no array does", () => {
    const x = input(32)
    const tail = x.cumsum(0).index("0:24")
    const inner = mx.concatenate([x.sort(0), x.index("0:16").cumsum(0), tail, x.index("0:8").cumsum(0)])
    const outer = mx.concatenate([inner.cumsum(0), x.index("::2").cumsum(0)])
    const { steps } = planned([x], [outer.sort(0)])
    const [first, second] = steps.filter(({ op }) => op === "concatenate")
    const at = (step: Recorded, bytes: number): string => `${Number(step.writes[0]) + bytes}`
    expect(first.reads.slice(0, 2)).toEqual([at(first, 0), at(first, 128)])
    expect(first.reads[3]).not.toBe(at(first, 128 + 64 + 96))
    expect(second.reads).toEqual([at(second, 0), at(second, 320)])
    const y = x.sort(0)
    const both = planned([x], [mx.concatenate([y, x.cumsum(0)]).cumsum(0), y.cumsum(0)]).steps
    const joined = both.find(({ op }) => op === "concatenate") as Recorded
    expect(joined.reads[0]).not.toBe(at(joined, 0))
    expect(joined.reads[1]).toBe(at(joined, 128))
  })

  test("of parts is their own where a concatenation would take room for long", () => {
    const x = input(1024)
    const early = x.index("0:16").sort(0)
    const late = x.add(early.max()).cumsum(0).sort(0).cumsum(0).sort(0)
    const { plan, steps } = planned([x], [mx.concatenate([early, late]).cumsum(0)])
    const joined = steps.find(({ op }) => op === "concatenate") as Recorded
    expect(joined.reads[0]).not.toBe(joined.writes[0])
    expect(plan?.stats.arenaBytes).toBeLessThan(3 * 4096)
  })

  test("that views show moves nothing", () => {
    const x = input(4, 6)
    const { steps } = planned([x], [x.T.reshape(3, 2, 4).sort(-1)])
    expect(steps.map(({ op, reads }) => [op, ...reads])).toEqual([["sort", "a"]])
  })
})

describe("companions", () => {
  test("follow the first product of what they read, if they wait for nothing", () => {
    const [x, a, b, c] = [input(4, 8), input(8, 8), input(8, 8), input(8, 8)]
    const [p, q, r] = [a, b, c].map((w) => x.matmul(w))
    const late = x.matmul(q.sort(0).index("::1").reshape(8, 4))
    const { steps } = planned([x, a, b, c], [p.cumsum(0).add(q.sort(1)).add(r.cumsum(1)), late])
    const order = steps.map(({ op, reads }) => (op === "matmul" ? reads.join("") : op))
    expect(order.slice(0, 3)).toEqual(["ab", "ac", "ad"])
    expect(order.filter((op) => op.startsWith("a") && op !== "add")).toHaveLength(4)
  })

  test("stay together where each result is added to a bias", () => {
    const [x, bias, ...weights] = [input(4, 8), input(4, 8), input(8, 8), input(8, 8), input(8, 8)]
    const sums = weights.map((w) => x.matmul(w).add(bias))
    const { steps } = planned([x, bias, ...weights], sums)
    expect(steps.slice(0, 3).map(({ op, reads }) => `${op} ${reads}`)).toEqual([
      "matmul a,c",
      "matmul a,d",
      "matmul a,e",
    ])
  })

  test("have the same parameters, such as bits", () => {
    const [x, scales] = [input(4, 32), input(64, 1)]
    const bits = [4, 8, 4]
    const weights = bits.map((n) => new mx.Array(sourceNode([64, n], mx.uint32, null, Mark.Abstract)))
    const products = weights.map((w, i) =>
      mx.quantizedMatmul(x, w, scales, scales, { groupSize: 32, bits: bits[i] }),
    )
    const { steps } = planned([x, scales, ...weights], products)
    expect(steps.map(({ writes }) => writes.join())).toEqual(["A", "C", "B"])
  })

  test("with large results stay where they are read", () => {
    const [x, a, b] = [input(512, 8), input(8, 64), input(8, 64)]
    const { steps } = planned([x, a, b], [x.matmul(a).cumsum(0).add(x.matmul(b))])
    expect(steps.slice(0, 3).map(({ op }) => op)).toEqual(["matmul", "cumsum", "matmul"])
  })
})

test("siblings are looked for among a few of an operand's readers", () => {
  const { backend } = recorder()
  const joins = vi.fn(() => false)
  const [x, weights] = [input(1, 8), Array.from({ length: 200 }, () => input(8, 8))]
  const graph = {
    inputs: [x, ...weights].map(({ node }) => node),
    outputs: weights.map((w) => x.matmul(w).node),
    donated: new Set<number>(),
    successors: new Map(),
  }
  makePlan({ ...backend, plans: { ...(backend.plans as Plans), joins } }, graph)
  expect(joins.mock.calls.length).toBeLessThan(200 * 16)
  expect(joins).toHaveBeenCalled()
})

describe("donated inputs", () => {
  const donations = (planned: { plan: Planned | null }): unknown => planned.plan?.plan.donations

  test("become the output of their size that is made last from them", () => {
    const [x, y] = [input(8), input(4)]
    expect(donations(planned([x, y], [x.exp(), y.exp()], [0, 1]))).toEqual([
      { input: 0, output: 0 },
      { input: 1, output: 1 },
    ])
    expect(donations(planned([x, y], [y.exp(), x.exp()], [0]))).toEqual([{ input: 0, output: 1 }])
  })

  test("stay where they are read later, by a kernel that reads other elements, or as another size", () => {
    const x = input(8)
    expect(donations(planned([x], [x.sort(0)], [0]))).toEqual([])
    expect(donations(planned([x], [x.sum()], [0]))).toEqual([])
    const first = x.exp()
    expect(donations(planned([x], [first, first.sort(0).add(x)], [0]))).toEqual([{ input: 0, output: 1 }])
  })
})

describe("a state's memory", () => {
  const donations = (successors: ReadonlyMap<number, number>): unknown => {
    const [x, y] = [input(8), input(8)]
    return planned([x, y], [y.exp(), x.exp()], [0, 1], "", successors).plan?.plan.donations
  }
  test("becomes its successor's, and another one's only where it cannot", () => {
    expect(donations(new Map())).toEqual([
      { input: 1, output: 0 },
      { input: 0, output: 1 },
    ])
    // The first result is made before the state that it takes the place of is read.
    const own = new Map([
      [0, 0],
      [1, 1],
    ])
    expect(donations(own)).toEqual([{ input: 1, output: 1 }])
  })
})

describe("there is none", () => {
  test("where the backend lacks a kernel that nothing replaces", () => {
    const x = input(8)
    expect(planned([x], [x.sort(0)], [], "sort").plan).toBeNull()
  })

  test("and a refusal names the operation with the largest result", () => {
    const x = input(8)
    const { backend } = recorder()
    const refusing: Backend = {
      ...backend,
      plans: {
        encode() {},
        record() {
          throw new Error("too large")
        },
      },
    }
    const y = x.sort(0).cumsum(0).sum()
    const graph = { inputs: [x.node], outputs: [y.node], donated: new Set<number>(), successors: new Map() }
    expect(() => makePlan(refusing, graph)).toThrow(LazuliError)
    expect(() => makePlan(refusing, graph)).toThrow(/^\[sort\].*shape \(8,\) takes 32 bytes: too large/)
  })
})
