/** Updates from what a view of the same array showed, such as `x[i] += b`: they write over the array, and views keep their values. */
import * as mx from "@lazuli/core"
import { backendOf } from "@lazuli/core/engine"
import { describe, expect, test } from "vitest"
import "./index"

const [ROWS, COLUMNS] = [64, 8192]

function filled(value: number): mx.Array {
  const x = mx.zeros([ROWS, COLUMNS]).add(value)
  mx.eval(x)
  return x
}

function addressOf(x: mx.Array): bigint | undefined {
  mx.eval(x)
  const { storage } = x.node
  return storage ? backendOf(storage.memory).memory.address?.(storage) : undefined
}

const isSame = (x: mx.Array, want: Float32Array): boolean =>
  Buffer.from(x.flatten().toTypedArray().buffer).equals(Buffer.from(want.buffer))

const changes: [string, (x: mx.Array, i: number) => void][] = [
  ["a sum", (x, i) => x.set([i], x.index(i).add(1))],
  ["a longer expression", (x, i) => x.set([i], x.index(i).multiply(2).add(1).abs())],
  ["another part", (x, i) => x.set([i], x.index((i + 1) % ROWS).add(1))],
  ["two parts", (x, i) => x.set([i], x.index(i).add(x.index((i + 7) % ROWS)))],
  ["the view itself", (x, i) => x.set([i], x.index((i + 1) % ROWS))],
  ["a view of a view", (x, i) => x.set([i, "0:99"], x.index(i).index("1:100").negative())],
  ["a sum of sums", (x, i) => x.set([i], x.index(i).sum())],
]

describe("a part computed from a view of its array", () => {
  test.each(changes)("is written in place: %s", (_name, change) => {
    const x = filled(1)
    const address = addressOf(x)
    for (let i = 0; i < ROWS; i++) {
      change(x, i)
      expect(addressOf(x)).toBe(address)
    }
  })

  test("takes the memory of a few parts", () => {
    const [blocks, size] = [16, 2 ** 20]
    const x = mx.zeros([blocks, size]).add(1)
    const b = mx.ones([size])
    mx.eval(x, b)
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    for (let i = 0; i < blocks; i++) {
      x.set([i], x.index(i).add(b))
      mx.eval(x)
    }
    expect(mx.getPeakMemory() - before).toBeLessThan(4 * 4 * size)
    expect([x.min().item(), x.max().item()]).toEqual([2, 2])
  })

  test("larger than an eighth of the array is written to a copy", () => {
    const x = filled(1)
    const address = addressOf(x)
    const half = x.index("0:32")
    x.set(["32:64"], half.add(1))
    mx.eval(x)
    expect(addressOf(x)).not.toBe(address)
    expect([half.sum().item(), x.sum().item()]).toEqual([32 * COLUMNS, 96 * COLUMNS])
  })
})

const randomFrom = (seed: number) => {
  let state = seed >>> 0
  return (below: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

test("random parts, views and handles keep their values", () => {
  for (let seed = 1; seed <= 12; seed++) {
    const pick = randomFrom(seed * 7919)
    const wholes: { x: mx.Array; want: Float32Array }[] = [
      { x: filled(seed), want: new Float32Array(ROWS * COLUMNS).fill(seed) },
    ]
    const parts: { v: mx.Array; want: Float32Array }[] = []
    const rowOf = (want: Float32Array, r: number): Float32Array => want.slice(r * COLUMNS, (r + 1) * COLUMNS)
    for (let step = 0; step < 60; step++) {
      const entry = wholes[pick(wholes.length)]
      const { x } = entry
      const [i, j, value] = [pick(ROWS), pick(ROWS), pick(20)]
      const write = (row: Float32Array): Float32Array => {
        const next = entry.want.slice()
        next.set(row, i * COLUMNS)
        return next
      }
      const raised = rowOf(entry.want, j).map((v) => v + value)
      const made: mx.Array[] = []
      switch (pick(8)) {
        case 0:
        case 1: {
          const view = x.index(j)
          if (pick(2) === 0) parts.push({ v: view, want: rowOf(entry.want, j) })
          x.set([i], view.add(value))
          entry.want = write(raised)
          break
        }
        case 2: {
          const view = x.index(j).reshape([2, COLUMNS / 2])
          parts.push({ v: view, want: rowOf(entry.want, j) })
          made.push(view)
          const y = mx.sliceUpdate(x, view.reshape([1, COLUMNS]).add(value), [i, 0], [0, 1])
          wholes.push({ x: y, want: write(raised) })
          break
        }
        case 3:
          wholes.push({
            x: x.at(i).add(x.index(j)),
            want: write(rowOf(entry.want, i).map((v, k) => v + entry.want[j * COLUMNS + k])),
          })
          break
        case 4: {
          const view = x.index(j, "::3")
          parts.push({ v: view, want: rowOf(entry.want, j).filter((_, k) => k % 3 === 0) })
          if (pick(2) === 0) made.push(view)
          break
        }
        case 5:
          x.set([i], x.index(j))
          entry.want = write(rowOf(entry.want, j))
          break
        case 6:
          if (wholes.length > 1) {
            const [old] = wholes.splice(pick(wholes.length), 1)
            if (pick(2) === 0) old.x.dispose()
          }
          break
        default:
          if (parts.length > 0) {
            const [{ v, want }] = parts.splice(pick(parts.length), 1)
            expect([seed, step, isSame(v, want)]).toEqual([seed, step, true])
          }
      }
      if (wholes.length > 4) wholes.splice(0, 1)
      if (pick(3) > 0) mx.eval(...made, wholes[pick(wholes.length)].x)
    }
    for (const { v, want } of parts) expect([seed, isSame(v, want)]).toEqual([seed, true])
    for (const { x, want } of wholes) expect([seed, isSame(x, want)]).toEqual([seed, true])
  }
})
