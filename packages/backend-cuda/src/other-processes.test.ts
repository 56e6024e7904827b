/** Messages to other processes about this one's waits. */
import type { DeviceWatch } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { CHECK_EVERY, type DeviceMarks, OtherProcesses } from "./other-processes"

/** Others that have always added the same. */
const others: DeviceWatch = {
  check: () => {},
  add: () => 1,
  ask: () => {},
  agrees: () => true,
  wait: () => {},
  end: () => {},
  call: () => {},
  alarm: () => -1,
}
/** A device whose marks are never passed. */
const device: DeviceMarks = { newMark: () => 0, lookAtMark: () => null, freeMark: () => {} }

test("a wait that ends leaves another one told", async () => {
  const told: string[] = []
  const processes = new OtherProcesses(
    () => {},
    () => device,
  )
  processes.join(0, {
    ...others,
    wait: (_place, op) => void told.push(op),
    end: (isWaiting) => void told.push(isWaiting ? "ended, others wait" : "ended"),
  })
  processes.add([{ group: 0, name: "allSum", operations: [1] }])
  let isDone = false
  const mark = processes.mark(
    { id: 1 },
    () => isDone || null,
    (outcome) => outcome === true,
    () => {},
  )
  await new Promise((resolve) => setTimeout(resolve, 2 * CHECK_EVERY))
  expect(mark.look()).toBe(null)
  processes.add([{ group: 0, name: "allMax", operations: [2] }])
  let looks = 0
  expect(processes.await(() => (looks++ > 0 ? true : undefined), false)).toBe(true)
  isDone = true
  expect(mark.look()).toBe(true)
  mark.release()
  expect(told).toEqual(["allSum", "allMax", "ended, others wait", "ended"])
})

test("work behind collectives that are done is this process's own", () => {
  const told: number[] = []
  let place = 0
  const processes = new OtherProcesses(
    () => {},
    () => device,
  )
  processes.join(0, { ...others, add: () => ++place, wait: (at) => void told.push(at) })
  const awaitWork = (isAll: boolean): void => {
    let looks = 0
    expect(processes.await(() => (looks++ > 0 ? true : undefined), isAll)).toBe(true)
  }
  processes.add([{ group: 0, name: "allSum", operations: [1] }])
  // Of one stream, which need not be that of the collective.
  awaitWork(false)
  awaitWork(true)
  awaitWork(true)
  expect(told).toEqual([1, 1])
  processes.add([{ group: 0, name: "allSum", operations: [1] }])
  awaitWork(true)
  expect(told).toEqual([1, 1, 2])
})

test("a wait goes on untold once a mark behind the collectives is passed, and marks are freed", () => {
  const told: string[] = []
  const free: number[] = []
  let made = 0
  let passed = 0
  let place = 0
  const processes = new OtherProcesses(
    () => {},
    () => ({
      newMark: () => ++made,
      lookAtMark: (id) => id <= passed || null,
      freeMark: (id) => void free.push(id),
    }),
  )
  processes.join(0, {
    ...others,
    add: () => ++place,
    wait: (at) => void told.push(`${at}`),
    end: () => void told.push("end"),
  })
  for (const name of ["allSum", "allMax"]) {
    processes.add([{ group: 0, name, operations: [1] }])
    processes.markAll()
    // Nothing was added since.
    processes.markAll()
  }
  expect(made).toBe(2)
  let looks = 0
  const look = (): true | undefined => {
    passed = Math.floor(looks / 2)
    return ++looks > 7 ? true : undefined
  }
  expect(processes.await(look, false)).toBe(true)
  expect(told).toEqual(["2", "2", "2", "2", "end"])
  expect(free).toEqual([1, 2])
})

test("of operations that come together none is added where the group of one was closed", () => {
  const added: string[] = []
  const processes = new OtherProcesses(
    () => {},
    () => device,
  )
  const watch = (isOpen: boolean): DeviceWatch => ({
    ...others,
    check() {
      if (!isOpen) throw new Error("the group was closed")
    },
    add: (_operation, op) => added.push(op),
  })
  processes.join(0, watch(true))
  processes.join(1, watch(false))
  const notes = [0, 1].map((group) => ({ group, name: "allSum", operations: [1] }))
  expect(() => processes.add(notes)).toThrow("the group was closed")
  expect(added).toEqual([])
})

test("where work has failed since another process has, that is the error", () => {
  const ended: Error[] = []
  const processes = new OtherProcesses(
    (error) => void ended.push(error),
    () => device,
  )
  const failure = new Error("rank 1 was lost")
  let hasFailed = false
  const wait = (): void => {
    if (hasFailed) throw failure
  }
  let place = 0
  processes.join(0, { ...others, add: () => ++place, wait })
  processes.add([{ group: 0, name: "allSum", operations: [1] }])
  expect(processes.await(() => "an illegal address", true)).toBe("an illegal address")
  processes.add([{ group: 0, name: "allSum", operations: [1] }])
  hasFailed = true
  expect(processes.await(() => "an illegal address", true)).toBe(failure)
  expect(ended).toEqual([failure])
})
