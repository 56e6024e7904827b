/** Messages to other processes about this one's waits. */
import { expect, test } from "vitest"
import { CHECK_EVERY, OtherProcesses } from "./other-processes"

test("a wait that ends leaves another one told", async () => {
  const told: string[] = []
  const others = new OtherProcesses(() => {})
  others.join(0, {
    add: () => 1,
    wait: (_place, op) => void told.push(op),
    end: (isWaiting) => void told.push(isWaiting ? "ended, others wait" : "ended"),
  })
  others.add({ group: 0, name: "allSum", operations: [1] })
  let isDone = false
  const mark = others.mark(
    { id: 1 },
    () => isDone || null,
    (outcome) => outcome === true,
    () => {},
  )
  await new Promise((resolve) => setTimeout(resolve, 2 * CHECK_EVERY))
  expect(mark.look()).toBe(null)
  others.add({ group: 0, name: "allMax", operations: [2] })
  let looks = 0
  expect(others.await(() => (looks++ > 0 ? true : undefined), false)).toBe(true)
  isDone = true
  expect(mark.look()).toBe(true)
  mark.release()
  expect(told).toEqual(["allSum", "allMax", "ended, others wait", "ended"])
})

test("work behind collectives that are done is this process's own", () => {
  const told: number[] = []
  let place = 0
  const others = new OtherProcesses(() => {})
  others.join(0, { add: () => ++place, wait: (at) => void told.push(at), end: () => {} })
  const awaitWork = (isAll: boolean): void => {
    let looks = 0
    expect(others.await(() => (looks++ > 0 ? true : undefined), isAll)).toBe(true)
  }
  others.add({ group: 0, name: "allSum", operations: [1] })
  // Of one stream, which need not be that of the collective.
  awaitWork(false)
  awaitWork(true)
  awaitWork(true)
  expect(told).toEqual([1, 1])
  others.add({ group: 0, name: "allSum", operations: [1] })
  awaitWork(true)
  expect(told).toEqual([1, 1, 2])
})
