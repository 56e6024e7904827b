/** The arena never hands out overlapping places, and reuses what was given back. */
import fc from "fast-check"
import { expect, test } from "vitest"
import { Arena } from "./arena"

test("living places never overlap, are aligned, and stay within the size", () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ bytes: fc.integer({ min: 0, max: 5000 }), release: fc.nat(20) }), {
        maxLength: 80,
      }),
      (requests) => {
        const arena = new Arena()
        const living: { offset: number; bytes: number }[] = []
        for (const { bytes, release } of requests) {
          const offset = arena.take(bytes)
          expect(offset % 64).toBe(0)
          for (const other of living)
            expect(
              offset >= other.offset + other.bytes ||
                other.offset >= offset + bytes ||
                bytes === 0 ||
                other.bytes === 0,
            ).toBe(true)
          living.push({ offset, bytes })
          expect(arena.size).toBeGreaterThanOrEqual(offset + bytes)
          if (release < living.length) {
            const [gone] = living.splice(release, 1)
            arena.give(gone.offset, gone.bytes)
          }
        }
        expect(arena.peak).toBeLessThanOrEqual(arena.size)
      },
    ),
  )
})

test("a place given back is taken again", () => {
  const arena = new Arena()
  const first = arena.take(1000)
  arena.take(64)
  arena.give(first, 1000)
  expect(arena.take(900)).toBe(first)
  expect(arena.size).toBe(1024 + 64)
})
