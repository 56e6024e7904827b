/** The memory that a result takes: one set of decisions, asked with what a made-up world knows of memory. */
import { describe, expect, test } from "vitest"
import { backendFor, type Encoder } from "../graph/backend"
import { currentStream } from "../graph/device"
import { type Dtype, float32, int32 } from "../graph/dtype"
import { type Application, applicationOf, Mark, Node, type Plan, tracing } from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import { primitiveByName } from "../graph/primitive"
import { Storage } from "../graph/storage"
import * as mx from "../index"
import {
  Crossing,
  crossingTo,
  donorFor,
  donorOf,
  giftFor,
  isKeptForTrace,
  isStraightened,
  offsetIn,
  overlays,
  readingOf,
  readsAll,
  storages,
  stridesIn,
  viewOf,
  viewOfCopy,
  Way,
  type World,
  wayOf,
} from "./assignment"

const { memory } = backendFor(currentStream().device)
/** An evaluated node that only pending work can reach. */
function evaluated(shape: number[], dtype: Dtype = float32): Node {
  const node = new Node(shape, dtype, null, [], NO_PARAMS, currentStream(), Mark.None)
  node.storage = new Storage(memory, 0, node.nbytes, new ArrayBuffer(node.nbytes))
  node.storage.stream = node.stream
  return node
}
function apply(
  name: string,
  inputs: Node[],
  shape = inputs[0].shape,
  dtype: Dtype = float32,
  params = {},
): Application {
  for (const input of inputs) input.uses++
  return applicationOf(
    new Node(shape, dtype, primitiveByName(name), inputs, params, currentStream(), Mark.None),
  )
}
const storageOf = (node: Node): Storage => node.storage as Storage

describe("an elementwise result takes the memory of an input", () => {
  const donor = (change: (x: Node, y: Node, sum: Node) => void): Node | null => {
    const [x, y] = [evaluated([2, 3]), evaluated([3])]
    const sum = apply("add", [y, x], [2, 3])
    change(x, y, sum)
    return donorOf(storages, sum, sum)
  }
  test("that dies here, of its size", () => {
    let whole: Node | null = null
    expect(donor((x) => (whole = x))).toBe(whole)
    // A group keeps memory for whichever node shows it.
    expect(donor((x) => ((whole = x).anchor = {}))).toBe(whole)
  })
  test.each<[string, (x: Node, y: Node, sum: Node) => void]>([
    ["has a handle", (x) => x.handles++],
    ["has another reader", (x) => x.uses++],
    ["shares its memory with a view", (x) => storageOf(x).refs++],
    ["is lent by another backend", (x) => (storageOf(x).lender = storageOf(evaluated([1])))],
    ["is another stream's", (x) => (storageOf(x).stream = null)],
    ["is read by another stream", (x) => (storageOf(x).uses = [1])],
    ["begins elsewhere", (x) => (x.offset = 1)],
    ["lies otherwise", (x) => (x.strides = [1, 2])],
    ["is a part of its memory", (x) => (storageOf(x).nbytes = 28)],
    ["is immediate", (x) => (x.storage = null)],
  ])("but not where the input %s", (_why, change) => expect(donor(change)).toBe(null))
  test("but not for a trace that may want it, or elements of another width", () => {
    tracing.depth++
    expect(donor((_x, _y, sum) => (sum.mark = Mark.Traced))).toBe(null)
    tracing.depth--
    const [x, y] = [evaluated([4]), evaluated([2])]
    expect(overlays(storages, evaluated([4], int32), x)).toBe(true)
    expect(overlays(storages, evaluated([4], mx.int8), x)).toBe(false)
    expect(overlays(storages, evaluated([2], mx.int64), x)).toBe(false)
    expect(overlays(storages, evaluated([4]), y)).toBe(false)
  })
})

describe("a plan", () => {
  const call = (change: (a: Node, b: Node) => void = () => {}): [Application, Node, Node] => {
    const [a, b] = [evaluated([4, 300]), evaluated([4, 300])]
    change(a, b)
    return [apply("add", [a, b]), a, b]
  }
  test("writes an output over the input that it was given for it", () => {
    const plan: Plan = { id: 1, donations: [{ input: 1, output: 0 }] }
    const [application, , b] = call()
    expect(giftFor(storages, application, plan, 0)).toBe(b)
    expect(giftFor(storages, application, plan, 1)).toBe(null)
    expect(giftFor(storages, application, { id: 1 }, 0)).toBe(null)
    b.handles++
    expect(giftFor(storages, application, plan, 0)).toBe(null)
  })
  test("reads copies of what does not begin or lie as it needs", () => {
    const plan: Plan = { id: 1, alignments: [{ input: 0, bytes: 8 }] }
    const [application, a, b] = call()
    expect(readsAll(storages, application.inputs, plan)).toBe(true)
    a.offset = 1
    expect(readsAll(storages, application.inputs, plan)).toBe(false)
    expect(readingOf(storages, application, plan)).toEqual({ plan, copied: [a] })
    b.strides = [1, 4]
    expect(readingOf(storages, application, plan)).toEqual({ plan, copied: [a, b] })
  })
  test("has small inputs made row-major, but for copies from elsewhere", () => {
    const [, a] = call((x) => (x.strides = [1, 4]))
    const small = evaluated([2, 2])
    expect(isStraightened(storages, small, false)).toBe(false)
    small.strides = [1, 2]
    expect(isStraightened(storages, small, false)).toBe(true)
    expect(isStraightened(storages, small, true)).toBe(false)
    expect(isStraightened(storages, a, false)).toBe(false)
  })
})

describe("a view", () => {
  const flat = (input: Node): Application => apply("reshape", [input], [6], float32, { shape: [6] })
  test("shows its input's memory where it can, else that of a copy", () => {
    const x = evaluated([2, 3])
    const view = flat(x)
    expect([wayOf(view), wayOf(apply("add", [x, x]))]).toEqual([Way.View, Way.Work])
    const layout = viewOf(storages, view)
    expect(layout && [offsetIn(layout, view), stridesIn(layout, view)]).toEqual([0, null])
    x.strides = [1, 2]
    expect(viewOf(storages, view)).toBe(null)
    expect(viewOfCopy(view)).not.toBe(null)
  })
  test("without elements begins within the memory", () => {
    expect(offsetIn({ offset: 9, strides: null }, evaluated([0]))).toBe(0)
    expect(offsetIn({ offset: 9, strides: null }, evaluated([1]))).toBe(9)
  })
})

test("memory crosses to another device by its address, by a copy that is there, or by a new one", () => {
  const [sees, other] = [
    { ...memory, adopt: () => null, address: () => 0n },
    { ...memory, adopt: undefined, address: undefined },
  ]
  const storage = storageOf(evaluated([2]))
  expect(crossingTo(other, storage)).toBe(Crossing.Copied)
  storage.copies = [new Storage(other, 1, 8)]
  expect(crossingTo(other, storage)).toBe(Crossing.Known)
  const copy = new Storage(other, 1, 8)
  copy.original = storage
  expect(crossingTo(memory, copy)).toBe(Crossing.Known)
  expect(crossingTo(sees, new Storage(sees, 1, 8))).toBe(Crossing.Lent)
  expect(crossingTo(sees, new Storage(sees, 1, 0))).toBe(Crossing.Copied)
  const lent = new Storage(other, 1, 8)
  lent.lender = storage
  expect(crossingTo(memory, lent)).toBe(Crossing.Lent)
})

test("worlds differ in what they know, and the decisions are the same", () => {
  const [x, y] = [evaluated([4]), evaluated([4])]
  const sum = apply("add", [x, y])
  const world: World = {
    offsetOf: () => 0,
    stridesOf: () => null,
    bytesOf: (node) => node.nbytes,
    isSpent: (input) => input === y,
  }
  expect(donorOf(world, sum, sum)).toBe(y)
})

describe("deciding for one application at a time", () => {
  /** The median growth of the heap by a call, in rounds of many: a collection makes one smaller, a compilation one larger. */
  const growth = (decide: () => unknown): number => {
    const calls = 20_000
    for (let i = 0; i < calls; i++) decide()
    const rounds = Array.from({ length: 9 }, () => {
      const before = process.memoryUsage().heapUsed
      for (let i = 0; i < calls; i++) decide()
      return (process.memoryUsage().heapUsed - before) / calls
    })
    return rounds.sort((a, b) => a - b)[4]
  }
  const [x, y] = [evaluated([64]), evaluated([64])]
  const sum = apply("add", [x, y])
  const { queue } = backendFor(currentStream().device)
  const encoder = queue.lower(sum) as Encoder

  test("allocates nothing", () => {
    let taken = 0
    const grown = growth(() => {
      if (wayOf(sum) !== Way.Work || isKeptForTrace(sum)) throw new Error("an addition runs")
      if (donorFor(storages, encoder, sum, sum, 0) !== null) taken++
    })
    expect(taken).toBeGreaterThan(0)
    // The smallest object has 16 bytes.
    expect(grown).toBeLessThan(8)
  })

  test("which the measure would show", () => {
    const kept: unknown[] = []
    const grown = growth(() => kept.splice(0, 1, { sum }))
    expect(grown).toBeGreaterThan(16)
  })
})
