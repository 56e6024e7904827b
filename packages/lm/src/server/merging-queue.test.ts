/** The queue of embeddings and reranking. */
import { expect, test } from "vitest"
import { MergingQueue } from "./merging-queue"

/** A queue that doubles numbers, and the items of each computation. */
function doubling(maxWaiting = 256): { queue: MergingQueue<number, number>; computed: number[][] } {
  const computed: number[][] = []
  const queue = new MergingQueue<number, number>(async (items) => {
    computed.push([...items])
    await new Promise((resolve) => setTimeout(resolve))
    if (items.includes(-1)) throw new Error("unlucky")
    return items.map((item) => 2 * item)
  }, maxWaiting)
  return { queue, computed }
}

test("waiting requests are computed together, and each gets its own results", async () => {
  const { queue, computed } = doubling()
  const results = await Promise.all([[1, 2], [3], [4, 5]].map((items) => queue.run(items)))
  expect(results).toEqual([[2, 4], [6], [8, 10]])
  expect(computed).toEqual([
    [1, 2],
    [3, 4, 5],
  ])
})

test("a request of nothing ends at once, also while another runs", async () => {
  const { queue } = doubling()
  expect(await Promise.all([queue.run([1]), queue.run([])])).toEqual([[2], []])
})

test("a large request shares each computation with the ones after it", async () => {
  const { queue, computed } = doubling()
  const large = Array.from({ length: 256 }, (_, i) => i)
  const ended: string[] = []
  const results = await Promise.all([
    queue.run(large).finally(() => ended.push("large")),
    queue.run([7]).finally(() => ended.push("small")),
  ])
  expect(results).toEqual([large.map((i) => 2 * i), [14]])
  expect(ended).toEqual(["small", "large"])
  expect(Math.max(...computed.map(({ length }) => length))).toBeLessThanOrEqual(64)
})

test("an error fails the request with its items, and no others", async () => {
  const { queue } = doubling()
  const all = await Promise.allSettled([[1], [-1], [2], [3, -1], [4, 5]].map((items) => queue.run(items)))
  expect(all.map(({ status }) => status)).toEqual([
    "fulfilled",
    "rejected",
    "fulfilled",
    "rejected",
    "fulfilled",
  ])
  expect(await queue.run([3])).toEqual([6])
})

test("a full queue rejects requests, and takes some again once it has room", async () => {
  const { queue } = doubling(1)
  const all = await Promise.allSettled([[1], [2], [3]].map((items) => queue.run(items)))
  expect(all.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"])
  expect(await queue.run([4])).toEqual([8])
})

test("items of an aborted request are not computed, nor does it fail others", async () => {
  const { queue, computed } = doubling()
  const controller = new AbortController()
  const requests = [queue.run([1]), queue.run([2, 3], controller.signal), queue.run([4])]
  controller.abort(new Error("left"))
  const results = await Promise.allSettled(requests)
  expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"])
  expect(results[1]).toMatchObject({ reason: { message: "left" } })
  expect(computed).toEqual([[1], [4]])
  await expect(queue.run([5], controller.signal)).rejects.toThrow("left")
})
