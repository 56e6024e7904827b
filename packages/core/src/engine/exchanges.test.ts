/** Exchanges with other processes: their order within an evaluation, and that nothing evaluates them by itself. */
import * as fc from "fast-check"
import { afterEach, expect, test } from "vitest"
import { gatheredLate, noteExchange, withoutExchanges } from "../graph/exchanges"
import * as mx from "../index"
import { definePrimitive } from "../plugin"

let log: number[] = []
afterEach(() => {
  log = []
})
/** Notes when it runs. */
const rulesOf = (name: string, exchanges: boolean) =>
  definePrimitive({
    name: `@me/exchanges/${name}`,
    api: 1,
    params: { number: "i64" },
    facts: { exchanges },
    infer: ([x]) => x,
    reference: ([x], [y], { number }) => {
      log.push(number)
      y.data.set(x.data)
    },
  })
const exchange = rulesOf("exchange", true)
const other = rulesOf("other", false)

test("exchanges run in the order of their calls, whichever results come first", () => {
  const [a, b, c] = [1, 2, 3].map((number) => exchange([mx.ones([2]).multiply(number)], { number }))
  mx.eval(c, a.add(c), b)
  expect(log).toEqual([1, 2, 3])
  expect(b.tolist()).toEqual([2, 2])
})

test.each([
  [exchange, 0],
  [other, 1],
])("what piles up behind an exchange waits until it is asked for", (primitive, runs) => {
  const x = primitive([mx.ones([1])], { number: 1 })
  const kept = Array.from({ length: 70_000 }, (_, i) => x.add(i))
  expect(log.length).toBe(runs)
  expect((kept[7].index(0) as mx.Array).item()).toBe(8)
  expect(log.length).toBe(1)
})

test("the search for exchanges looks at each input a few times at most", () => {
  mx.eval(exchange([mx.ones([1])], { number: 1 }))
  const pending = { storage: null, primitive: {}, inputs: [], outputs: null }
  let looks = 0
  const inputs = new Proxy(
    Array.from({ length: 1000 }, () => ({ ...pending })),
    {
      get(target, key, receiver) {
        if (typeof key === "string" && /^\d+$/.test(key)) looks++
        return Reflect.get(target, key, receiver)
      },
    },
  )
  const joined = { ...pending, inputs }
  expect(withoutExchanges([joined])).toEqual([joined])
  expect(looks).toBeLessThan(3000)
})

test("gathers that move stay behind what they read and before their readers, and exchanges in their order", () => {
  interface Work {
    readonly kind: "gather" | "sum" | "view" | "other"
    readonly inputs: readonly Work[]
    readonly outputs: null
    readonly nbytes: number
  }
  const drawn = fc.array(
    fc.record({
      kind: fc.constantFrom<Work["kind"]>("gather", "sum", "view", "other"),
      inputs: fc.array(fc.nat(), { minLength: 1, maxLength: 2 }),
    }),
    { minLength: 1, maxLength: 16 },
  )
  const parameter: Work = { kind: "other", inputs: [], outputs: null, nbytes: 1 }
  fc.assert(
    fc.property(drawn, (program) => {
      const order: Work[] = []
      for (const { kind, inputs } of program) {
        const read = inputs.map((i) => [parameter, ...order][i % (order.length + 1)])
        const nbytes = kind === "gather" ? 1 + read.reduce((sum, { nbytes }) => sum + nbytes, 0) : 1
        const work: Work = { kind, inputs: read, outputs: null, nbytes }
        if (kind === "gather" || kind === "sum") noteExchange(work)
        order.push(work)
      }
      const late = gatheredLate(
        order,
        ({ inputs }) => inputs,
        ({ kind }) => kind === "view",
      )
      expect(late.length).toBe(order.length)
      for (const work of late)
        for (const input of work.inputs)
          if (input !== parameter) expect(late.indexOf(input)).toBeLessThan(late.indexOf(work))
      const exchanges = (all: readonly Work[]): Work[] => all.filter(({ kind }) => /gather|sum/.test(kind))
      expect(exchanges(late)).toEqual(exchanges(order))
    }),
    { numRuns: 1000 },
  )
})
