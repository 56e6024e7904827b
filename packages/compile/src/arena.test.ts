/** Leaves that live at the same time never overlap, and memory is used again. */
import fc from "fast-check"
import { expect, test } from "vitest"
import { type Allocation, layOut } from "./arena"

const allocation = (bytes: number, from: number, to: number): Allocation => ({ bytes, from, to, offset: -1 })

test("living allocations never overlap, are aligned, and stay within the size", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 0, max: 5000 }), fc.nat(40), fc.nat(20)), { maxLength: 60 }),
      (requests) => {
        const allocations = requests.map(([bytes, from, length]) => allocation(bytes, from, from + length))
        const { size, peak } = layOut(allocations)
        expect(peak).toBeLessThanOrEqual(size)
        for (const [i, a] of allocations.entries()) {
          expect(a.offset % 64).toBe(0)
          expect(a.offset).toBeGreaterThanOrEqual(0)
          expect(size).toBeGreaterThanOrEqual(a.offset + a.bytes)
          for (const b of allocations.slice(i + 1)) {
            if (a.to < b.from || b.to < a.from || a.bytes === 0 || b.bytes === 0) continue
            expect(a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes).toBe(true)
          }
        }
      },
    ),
  )
})

test("a allocation that is not used any more is taken again", () => {
  const [first, second, third] = [allocation(1000, 0, 1), allocation(64, 0, 5), allocation(900, 2, 3)]
  expect(layOut([first, second, third])).toEqual({ size: 1024 + 64, peak: 1024 + 64 })
  expect(third.offset).toBe(first.offset)
})

test("the largest come first where the order of the steps would leave gaps", () => {
  const allocations = [
    allocation(64, 0, 1),
    allocation(128, 1, 4),
    allocation(64, 2, 3),
    allocation(192, 5, 6),
    allocation(256, 3, 8),
  ]
  const { size, peak } = layOut(allocations)
  expect(size).toBe(peak)
})
