/**
 * Evaluation through public entries: order, sharing, failures and what a living handle keeps. Kernels and donation are tested on the CPU.
 */
import { describe, expect, test } from "vitest"
import { backendFor } from "../graph/backend"
import * as mx from "../index"

let runs = 0
const counted = mx.definePrimitive({
  name: "@lazuli/test/counted",
  infer: ([x]) => x,
  reference([x], [y]) {
    runs++
    for (let i = 0; i < x.data.length; i++) y.data[i] = x.data[i]
  },
})
const failing = mx.definePrimitive({
  name: "@lazuli/test/failing",
  infer: ([x]) => x,
  reference() {
    throw new Error("no value")
  },
})

test("where memory ends between two outputs, both are computed later", () => {
  const both = mx.definePrimitive({
    name: "@lazuli/test/both",
    infer: ([x]) => [x, x],
    reference([x], outputs) {
      outputs.forEach(({ data }, k) => {
        for (let i = 0; i < x.data.length; i++) data[i] = x.data[i] + k
      })
    },
  })
  const { memory } = backendFor(mx.cpu)
  const { allocate } = memory
  const [a, b] = both.all([mx.array([1, 2])])
  let calls = 0
  memory.allocate = (...args) => {
    if (++calls === 2) throw new mx.DeviceError("test", "no memory is left")
    return allocate.apply(memory, args)
  }
  try {
    expect(() => mx.eval(a)).toThrow("no memory is left")
  } finally {
    memory.allocate = allocate
  }
  expect([a.tolist(), b.tolist()]).toEqual([
    [1, 2],
    [2, 3],
  ])
})

describe("order", () => {
  test("nothing runs before a value is asked for, and each application runs once", () => {
    runs = 0
    const shared = counted([mx.array([1, 2])])
    const [a, b] = [shared.add(1), shared.multiply(shared)]
    expect(runs).toBe(0)
    mx.eval(a, [b])
    expect([a.tolist(), b.tolist(), shared.tolist(), runs]).toEqual([[2, 3], [1, 4], [1, 2], 1])
  })

  test("what nobody asks for does not run", () => {
    runs = 0
    const x = mx.ones([2])
    counted([x])
    mx.eval(x.add(1))
    expect(runs).toBe(0)
  })

  test("what is pending is computed once it is too much, but for what was disposed", () => {
    const seen: number[] = []
    const watched = mx.definePrimitive({
      name: "@lazuli/test/watched",
      params: { id: "i64" },
      infer: ([x]) => x,
      reference: (_inputs, _outputs, { id }) => void seen.push(id),
    })
    const large = mx.zeros([2 ** 14])
    const kept = watched([large], { id: 1 })
    watched([large], { id: 2 }).dispose()
    let x = mx.ones([1])
    for (let i = 0; i < 70_000; i++) x = x.add(1)
    expect(seen).toEqual([1])
    expect(kept.tolist()).toHaveLength(2 ** 14)
  })

  test("a chain of 50,000 applications needs no stack", () => {
    let x = mx.zeros([1])
    for (let i = 0; i < 50_000; i++) x = x.add(1)
    expect(x.item()).toBe(50_000)
  })

  test("an evaluated array, an empty list and a tree without arrays have nothing to do", () => {
    const x = mx.ones([1])
    mx.eval(x)
    mx.eval(x, [], { a: 1 })
    expect(x.item()).toBe(1)
  })
})

describe("memory", () => {
  test("a living handle keeps its value, whatever is computed from it", () => {
    const x = mx.array([1, 2, 3])
    const y = x.add(1)
    const z = y.multiply(2).negative().add(y)
    expect(z.tolist()).toEqual([-2, -3, -4])
    expect([x.tolist(), y.tolist()]).toEqual([
      [1, 2, 3],
      [2, 3, 4],
    ])
  })

  test("a view keeps what it shows, and what is done to a copy does not reach it", () => {
    const x = mx.arange(6).reshape(2, 3)
    const column = x.T.index(1)
    const changed = x.at(mx.s(), 1).add(10)
    mx.eval(column, changed)
    expect([column.tolist(), changed.tolist(), x.tolist()]).toEqual([
      [1, 4],
      [[0, 11, 2], [3, 14, 5]],
      [[0, 1, 2], [3, 4, 5]],
    ]) // biome-ignore format: matrices
  })
})

describe("one elementwise array alone", () => {
  const x = mx.arange(12).reshape(3, 4)
  const cases: Record<string, () => mx.Array> = {
    "of whole arrays": () => x.add(x),
    "of a number": () => x.multiply(0.5),
    "of a view and a broadcast row": () => x.T.add(x.index(mx.s(), 1).expandDims(1).T),
    "of an array without a handle": () => x.square().negative(),
    "of no elements": () => mx.zeros([0]).add(1),
    "of another dtype": () => x.greater(3),
  }
  test.each(Object.entries(cases))("%s has the value that it has in a graph", (_, make) => {
    const [alone, together, other] = [make(), make(), counted([x])]
    mx.eval(...[alone, together].flatMap(({ node }) => node.inputs.map((input) => new mx.Array(input))))
    mx.eval(alone)
    mx.eval(together, other)
    expect(alone.tolist()).toEqual(together.tolist())
    expect(x.tolist()).toEqual([
      [0, 1, 2, 3],
      [4, 5, 6, 7],
      [8, 9, 10, 11],
    ])
  })
})

describe("a failure", () => {
  test("reaches what depends on it, and nothing else", () => {
    const bad = failing([mx.ones([2])])
    const [after, beside] = [bad.add(1), mx.ones([2]).add(1)]
    expect(() => mx.eval(after, beside)).toThrow(/no value/)
    expect(() => after.tolist()).toThrow(/no value/)
    expect(beside.tolist()).toEqual([2, 2])
  })

  test("of memory for a single elementwise array leaves it to be computed later", () => {
    const { memory } = backendFor(mx.cpu)
    const { allocate } = memory
    const y = mx.array([1, 2]).add(1)
    memory.allocate = () => {
      throw new mx.DeviceError("test", "no memory is left")
    }
    try {
      expect(() => mx.eval(y)).toThrow("no memory is left")
    } finally {
      memory.allocate = allocate
    }
    expect([y.multiply(2).tolist(), y.tolist()]).toEqual([
      [4, 6],
      [2, 3],
    ])
  })

  test("of its encoding stays on it, and on nothing else", () => {
    const { queue } = backendFor(mx.cpu)
    const { lower } = queue
    const x = mx.array([1, 2])
    const [y, beside] = [x.add(1), x.add(2)]
    queue.lower = () => ({
      encode() {
        throw new mx.DeviceError("test", "no words are left")
      },
    })
    try {
      expect(() => mx.eval(y)).toThrow("no words are left")
    } finally {
      queue.lower = lower
    }
    expect(() => y.tolist()).toThrow("no words are left")
    expect([beside.tolist(), x.add(3).tolist()]).toEqual([
      [3, 4],
      [4, 5],
    ])
  })

  test("leaves evaluation usable", () => {
    expect(() => failing([mx.ones([1])]).item()).toThrow()
    expect(counted([mx.array([7])]).item()).toBe(7)
  })
})
