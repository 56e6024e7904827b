/** Exchanges with other processes: their order within an evaluation, and that nothing evaluates them by itself. */
import { afterEach, expect, test } from "vitest"
import { withoutExchanges } from "../graph/exchanges"
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
