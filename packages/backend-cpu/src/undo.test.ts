/**
 * Updates that write over an array whose old handle may be alive: every handle keeps its value, whoever reads it, and whenever.
 * It is long because all cases share what fills arrays and compares them bit for bit.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { backendOf, lifetimes, Node, type Storage } from "@lazuli/core/engine"
import { grad } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import "./index"

const [ROWS, COLUMNS] = [64, 4096]
const SIZE = ROWS * COLUMNS

function filled(value = 0, shape: number[] = [ROWS, COLUMNS]): mx.Array {
  const x = mx.zeros(shape).add(value)
  mx.eval(x)
  return x
}

const addressOf = (x: mx.Array): bigint => {
  mx.eval(x)
  const { storage } = x.node
  return storage?.memory.address?.(storage) ?? 0n
}

const bytesOf = (x: mx.Array): Buffer => Buffer.from(x.toTypedArray().buffer)

/** True if two arrays have the same bits, NaN included. */
const isSame = (x: mx.Array, want: mx.Array): boolean => bytesOf(x).equals(bytesOf(want))

const int = (...values: number[]): mx.Array => mx.array(values, mx.int32)

const updates: [string, (x: mx.Array) => mx.Array][] = [
  ["sliceUpdate", (x) => mx.sliceUpdate(x, mx.ones([1, 7]), int(9, 5), [0, 1])],
  ["sliceUpdate where numbers say", (x) => mx.sliceUpdate(x, mx.ones([2, 7]), [9, 5], [0, 1])],
  ["at.add of one element", (x) => x.at(3, 5).add(2)],
  ["at.subtract of a row", (x) => x.at(-1).subtract(2)],
  ["at.multiply of a part of a column, backwards", (x) => x.at("40:9:-3", 0).multiply(2)],
  ["at.divide at positions that repeat", (x) => x.at(int(3, 3, -1)).divide(2)],
  ["at.maximum", (x) => x.at("0:2", "::5").maximum(NaN)],
  ["at.minimum at positions", (x) => x.at(int(3, 3, 60), int(0, 0, 9)).minimum(-2)],
  ["scatter of sums", (x) => mx.scatter(x, [1, 1], mx.ones([2, COLUMNS]), { reduction: "sum" })],
  [
    "putAlongAxis",
    (x) => mx.putAlongAxis(x, mx.zeros([1, COLUMNS], mx.int32).add(63), mx.ones([1, COLUMNS]), 0),
  ],
]

describe("an update of an array whose handle is alive", () => {
  test.each(updates)("by %s takes its memory, and the handle keeps its value", (_name, change) => {
    const x = filled(1)
    const want = mx.array(change(filled(1)).toTypedArray(), mx.float32).reshape([ROWS, COLUMNS])
    const address = addressOf(x)
    const y = change(x)
    expect(addressOf(y)).toBe(address)
    expect(isSame(x, filled(1))).toBe(true)
    expect(addressOf(x)).not.toBe(address)
    expect(isSame(y, want)).toBe(true)
    // Once more, of the one that was read.
    const again = change(x)
    expect([isSame(again, want), isSame(x, filled(1)), isSame(y, want)]).toEqual([true, true, true])
  })

  test("by each of many in turn keeps every version, read in any order", () => {
    let x = filled(0)
    const versions = [x]
    for (let n = 1; n <= 40; n++) {
      x = x.at(n, n).add(n)
      mx.eval(x)
      versions.push(x)
    }
    const address = addressOf(x)
    for (const n of [17, 3, 40, 39, 0, 18, 21]) {
      expect(versions[n].sum().item()).toBe((n * (n + 1)) / 2)
      expect(versions[n].index(n, n).item()).toBe(n)
    }
    expect(addressOf(x)).toBe(address)
    for (let n = 0; n <= 40; n++) expect(versions[n].sum().item()).toBe((n * (n + 1)) / 2)
  })

  test("copies where it writes much, or JavaScript sees the memory", () => {
    const x = filled(1)
    expect(addressOf(x.at("0:9").add(1))).not.toBe(addressOf(x))
    const seen = x.toTypedArray({ copy: false })
    expect(addressOf(x.at(0).add(1))).not.toBe(addressOf(x))
    expect(seen.every((v) => v === 1)).toBe(true)
  })

  test("gives back what it kept, and the array, once the handles are gone", () => {
    mx.clearCache()
    let x = filled(1)
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    for (let n = 0; n < 200; n++) {
      x = x.at(n % ROWS, 5).add(1)
      mx.eval(x)
    }
    expect(mx.getPeakMemory() - before).toBeLessThan(1.1 * x.nbytes)
    const y = x.at(0, 5).add(1)
    mx.eval(y)
    x.dispose()
    expect(y.sum().item()).toBe(SIZE + 201)
    const kept = y.at(0).add(1)
    mx.eval(kept)
    kept.dispose()
    expect(y.sum().item()).toBe(SIZE + 201)
    mx.memoryReport()
    expect(mx.getActiveMemory() - before).toBeLessThan(0.1 * x.nbytes)
  })

  test("a first update that has to copy does not keep the next ones from finding dead handles", () => {
    const block = filled(1, [1, 2 ** 21])
    const loop = { x: mx.zeros([16, 2 ** 21]) }
    mx.eval(loop.x)
    const update = (i: number): void => {
      loop.x = mx.sliceUpdate(loop.x, block, int(i), [0])
    }
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    for (let i = 0; i < 16; i++) {
      update(i)
      mx.eval(loop.x)
    }
    expect((mx.getPeakMemory() - before) / block.nbytes).toBeLessThan(18.5)
    expect(loop.x.sum().item()).toBe(2 ** 25)
  })

  test("a loop of blocks that drops its handles takes the memory of the array and one block more", () => {
    const block = filled(1, [1, 2 ** 20])
    const run = (change: (x: mx.Array, i: number) => mx.Array): number => {
      // A variable's former value may be alive while its next one is computed.
      const loop = { x: filled(0, [16, 2 ** 20]) }
      const step = (i: number): void => {
        loop.x = change(loop.x, i)
      }
      mx.memoryReport()
      const before = mx.getActiveMemory()
      mx.resetPeakMemory()
      for (let i = 0; i < 16; i++) {
        step(i)
        mx.eval(loop.x)
      }
      const peak = mx.getPeakMemory() - before
      expect(loop.x.sum().item()).toBe(2 ** 24)
      return peak / block.nbytes
    }
    expect(run((x, i) => mx.sliceUpdate(x, block, int(i), [0]))).toBeLessThan(1.5)
    expect(run((x, i) => mx.sliceUpdate(x, block, [i], [0]))).toBeLessThan(1.5)
    expect(run((x, i) => x.at(i).add(block.index(0)))).toBeLessThan(1.5)
    expect(run((x, i) => mx.putAlongAxis(x, mx.array([[i]], mx.int32), block, 0))).toBeLessThan(1.5)
  })

  test("a loop that drops its handles takes the memory of one array", () => {
    const run = (rounds: number): mx.Array => {
      let x = filled(0, [1024, 1024])
      for (let n = 0; n < rounds; n++) {
        x = mx.sliceUpdate(x, mx.ones([1, 1]), [n % 1024, 7], [0, 1])
        mx.eval(x)
      }
      return x
    }
    run(10)
    mx.clearCache()
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const x = run(1500)
    expect(mx.getPeakMemory() - before).toBeLessThan(2.2 * x.nbytes)
    expect(x.sum().item()).toBe(1024)
    // The next test counts what is alive.
    x.dispose()
  })
})

describe("an update of an array whose handle is alive", () => {
  test("needs no more under a memory limit than the part that it keeps", () => {
    const x = filled(1)
    mx.memoryReport()
    const limit = mx.setMemoryLimit(mx.getActiveMemory() + x.nbytes / 2)
    try {
      const y = x.at(0).add(1)
      mx.eval(y)
      expect(y.sum().item()).toBe(SIZE + COLUMNS)
      // The old value has no room beside the new one, until that is given up.
      expect(() => x.toTypedArray()).toThrow(/out of memory/)
      expect(y.sum().item()).toBe(SIZE + COLUMNS)
      y.dispose()
      expect([x.sum().item(), x.index(0, 5).item()]).toEqual([SIZE, 1])
    } finally {
      mx.setMemoryLimit(limit)
    }
  })

  test.each(updates)(
    "by %s in a chain needs no more either, whoever holds what is between",
    (_name, change) => {
      const large = (): mx.Array => filled(1, [4 * ROWS, COLUMNS])
      const want = [large()]
      for (let n = 0; n < 3; n++) want.push(change(want[n]))
      // Beside what is read, each is computed in memory of its own.
      mx.eval(...want)
      const given = filled(0, [4 * ROWS, COLUMNS])
      // Memory that the same evaluation makes: it takes that of what is given up.
      const made = given.add(1)
      const updated = change(made)
      given.dispose()
      const x = large()
      const a = change(x)
      const b = change(a)
      const c = change(b)
      mx.memoryReport()
      const limit = mx.setMemoryLimit(mx.getActiveMemory() + x.nbytes / 2)
      try {
        mx.eval(c)
        mx.eval(updated)
      } finally {
        mx.setMemoryLimit(limit)
      }
      expect([x, a, b, c].map((each, i) => isSame(each, want[i]))).toEqual([true, true, true, true])
      expect([isSame(made, want[0]), isSame(updated, want[1])]).toEqual([true, true])
    },
  )

  test("leaves nothing behind where the part that it would keep cannot be copied", () => {
    const [x, one] = [filled(1), filled(1, [COLUMNS])]
    const { memory } = x.node.storage as Storage
    const { queue } = backendOf(memory)
    const { encodeCopy } = queue
    const before = mx.getActiveMemory()
    queue.encodeCopy = () => {
      throw new Error("planted")
    }
    try {
      expect(() => mx.eval(x.at(0).add(one))).toThrow("planted")
    } finally {
      queue.encodeCopy = encodeCopy
    }
    expect(mx.getActiveMemory()).toBe(before)
    expect(isSame(x, filled(1))).toBe(true)
  })
})

describe("old handles keep their values", () => {
  test("where the update fails, or what it writes, or what is read", () => {
    const x = filled(1)
    const outside = x.at(int(3, 200)).add(1)
    expect(() => mx.eval(outside)).toThrow(/out of bounds/)
    expect(isSame(x, filled(1))).toBe(true)
    const y = x.at(0, 0).add(mx.ones([3]).index(int(7)).squeeze())
    expect(() => mx.eval(y)).toThrow(/out of bounds/)
    expect(isSame(x, filled(1))).toBe(true)
    const z = x.at(1).add(1)
    mx.eval(z)
    expect(() => mx.eval(z.at(int(99)).add(1))).toThrow(/out of bounds/)
    expect([z.sum().item(), x.sum().item()]).toEqual([SIZE + COLUMNS, SIZE])
  })

  test("where the work that changed the memory failed after all", () => {
    for (const disposed of [false, true]) {
      const [x, outside] = [filled(1), int(99)]
      mx.eval(outside)
      const y = x.at(5).add(1)
      mx.eval(y)
      const z = y.at(6).add(1)
      mx.eval(z)
      // A gather that fails and whose result would be the memory of z.
      const storage = z.node.storage as Storage
      let gather = mx.zeros([ROWS, COLUMNS]).index(outside).node
      while (gather.primitive?.name !== "gather") [gather] = gather.inputs
      const { shape, primitive, params, stream } = gather
      const failing = new Node(shape, mx.float32, primitive, [z.node, outside.node], params, stream, 0)
      failing.storage = storage
      const { queue } = backendOf(storage.memory)
      queue.lower(failing)?.encode(failing)
      queue.flush()
      expect(() => z.sum().item()).toThrow()
      if (disposed) z.dispose()
      expect([y.sum().item(), x.sum().item()]).toEqual([SIZE + COLUMNS, SIZE])
      if (!disposed) expect(() => z.add(1).sum().item()).toThrow()
      expect(y.at(0).add(1).sum().item()).toBe(SIZE + 2 * COLUMNS)
    }
  })

  test("in pending work, under grad and in compiled calls, made before and after", () => {
    const x = filled(2)
    const y = x.at(0).add(1)
    mx.eval(y)
    const total = x.multiply(2).sum()
    expect(
      grad((v: mx.Array) => v.square().sum())(x)
        .index(5, 5)
        .item(),
    ).toBe(4)
    const f = compile((v: mx.Array) => v.add(x).sum())
    expect(f(y).item()).toBe(4 * SIZE + COLUMNS)
    const z = x.at(1).add(1)
    mx.eval(z)
    expect([f(z).item(), f(x).item(), total.item()]).toEqual([4 * SIZE + COLUMNS, 4 * SIZE, 4 * SIZE])
    const w = z.at(2).add(1)
    mx.eval(w)
    expect(
      grad((v: mx.Array) => v.at(3).multiply(3).sum())(z)
        .index(3, 0)
        .item(),
    ).toBe(3)
    expect([z.sum().item(), w.sum().item()]).toEqual([2 * SIZE + COLUMNS, 2 * SIZE + 2 * COLUMNS])
  })

  test("on several streams, in asynchronous work, and in other threads' arrays", async () => {
    const [one, two] = [mx.newStream(mx.cpu), mx.newStream(mx.cpu)]
    const x = filled(1)
    const a = mx.stream(one, () => x.at(0).add(1))
    const b = mx.stream(two, () => x.at(1).add(2))
    const waiting = mx.asyncEval(a)
    const c = x.at(2).add(3)
    mx.eval(c, b)
    await waiting
    const [received] = mx.receive(mx.share([c]))
    const d = c.at(3).add(4)
    mx.eval(d)
    const sums = [x, a, b, c, d, received].map((v) => v.sum().item())
    expect(sums).toEqual([0, 1, 2, 3, 7, 3].map((n) => SIZE + n * COLUMNS))
  })
})

/** A small generator, so that a failure can be repeated. */
function randomFrom(seed: number): (n: number) => number {
  let state = seed
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * n)
  }
}

const RUNS = Number(process.env.LAZULI_PROPERTY_RUNS ?? 12)

test("random updates leave every handle its value, whatever else happens to it", async () => {
  const other = mx.newStream(mx.cpu)
  for (let seed = 1; seed <= RUNS; seed++) {
    const pick = randomFrom(seed * 7919)
    const known: { x: mx.Array; want: Float32Array }[] = []
    const add = (x: mx.Array, want: Float32Array): void => {
      known.push({ x, want })
      if (known.length <= 9) return
      const [old] = known.splice(pick(known.length), 1)
      if (pick(3) === 0) old.x.dispose()
    }
    const double = compile((x: mx.Array) => x.at(0).multiply(2), { donate: pick(2) === 0 ? [0] : false })
    add(filled(seed), new Float32Array(SIZE).fill(seed))
    for (let step = 0; step < 70; step++) {
      const entry = known[pick(known.length)]
      const { x, want } = entry
      const [row, column, value] = [pick(ROWS), pick(COLUMNS), pick(50)]
      /** The values with rows and every so many columns of a part changed. */
      const changed = (
        rows: [from: number, to: number],
        columns: [from: number, to: number, step?: number],
        f: (v: number) => number,
      ): Float32Array => {
        const out = want.slice()
        for (let r = rows[0]; r < Math.min(rows[1], ROWS); r++)
          for (let c = columns[0]; c < columns[1]; c += columns[2] ?? 1)
            out[r * COLUMNS + c] = f(out[r * COLUMNS + c])
        return out
      }
      const inRow: [number, number] = [row, row + 1]
      const inColumn: [number, number] = [column, column + 1]
      const all: [number, number] = [0, COLUMNS]
      switch (pick(16)) {
        case 0:
          add(filled(value), new Float32Array(SIZE).fill(value))
          break
        case 1:
          x.set([row, column], value)
          entry.want = changed(inRow, inColumn, () => value)
          break
        case 2:
        case 3:
          add(
            x.at(row, column).add(value),
            changed(inRow, inColumn, (v) => v + value),
          )
          break
        case 4:
          add(
            x.at(int(row, row)).add(value),
            changed(inRow, all, (v) => v + 2 * value),
          )
          break
        case 5:
          add(
            x.at(`${row}:${row + 3}`, "::2").multiply(-1),
            changed([row, row + 3], [0, COLUMNS, 2], (v) => -v),
          )
          break
        case 6:
          add(
            mx.putAlongAxis(x, mx.full([ROWS, 1], column, mx.int32), mx.full([ROWS, 1], value), 1),
            changed([0, ROWS], inColumn, () => value),
          )
          break
        case 7:
          add(
            x.add(value),
            want.map((v) => v + value),
          )
          break
        case 8:
          // A view, evaluated or not, in place of its array.
          add(x.index("..."), want)
          break
        case 9: {
          const from = pick(ROWS)
          const row0 = want.slice(from * COLUMNS, (from + 1) * COLUMNS)
          x.set([row], x.index(from))
          entry.want = want.slice()
          entry.want.set(row0, row * COLUMNS)
          break
        }
        case 10: {
          const g = grad((v: mx.Array) => {
            const y = v.at(row).multiply(2)
            if (pick(2) === 0) mx.eval(y)
            return y.at(row).add(1).sum()
          })(x)
          const ones = new Float32Array(SIZE).fill(1)
          add(g, ones.fill(2, row * COLUMNS, (row + 1) * COLUMNS))
          break
        }
        case 11:
          add(
            double(x.index("...")),
            changed([0, 1], all, (v) => v * 2),
          )
          break
        case 12:
          add(
            mx.stream(other, () => x.at(row).add(1)),
            changed(inRow, all, (v) => v + 1),
          )
          break
        case 13:
          expect(() => mx.eval(x.at(int(row, ROWS + value)).add(1))).toThrow(/out of bounds/)
          break
        case 14:
          if (pick(2) === 0) mx.eval(x)
          else await mx.asyncEval(...known.slice(pick(known.length)).map((each) => each.x))
          break
        default:
          expect([seed, step, bytesOf(x).equals(Buffer.from(want.buffer))]).toEqual([seed, step, true])
      }
      // Most are evaluated at once, as in eager loops.
      if (pick(4) > 0) mx.eval(known[known.length - 1].x)
    }
    while (known.length > 0) {
      const [{ x, want }] = known.splice(pick(known.length), 1)
      expect([seed, bytesOf(x).equals(Buffer.from(want.buffer))]).toEqual([seed, true])
    }
  }
})

describe("an evaluation that also reads a former value", () => {
  const last = (x: mx.Array): number => x.at(0).add(1).index(0, 0).item() as number
  test.each<[string, (x: mx.Array, a: mx.Array) => mx.Array]>([
    ["beside the update's result", (x, a) => a.at(1).add(1).subtract(x)],
    ["before it", (x, a) => x.subtract(a.at(1).add(1))],
    ["two updates back", (x, a) => a.at(1).add(1).at(2).add(1).subtract(x)],
    [
      "by a root of its own",
      (x, a) => {
        const b = a.at(1).add(1)
        const y = x.add(1)
        mx.eval(b, y)
        return b.subtract(y).add(1)
      },
    ],
    [
      "as a root",
      (x, a) => {
        const b = a.at(1).add(1)
        mx.eval(b, x)
        return b.subtract(x)
      },
    ],
  ])("%s", (_name, run) => {
    const x = filled(0)
    const a = x.at(0).add(1)
    mx.eval(a)
    const d = run(x, a)
    const sums = [Math.abs(d.sum().item() as number), a.sum().item(), x.sum().item()]
    expect(sums.slice(1)).toEqual([COLUMNS, 0])
    expect([2 * COLUMNS, 3 * COLUMNS]).toContain(sums[0])
    expect(last(x)).toBe(1)
  })

  test("is not one that leaves its reader pending: that one finds the value later", () => {
    const x = filled(1)
    const a = x.at(0).add(1)
    const address = addressOf(a)
    const later = x.multiply(2)
    const b = a.at(1).add(1)
    expect(addressOf(b)).toBe(address)
    expect([later, x, a, b].map((each) => each.sum().item())).toEqual([
      2 * SIZE,
      SIZE,
      SIZE + COLUMNS,
      SIZE + 2 * COLUMNS,
    ])
  })

  test("of a value that is made former since, by a longer chain", () => {
    const x = filled(0)
    const versions = [x]
    for (let i = 0; i < 5; i++) {
      const next = (versions.at(-1) as mx.Array).at(i).add(1)
      mx.eval(next)
      versions.push(next)
    }
    const all = (versions.at(-1) as mx.Array).at(9).add(1).subtract(versions[2]).add(versions[0])
    expect(all.sum().item()).toBe(4 * COLUMNS)
    expect(versions.map((each) => each.sum().item())).toEqual([0, 1, 2, 3, 4, 5].map((n) => n * COLUMNS))
  })
})

test.each([1.75, 2.25, 2.75, 3.5])(
  "under a limit of %d times the array, an evaluation that restores former values leaves each handle its value",
  (times) => {
    const x = filled(1)
    const y = x.at(7).add(5)
    mx.eval(y)
    const z = y.at(9).add(5)
    mx.eval(z)
    const w = y.at(3).multiply(2)
    // Dead arrays are counted until somebody looks.
    mx.memoryReport()
    const limit = mx.setMemoryLimit(mx.getActiveMemory() + times * x.nbytes)
    try {
      mx.eval(w, x)
    } catch (error) {
      expect((error as Error).message).toContain("Nothing was computed")
    } finally {
      mx.setMemoryLimit(limit)
    }
    expect([x, y, z, w].map((each) => (each.sum().item() as number) - SIZE)).toEqual([
      0,
      5 * COLUMNS,
      10 * COLUMNS,
      6 * COLUMNS,
    ])
  },
)

test("what is computed beside a read writes over nothing that is read", () => {
  const x = mx.zeros([4096, 64]).add(1)
  const loss = x.at(0).add(1).sum()
  const { overdue } = lifetimes as unknown as { overdue: boolean }
  Object.assign(lifetimes, { overdue: true })
  try {
    expect(x.toTypedArray()[0]).toBe(1)
  } finally {
    Object.assign(lifetimes, { overdue })
  }
  expect(loss.item()).toBe(4096 * 64 + 64)
})
