/** Command buffers run by the addon alone: records, their checks, failures and poison. */
import { integers } from "@lazuli/conformance/generator"
import { afterEach, describe, expect, it } from "vitest"
import {
  alloc,
  code,
  data,
  free,
  map,
  type Operand,
  opNames,
  pair,
  plan,
  program,
  record,
  run,
} from "../test/command-assembler"
import { commandBench } from "../test/command-bench"
import { native } from "./native"

const { commands, execute, newId, put, get, release, ok } = commandBench({ words: 1 << 20, firstId: 0 })
afterEach(() => {
  release()
})

describe("the command buffer", () => {
  const f32 = (s: number, n = 4): Operand => ({ id: s, dtype: "float32", shape: [n] })
  const add = program(["float32", "float32"], [["add", "float32", [0, 1]]])

  it("allocates, runs, frees; ALLOC of a taken id replaces the buffer", () => {
    const x = put(new Float32Array([1, 2, 3, 4]))
    const y = newId()
    ok(
      alloc(y, 16),
      alloc(y, 16),
      map(add, [f32(x), f32(x)], [f32(y)]),
      run(native.kernels().indexOf("copy"), [f32(y)], [f32(x)]),
    )
    expect([...get(x, new Float32Array(4))]).toEqual([2, 4, 6, 8])
    ok(free(y))
    expect(() => native.read(y, 0, new Uint8Array(1))).toThrow("there is no buffer")
  })

  it("brings contents along", () => {
    const x = newId()
    ok(data(x, [0x40000000_3f800000n, 0x40400000n], 4))
    expect([...get(x, new Float32Array(3))]).toEqual([1, 2, 3])
    expect(() => get(x, new Float32Array(4))).toThrow("do not fit")
    ok(data(x, []))
    expect(() => get(x, new Float32Array(1))).toThrow("do not fit")
  })

  it("poisons what depends on a failure and runs the rest", () => {
    const [a, b, c, d] = [put(new Float32Array(4).fill(1)), newId(), newId(), newId()]
    native.poisoned()
    const failed = execute(
      alloc(b, 16),
      alloc(c, 16),
      alloc(d, 16),
      run(4000, [f32(a)], [f32(b)]),
      map(add, [f32(a), f32(b)], [f32(c)]),
      map(add, [f32(a), f32(a)], [f32(d)]),
    )
    expect(failed).toBe(1)
    expect(native.failures()).toEqual([{ word: 9, message: "there is no kernel 4000" }])
    expect(native.poisoned().map(({ id }) => id)).toEqual([b, c])
    expect(native.poisoned().map(({ id }) => id)).toEqual([])
    expect([...get(d, new Float32Array(4))]).toEqual([2, 2, 2, 2])
    // Poison lasts over runs until the buffer is allocated anew or freed.
    expect(execute(map(add, [f32(c), f32(a)], [f32(d)]))).toBe(0)
    expect(native.poisoned().map(({ id }) => id)).toEqual([d])
    ok(
      alloc(c, 16),
      free(d),
      alloc(d, 16),
      map(add, [f32(a), f32(a)], [f32(c)]),
      map(add, [f32(c), f32(a)], [f32(d)]),
    )
    expect([...get(d, new Float32Array(4))]).toEqual([3, 3, 3, 3])
  })

  it("survives an allocation beyond the limit, and says what was asked", () => {
    const [a, b] = [newId(), newId()]
    const { limit } = native.memory()
    native.setMemoryLimit(1 << 20)
    try {
      expect(execute(alloc(a, 1 << 24), alloc(b, 16), map(add, [f32(a), f32(b)], [f32(b)]))).toBe(1)
      expect(native.failures()[0].message).toMatch(
        /^\[allocate\] out of memory: requested 16777216 bytes with \d+ active, limit 1048576$/,
      )
      expect(native.poisoned().map(({ id }) => id)).toEqual([a, b])
      expect(() => native.allocate(a, 1 << 24)).toThrow("out of memory: requested 16777216 bytes")
    } finally {
      native.setMemoryLimit(limit)
    }
  })

  it("turns every malformed record into a failure", () => {
    const x = put(new Float32Array([1, 2, 3, 4]))
    const y = put(new Float32Array(4))
    const messages: string[] = []
    const bad: bigint[][] = [
      [0n],
      [pair(4, 100)],
      record(77, []),
      record(1, [1n]),
      record(1, [BigInt(y), -5n]),
      record(1, [-1n, 5n]),
      record(10, [BigInt(y)]),
      record(10, [BigInt(y), 8n]),
      record(10, [BigInt(y), 8n, 1n, 2n]),
      record(10, [BigInt(y), -1n]),
      record(10, [-1n, 5n, 1n]),
      record(3, []),
      record(4, []),
      record(5, []),
      record(5, [pair(12345, 0)]),
      record(4, [pair(add, 2), 1n]),
      map(12345, [f32(x), f32(x)], [f32(y)]),
      map(add, [f32(x)], [f32(y)]),
      map(add, [f32(x, 5000), f32(x, 5000)], [f32(y, 5000)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [3] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "int32", shape: [4] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], strides: [1000000] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], strides: [-1] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], strides: [2 ** 60] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [2 ** 33, 2 ** 33], strides: [0, 0] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [-4], strides: [1] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], offset: 2 }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], offset: -16 }], [f32(y)]),
      map(add, [f32(x), { id: 66_000_000, dtype: "float32", shape: [4] }], [f32(y)]),
      map(add, [f32(x), f32(x)], [{ bits: 0n, dtype: "float32" }]),
    ]
    for (const [i, each] of bad.entries()) {
      expect(execute(each), `record ${i}`).toBe(1)
      messages.push(native.failures()[0].message)
      native.poisoned()
      native.free(y)
      native.allocate(y, 16)
    }
    expect(
      messages.map((m) =>
        m.replaceAll(/(buffer|buffer id) \d+/g, "$1 N").replaceAll(/, which has \d+/g, ", which has C"),
      ),
    ).toMatchInlineSnapshot(`
      [
        "malformed command buffer: a record of 0 words where 1 are left",
        "malformed command buffer: a record of 100 words where 1 are left",
        "malformed record: unknown opcode 77",
        "malformed record: ALLOC takes a buffer id and bytes",
        "[allocate] cannot allocate -5 bytes",
        "[allocate] buffer id N is out of range",
        "malformed record: DATA takes a buffer id, a number of bytes, and these",
        "malformed record: DATA takes a buffer id, a number of bytes, and these",
        "malformed record: DATA takes a buffer id, a number of bytes, and these",
        "malformed record: DATA takes a buffer id, a number of bytes, and these",
        "[allocate] buffer id N is out of range",
        "malformed record: RUN lacks its kernel or operands",
        "malformed record: MAP lacks its program or operands",
        "malformed record: PLAN lacks its plan",
        "there is no plan 12345",
        "malformed record: MAP lacks its program or operands",
        "there is no scalar program 12345",
        "[map] the program takes 2 inputs and 1 outputs, received 1 and 1",
        "malformed record: an operand reaches bytes 0 to 20000 of buffer N, which has C",
        "[map] input 1 has shape [3], the output [4]",
        "[map] input 1 must be float32, received int32",
        "malformed record: an operand reaches bytes 0 to 12000004 of buffer N, which has C",
        "malformed record: an operand reaches bytes -12 to 4 of buffer N, which has C",
        "malformed record: an operand's shape does not match its size",
        "malformed record: an operand's shape does not match its size",
        "malformed record: an operand's size is out of range",
        "malformed record: an operand's offset is negative or not aligned",
        "malformed record: an operand's offset is negative or not aligned",
        "there is no buffer N",
        "malformed record: an output is an immediate",
      ]
    `)
  })

  it("does not crash on noise", () => {
    const x = put(new Float32Array(1024))
    const y = put(new Float32Array(1024))
    const shape = [32, 32]
    const base = [
      map(
        add,
        [
          { id: x, dtype: "float32", shape },
          { id: x, dtype: "float32", shape, strides: [1, 32] },
        ],
        [{ id: y, dtype: "float32", shape }],
      ),
      run(native.kernels().indexOf("copy"), [f32(x, 1024)], [f32(y, 1024)]),
    ].flat()
    const next = integers(12345)
    const values = [
      0n,
      1n,
      -1n,
      2n,
      31n,
      33n,
      1n << 20n,
      1n << 40n,
      -(1n << 62n),
      (1n << 63n) - 1n,
      0x1000100000001n,
    ]
    for (let round = 0; round < 5000; round++) {
      commands.set(base)
      for (let k = next(3); k >= 0; k--) {
        const at = next(base.length)
        commands[at] = next(2) ? values[next(values.length)] : commands[at] ^ (1n << BigInt(next(40)))
      }
      native.run(base.length)
      native.poisoned()
      native.allocate(y, 4096)
      if (round % 64 === 0) native.allocate(x, 4096)
    }
  })

  it("does not crash on noise in programs and plans", () => {
    const x = put(new Float32Array(256))
    const y = put(new Float32Array(256))
    const f = code("float32")
    const op = (name: string) => opNames.indexOf(name)
    const steps = [
      [op("exp"), f, 0, -1, -1, 0],
      [op("less"), 0, 0, 1, -1, 0],
      [op("constant"), f, -1, -1, -1, 7],
      [op("select"), f, 3, 4, 1, 0],
      [op("cast"), code("float16"), 5, -1, -1, 0],
      [op("cast"), f, 6, -1, -1, 0],
    ]
    const programs = [2, steps.length, 1, f, f, ...steps.flat(), 7].map(BigInt)
    const operand = (s: number): Operand => ({ id: s, dtype: "float32", shape: [16, 16] })
    const plans = [
      ...map(add, [operand(0), operand(0)], [operand(2)]),
      ...map(add, [operand(2), operand(0)], [operand(1)]),
    ]
    const next = integers(99)
    const noisy = (words: bigint[]) => {
      const out = new BigInt64Array(words)
      for (let k = next(3); k >= 0; k--)
        out[next(out.length)] = [0n, 1n, -1n, 3n, 13n, 60n, 255n, 1n << 33n, -(1n << 60n)][next(9)]
      return next(4) ? out : out.subarray(0, next(out.length))
    }
    let [ran, refused] = [0, 0]
    for (let round = 0; round < 3000; round++) {
      try {
        const id = native.registerProgram(noisy(programs))
        execute(map(id, [f32(x, 256), f32(x, 256)], [f32(y, 256)]))
        native.releaseProgram(id)
        ran++
      } catch {
        refused++
      }
      try {
        const id = native.registerPlan(noisy(plans), 1, 1, 1024)
        execute(plan(id, [[x, 0]], [[y, 0]]))
        native.releasePlan(id)
        ran++
      } catch {
        refused++
      }
      native.free(y)
      native.allocate(y, 1024)
    }
    native.poisoned()
    expect(ran).toBeGreaterThan(100)
    expect(refused).toBeGreaterThan(100)
  })

  it("keeps running when the command buffer was detached", () => {
    const other = new ArrayBuffer(64)
    native.attachCommands(other)
    structuredClone(other, { transfer: [other] })
    expect(() => native.run(2)).toThrow("2 words do not fit the attached command buffer of 0 bytes")
    native.attachCommands(commands.buffer)
  })
})
