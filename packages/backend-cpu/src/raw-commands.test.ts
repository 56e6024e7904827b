/**
 * Command buffers as no encoder writes them: PROLOGUE, RUN and EPILOGUE where they mean nothing, and noise. The addon refuses, and never
 * crashes.
 */

import { generator } from "@lazuli/conformance/generator"
import { afterEach, describe, expect, test } from "vitest"
import {
  dtypes,
  epilogue,
  map,
  type Operand,
  plan,
  program,
  prologue,
  record,
  run,
  wait,
} from "../test/command-assembler"
import { commandBench } from "../test/command-bench"
import { native } from "./native"

const QUEUE = 100
const {
  execute,
  put,
  get: read,
  release,
} = commandBench({ words: 1 << 14, firstId: 9_000_000, queue: QUEUE })
const get = (id: number, n: number): Float32Array => read(id, new Float32Array(n))
afterEach(() => {
  release()
  native.poisoned()
})

const kernel = (name: string): number => native.kernels().indexOf(name)
const f32 = (id: number, shape: number[], offset = 0): Operand => ({
  id,
  dtype: "float32",
  shape,
  offset,
})
const two = { bits: 0x40000000n, dtype: "float32" } as const
const scale = program(["float32", "float32"], [["multiply", "float32", [0, 1]]])
const words = (...records: bigint[][]): BigInt64Array => new BigInt64Array(records.flat())
const register = (nIn: number, nOut: number, arena: number, ...records: bigint[][]): number =>
  native.registerPlan(words(...records), nIn, nOut, arena)

// 128 rows of 512: enough for pieces. Bindings: 0 input, 1 output, 2 arena.
const ROWS = 128
const COLUMNS = 512
const SHAPE = [ROWS, COLUMNS]
const BYTES = 4 * ROWS * COLUMNS
const twice = (from: number, to: number): [number, Operand[], Operand[]] => [
  scale,
  [f32(from, SHAPE), two],
  [f32(to, SHAPE)],
]
const sumOf = (from: number, to: number, shape = SHAPE): bigint[] =>
  run(kernel("sum"), [f32(from, shape)], [f32(to, [1, 1])], [2n, 0n, 1n])
const numbers = Float32Array.from({ length: ROWS * COLUMNS }, (_, i) => (i % 7) - 2)
const total = 2 * numbers.reduce((a, b) => a + b, 0)

/** Runs a plan of one input of {@link SHAPE} and one output. */
function replay(id: number, outputs: number): Float32Array {
  const [x, y] = [put(numbers), put(new Float32Array(ROWS * COLUMNS).fill(-1))]
  const failed = execute(plan(id, [[x, 0]], [[y, 0]]))
  native.releasePlan(id)
  if (failed) throw new Error("the plan failed")
  return get(y, outputs)
}

describe("a PROLOGUE", () => {
  test("before a reduction of the same elements is read as it is computed, or as any other work", () => {
    expect(replay(register(1, 1, BYTES, prologue(...twice(0, 2)), sumOf(2, 1)), 1)[0]).toBe(total)
    expect(replay(register(1, 1, BYTES, map(...twice(0, 2)), sumOf(2, 1)), 1)[0]).toBe(total)
    // Other shapes of as many elements, fewer of them, and others than it makes.
    const same = register(1, 1, BYTES, prologue(...twice(0, 2)), sumOf(2, 1, [COLUMNS, ROWS]))
    expect(replay(same, 1)[0]).toBe(total)
    const fewer = register(1, 1, BYTES, prologue(...twice(0, 2)), sumOf(2, 1, [1, COLUMNS]))
    expect(replay(fewer, 1)[0]).toBe(2 * numbers.subarray(0, COLUMNS).reduce((a, b) => a + b, 0))
    const others = register(1, 1, 2 * BYTES, prologue(...twice(0, 2)), sumOf(0, 1))
    expect(replay(others, 1)[0]).toBe(total / 2)
  })

  test("that nothing reads, or one that is no reduction, or itself", () => {
    expect(replay(register(1, 1, 0, prologue(...twice(0, 1))), 3)).toEqual(new Float32Array([-4, -2, 0]))
    const chain = register(
      1,
      1,
      BYTES,
      prologue(...twice(0, 2)),
      prologue(...twice(2, 2)),
      map(...twice(2, 1)),
    )
    expect(replay(chain, 3)).toEqual(new Float32Array([-16, -8, 0]))
    // Its output is where its operand lies: written in place, then summed.
    expect(replay(register(1, 1, 0, prologue(...twice(0, 0)), sumOf(0, 1)), 1)[0]).toBe(total)
  })

  test("before a kernel that reads only memory fails, and the next run goes well", () => {
    const copy = run(kernel("copy"), [f32(2, SHAPE)], [f32(1, SHAPE)])
    const id = register(1, 1, BYTES, prologue(...twice(0, 2)), copy)
    for (let i = 0; i < 2; i++) {
      const [x, y] = [put(numbers), put(numbers)]
      expect(execute(plan(id, [[x, 0]], [[y, 0]]))).toBe(1)
      expect(native.poisoned()[0].message).toMatch(/reads only memory/)
    }
    native.releasePlan(id)
    expect(replay(register(1, 1, BYTES, prologue(...twice(0, 2)), sumOf(2, 1)), 1)[0]).toBe(total)
  })
})

describe("an EPILOGUE", () => {
  const product = (to: number): bigint[] =>
    run(kernel("matmul"), [f32(0, [64, 64]), f32(0, [64, 64])], [f32(to, [64, 64])])
  const last = (from: number, to: number, shape = [64, 64], offset = 0): bigint[] =>
    epilogue(scale, [f32(from, shape, offset), two], [f32(to, shape)])
  const a = numbers.subarray(0, 64 * 64)
  const expected = new Float32Array(64 * 64)
  for (let i = 0; i < 64; i++)
    for (let j = 0; j < 64; j++)
      for (let k = 0; k < 64; k++) expected[i * 64 + j] += 2 * a[i * 64 + k] * a[k * 64 + j]

  test("after a product runs on its pieces", () => {
    expect(replay(register(1, 1, 16384, product(2), last(2, 1)), 4096)).toEqual(expected)
    expect(replay(register(1, 1, 16384, product(1), last(1, 1)), 4096)).toEqual(expected)
    expect(replay(register(1, 1, 16384, product(2), last(2, 1, [4096])), 4096)).toEqual(expected)
  })

  test("without a kernel, of another result, of a part, or over what the kernel reads, runs as any other work", () => {
    expect(replay(register(1, 1, 0, last(0, 1)), 3)).toEqual(new Float32Array([-4, -2, 0]))
    expect(replay(register(1, 1, 0, last(0, 1), last(1, 1)), 3)).toEqual(new Float32Array([-8, -4, 0]))
    expect(replay(register(1, 1, 16384, product(2), last(0, 1)), 3)).toEqual(new Float32Array([-4, -2, 0]))
    const part = register(1, 1, 16384, product(2), last(2, 1, [32, 64], 8192))
    expect(replay(part, 2048)).toEqual(expected.subarray(2048))
    const over = register(
      1,
      1,
      16384,
      product(2),
      last(2, 0),
      run(kernel("copy"), [f32(0, [64, 64])], [f32(1, [64, 64])]),
    )
    expect(replay(over, 4096)).toEqual(expected)
    const copied = register(
      1,
      1,
      BYTES,
      run(kernel("copy"), [f32(0, SHAPE)], [f32(2, SHAPE)]),
      epilogue(...twice(2, 1)),
    )
    expect(replay(copied, 3)).toEqual(new Float32Array([-4, -2, 0]))
  })
})

describe("what is refused", () => {
  const fed = [prologue(...twice(0, 2)), sumOf(2, 1)].flat()

  test("PROLOGUE and EPILOGUE outside of plans", () => {
    const x = put(numbers)
    for (const make of [prologue, epilogue]) {
      const each = make(...twice(x, x))
      expect(execute(each)).toBe(1)
      native.wait(QUEUE, native.submit(each.length, QUEUE))
    }
    expect(get(x, 3)).toEqual(numbers.subarray(0, 3))
  })

  test("plans that are cut short anywhere but between records", () => {
    const whole = new Set([0, prologue(...twice(0, 2)).length, fed.length])
    for (let length = 0; length <= fed.length; length++) {
      const cut = (): void =>
        native.releasePlan(native.registerPlan(words(fed.slice(0, length)), 1, 1, BYTES))
      if (whole.has(length)) cut()
      else expect(cut, `${length} words`).toThrow(/^\[registerPlan\]/)
    }
  })

  test("buffers, programs and kernels that are not there, and operands that reach too far", () => {
    const far = { id: 2, dtype: "float32", shape: SHAPE, offset: 4 } as const
    for (const [records, message] of [
      [[prologue(...twice(0, 3))], "binding 3 is out of range"],
      [[epilogue(...twice(2 ** 31, 1))], "binding 2147483648 is out of range"],
      [[prologue(9999, [f32(0, SHAPE), two], [f32(2, SHAPE)])], "there is no scalar program 9999"],
      [[prologue(scale, [f32(0, SHAPE)], [f32(2, SHAPE)])], "the program takes 2 inputs and 1 outputs"],
      [[prologue(scale, [f32(0, SHAPE), two], [two])], "an output is an immediate"],
      [[prologue(scale, [f32(0, [3]), two], [f32(2, SHAPE)])], "input 0 has shape"],
      [[prologue(scale, [f32(0, SHAPE), two], [far])], "records reach 262148 bytes of an arena of 262144"],
      [[run(60000, [f32(0, SHAPE)], [f32(1, SHAPE)])], "there is no kernel 60000"],
      [
        [run(kernel("copy"), [f32(0, SHAPE)], [{ ...f32(1, SHAPE), strides: [0, 0] }])],
        "an output of a kernel has gaps",
      ],
      [[record(8, [])], "a record of 1 words"],
      [[record(6, [0n, 1n])], "a plan cannot hold records of opcode 6"],
    ] as const)
      expect(() => register(1, 1, BYTES, ...records)).toThrow(message)
    const x = put(numbers)
    expect(execute(run(kernel("copy"), [f32(x, SHAPE)], [{ ...f32(x, SHAPE), strides: [1, 1] }]))).toBe(1)
  })

  test("plans that are too deep, and whose offsets add up", () => {
    const made = [register(1, 1, 0, map(...twice(0, 1)))]
    expect(() => {
      for (let i = 0; i < 1000; i++) made.push(register(1, 1, 0, plan(made[i], [[0, 0]], [[1, 0]])))
    }).toThrow("plans are nested more than 256 deep")
    expect(replay(made.pop() as number, 3)).toEqual(new Float32Array([-4, -2, 0]))
    let inner = made[0]
    expect(() => {
      for (let i = 0; i < 200; i++)
        made.push((inner = register(1, 1, 0, plan(inner, [[0, 2 ** 53]], [[1, 0]]))))
    }).toThrow("reaches too far into binding 0")
    for (const id of made) native.releasePlan(id)
  })

  test("waits that would not end, and news for nobody", () => {
    expect(execute(wait(QUEUE, native.done(QUEUE) + 2))).toBe(1)
    expect(execute(wait(QUEUE + 1, 1))).toBe(1)
    native.attachCommands(new ArrayBuffer(8), QUEUE + 1)
    native.run(0, QUEUE + 1)
    expect(execute(wait(QUEUE + 1, 1))).toBe(0)
    expect(execute(wait(QUEUE + 1, 2))).toBe(1)
    expect(() => native.submit(0, QUEUE, 1)).toThrow("there is no listener")
  })
})

test("matrices of other sizes than a kernel's result or each other", () => {
  const [x, y] = [put(numbers), put(numbers)]
  const a = f32(x, [2, 8, 4])
  const cdist = (b: Operand, to: Operand): bigint[] =>
    run(kernel("cdist"), [a, b], [to], [0x4004000000000000n])
  expect(execute(cdist(f32(x, [2, 5, 4]), f32(y, [2, 8, 5])))).toBe(0)
  const misfits: [Operand, Operand][] = [
    [f32(x, [2, 5, 3]), f32(y, [2, 8, 5])],
    [f32(x, [1, 5, 4]), f32(y, [2, 8, 5])],
    [f32(x, [2, 5, 4]), f32(y, [3, 8, 5])],
    [f32(x, [2, 5, 4]), f32(y, [2, 9, 5])],
    [f32(x, [2, 5, 4]), f32(y, [2, 8, 6])],
    [{ ...f32(x, [2, 5, 4]), dtype: "float64" }, f32(y, [2, 8, 5])],
  ]
  for (const [b, to] of misfits) expect(execute(cdist(b, to))).toBe(1)
})

test("noise in plans and in calls of every kernel is computed or refused", () => {
  const next = generator(6)
  const pick = (n: number): number => Math.floor(next() * n)
  const of = <T>(list: readonly T[]): T => list[pick(list.length)]
  const odd = [
    0n,
    1n,
    -1n,
    2n,
    3n,
    7n,
    8n,
    64n,
    65n,
    4096n,
    1n << 31n,
    1n << 40n,
    -(1n << 62n),
    (1n << 63n) - 1n,
    0x3ff0000000000000n,
  ]
  const square = f32(0, [64, 64])
  const whole = [
    ...prologue(...twice(0, 2)),
    ...sumOf(2, 1),
    ...run(kernel("matmul"), [square, square], [f32(2, [64, 64])]),
    ...epilogue(scale, [f32(2, [64, 64]), two], [f32(1, [64, 64])]),
  ]
  const [x, y] = [put(numbers), put(numbers)]
  const count = { ran: 0, failed: 0, refused: 0 }
  for (let round = 0; round < 1500; round++) {
    const noisy = [...whole]
    for (let k = pick(3); k >= 0; k--) {
      const at = pick(noisy.length)
      noisy[at] = of([
        of(odd),
        BigInt.asIntN(64, noisy[at] + of([1n, -1n, 8n])),
        BigInt.asIntN(64, noisy[at] ^ (1n << BigInt(pick(63)))),
      ])
    }
    try {
      const id = native.registerPlan(new BigInt64Array(noisy), 1, 1, BYTES)
      if (execute(plan(id, [[x, 0]], [[y, 0]]))) count.failed++
      else count.ran++
      native.releasePlan(id)
    } catch {
      count.refused++
    }
  }
  const kernels = native.kernels().length
  const shapes = [
    [],
    [0],
    [1],
    [7],
    [64],
    [3, 5],
    [8, 8],
    [1, 64],
    [2, 0],
    [2, 4, 4],
    [1, 3, 8, 8],
    [2, 6, 6, 3],
  ]
  for (let round = 0; round < 6000; round++) {
    const shape = of(shapes)
    const operand = (): Operand => {
      const same = pick(3) ? shape : of(shapes)
      const dtype = of(dtypes.slice(pick(2) * 9))
      return pick(12)
        ? { id: x, dtype, shape: same, ...(pick(4) ? {} : { strides: same.map(() => pick(5)) }) }
        : { bits: of(odd), dtype }
    }
    const inputs = Array.from({ length: of([1, 1, 2, 2, 3, 4, 0, 5]) }, operand)
    const outputs = Array.from({ length: of([1, 1, 1, 2, 3, 0]) }, () => ({ ...operand(), id: y }))
    const parameters = Array.from({ length: pick(6) }, () => of(odd))
    if (execute(run(round % kernels, inputs, outputs, parameters))) count.failed++
    else count.ran++
    if (round % 16 === 0) {
      native.allocate(x, BYTES)
      native.allocate(y, BYTES)
      native.write(x, 0, numbers)
      native.poisoned()
    }
  }
  expect(count.ran).toBeGreaterThan(50)
  expect(count.failed).toBeGreaterThan(100)
  expect(count.refused).toBeGreaterThan(100)
})
