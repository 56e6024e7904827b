/** DENSE records: what elementwise work on whole arrays computes, what it refuses, and how failures pass through it. */

import { generator } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { afterEach, expect, test } from "vitest"
import { alloc, dense, free, map, type Operand, pair, program, record } from "../test/command-assembler"
import { bitsOf, commandBench } from "../test/command-bench"
import { native } from "./native"
import "./index"

const { execute, put, get, release } = commandBench({ words: 1 << 12, firstId: 8_000_000, queue: 101 })
const messages = (): string[] => native.poisoned().map(({ message }) => message)

afterEach(() => {
  release()
  native.poisoned()
})

const multiply = program(["float32", "float32"], [["multiply", "float32", [0, 1]]])
const count = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => i - 3)

test("computes with whole arrays, single elements and immediates, from offsets, of no, one and many elements", () => {
  for (const n of [0, 1, 2, 17, 1023, 1024, 5000]) {
    const [x, y, z] = [put(count(n + 2)), put(new Float32Array([7, 5])), put(new Float32Array(n))]
    const from = (scale: number, skip: number): Float32Array =>
      count(n + skip)
        .subarray(skip)
        .map((v) => v * scale)
    expect(
      execute(
        dense(
          multiply,
          n,
          0,
          [
            [x, 8],
            [x, 8],
          ],
          [z, 0],
        ),
      ),
    ).toBe(0)
    expect(get(z, new Float32Array(n))).toEqual(
      count(n + 2)
        .subarray(2)
        .map((v) => v * v),
    )
    expect(
      execute(
        dense(
          multiply,
          n,
          2,
          [
            [x, 4],
            [y, 4],
          ],
          [z, 0],
        ),
      ),
    ).toBe(0)
    expect(get(z, new Float32Array(n))).toEqual(from(5, 1))
    expect(execute(dense(multiply, n, 0x10000, [bitsOf(3), [x, 0]], [z, 0]))).toBe(0)
    expect(get(z, new Float32Array(n))).toEqual(from(3, 0))
    expect(execute(dense(multiply, n, 0x20001, [[y, 0], bitsOf(2)], [z, 0]))).toBe(0)
    expect(get(z, new Float32Array(n))).toEqual(new Float32Array(n).fill(14))
    // In place.
    expect(execute(dense(multiply, n, 0x20000, [[x, 0], bitsOf(2)], [x, 0]))).toBe(0)
    expect(get(x, new Float32Array(n))).toEqual(from(2, 0))
  }
})

test("refuses what its program does not take, and what reaches beyond memory", () => {
  const [x, y, z] = [put(count(16)), put(count(16)), put(count(16))]
  const two = [[x, 0] as const, [y, 0] as const]
  const sumAndDifference = program(
    ["float32", "float32"],
    [
      ["add", "float32", [0, 1]],
      ["subtract", "float32", [0, 1]],
    ],
    [2, 3],
  )
  const refused: [bigint[], RegExp][] = [
    [dense(multiply, 16, 0, two.slice(1), [z, 0]), /inputs that its program takes/],
    [dense(multiply, 16, 0, [...two, [x, 0]], [z, 0]), /inputs that its program takes/],
    [dense(sumAndDifference, 16, 0, two, [z, 0]), /inputs that its program takes/],
    [record(9, [pair(multiply, 2), pair(16, 0), pair(x, 0), pair(z, 0)]), /inputs that its program takes/],
    [record(9, [pair(multiply, 2), pair(z, 0)]), /lacks its result/],
    [dense(multiply, 16, 4, two, [z, 0]), /a bit for an input that is not there/],
    [dense(multiply, 16, 0x40000, two, [z, 0]), /a bit for an input that is not there/],
    [dense(12345678, 16, 0, two, [z, 0]), /no scalar program/],
    [
      dense(
        multiply,
        16,
        0,
        [
          [x, 2],
          [y, 0],
        ],
        [z, 0],
      ),
      /reaches bytes 2 to 66/,
    ],
    [
      dense(
        multiply,
        16,
        0,
        [
          [x, 64],
          [y, 0],
        ],
        [z, 0],
      ),
      /reaches bytes 64 to 128/,
    ],
    [
      dense(
        multiply,
        16,
        2,
        [
          [x, 0],
          [y, 64],
        ],
        [z, 0],
      ),
      /reaches bytes 64 to 68/,
    ],
    [dense(multiply, 17, 0, two, [z, 0]), /reaches bytes 0 to 68/],
    [dense(multiply, 0xffffffff, 0, two, [z, 0]), /reaches/],
    [
      dense(
        multiply,
        16,
        0,
        [
          [x, 0xfffffffc],
          [y, 0],
        ],
        [z, 0],
      ),
      /reaches/,
    ],
    [
      dense(
        multiply,
        16,
        0,
        [
          [x, 0],
          [7_999_999, 0],
        ],
        [z, 0],
      ),
      /there is no buffer/,
    ],
    [
      dense(
        multiply,
        16,
        0,
        [
          [x, 0],
          [0xffffffff, 0],
        ],
        [z, 0],
      ),
      /there is no buffer/,
    ],
  ]
  for (const [words, message] of refused) {
    expect(execute(words)).toBe(1)
    if (words.length > 4) expect(messages()).toEqual([expect.stringMatching(message)])
    native.poisoned()
    // A written buffer has a value again.
    expect(execute(dense(multiply, 16, 0, two, [z, 0]))).toBe(0)
    expect(messages()).toEqual([])
  }
  expect(execute(dense(multiply, 16, 0, two, [0xffffffff, 0]))).toBe(1)
  expect(() =>
    native.registerPlan(
      new BigInt64Array(
        dense(
          multiply,
          16,
          0,
          [
            [0, 0],
            [1, 0],
          ],
          [2, 0],
        ),
      ),
      2,
      1,
      0,
    ),
  ).toThrow("a plan cannot hold records of opcode 9")
})

test("noise is computed or refused", () => {
  const next = generator(9)
  const [x, y] = [put(count(64)), put(count(64))]
  const whole = dense(multiply, 64, 0x20000, [[x, 0], bitsOf(2)], [y, 0])
  const results = [0, 0]
  for (let round = 0; round < 4000; round++) {
    const noisy = [...whole]
    for (let k = Math.floor(next() * 3); k >= 0; k--) {
      const at = 1 + Math.floor(next() * (noisy.length - 1))
      noisy[at] = BigInt.asIntN(64, noisy[at] ^ (1n << BigInt(Math.floor(next() * 64))))
    }
    results[execute(noisy)]++
    native.poisoned()
  }
  expect(Math.min(...results)).toBeGreaterThan(100)
})

test("passes on that an operand has no value, and heals what it writes", () => {
  const [x, y, z] = [put(count(4)), put(count(4)), put(count(4))]
  const float = (id: number, n = 4): Operand => ({ id, dtype: "float32", shape: [n] })
  const failing = map(multiply, [float(x), float(y, 3)], [float(y)])
  expect(
    execute(
      failing,
      dense(
        multiply,
        4,
        0,
        [
          [x, 0],
          [y, 0],
        ],
        [z, 0],
      ),
    ),
  ).toBe(1)
  expect(native.poisoned().map(({ id }) => id)).toEqual([y, z])
  expect(
    execute(
      dense(
        multiply,
        4,
        0,
        [
          [z, 0],
          [x, 0],
        ],
        [y, 0],
      ),
    ),
  ).toBe(0)
  // It had none before.
  expect(native.poisoned()).toEqual([])
  expect(
    execute(
      free(y),
      alloc(y, 16),
      dense(
        multiply,
        4,
        0,
        [
          [x, 0],
          [x, 0],
        ],
        [z, 0],
      ),
    ),
  ).toBe(0)
  expect(native.poisoned()).toEqual([])
  expect(get(z, new Float32Array(4))).toEqual(new Float32Array([9, 4, 1, 0]))
})

test("is what eager work on rows, repeated elements and numbers becomes", () => {
  const x = mx.arange(12).astype(mx.float32).reshape([3, 4])
  mx.eval(x)
  const rows = mx
    .split(x, 3)
    .slice(1)
    .map((row) => row.reshape([4]))
  expect(rows[0].add(rows[1]).multiply(2).tolist()).toEqual([24, 28, 32, 36])
  expect(
    x
      .add(mx.ones([3, 4]))
      .subtract(rows[0])
      .tolist(),
  ).toEqual([
    [-3, -3, -3, -3],
    [1, 1, 1, 1],
    [5, 5, 5, 5],
  ])
  expect(mx.array(3).add(mx.array(4)).tolist()).toBe(7)
  expect(mx.zeros([0, 3]).add(1).tolist()).toEqual([])
  expect(
    mx
      .array([[5]])
      .add(mx.array(1))
      .tolist(),
  ).toEqual([[6]])
})
