/** Places that live at the same time never overlap, and memory is used again. */
import fc from "fast-check"
import { expect, test } from "vitest"
import { layOut, type Place } from "./arena"

const place = (bytes: number, from: number, to: number): Place => ({ bytes, from, to, offset: -1 })

test("living places never overlap, are aligned, and stay within the size", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 0, max: 5000 }), fc.nat(40), fc.nat(20)), { maxLength: 60 }),
      (requests) => {
        const places = requests.map(([bytes, from, length]) => place(bytes, from, from + length))
        const { size, peak } = layOut(places)
        expect(peak).toBeLessThanOrEqual(size)
        for (const [i, a] of places.entries()) {
          expect(a.offset % 64).toBe(0)
          expect(a.offset).toBeGreaterThanOrEqual(0)
          expect(size).toBeGreaterThanOrEqual(a.offset + a.bytes)
          for (const b of places.slice(i + 1)) {
            if (a.to < b.from || b.to < a.from || a.bytes === 0 || b.bytes === 0) continue
            expect(a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes).toBe(true)
          }
        }
      },
    ),
  )
})

test("a place that is not used any more is taken again", () => {
  const [first, second, third] = [place(1000, 0, 1), place(64, 0, 5), place(900, 2, 3)]
  expect(layOut([first, second, third])).toEqual({ size: 1024 + 64, peak: 1024 + 64 })
  expect(third.offset).toBe(first.offset)
})

test("the largest come first where the order of the steps would leave gaps", () => {
  const places = [place(64, 0, 1), place(128, 1, 4), place(64, 2, 3), place(192, 5, 6), place(256, 3, 8)]
  const { size, peak } = layOut(places)
  expect(size).toBe(peak)
})
