/** Values that few functions can use, each made anew: kinds, ranks, dtypes and numbers out of every range. */
import { mx } from "lazuli"

const cyclicList = (): unknown => {
  const list: unknown[] = [mx.array(1)]
  list.push(list)
  return list
}
const cyclicObject = (): unknown => {
  const object: Record<string, unknown> = { a: mx.array(1) }
  object.self = { object }
  return object
}
const disposed = (): unknown => {
  const a = mx.array([1, 2]).add(1)
  a.dispose()
  return a
}
/** An array as another copy of the package makes it. */
const foreign = (): unknown => {
  class Array {
    readonly dtype = { name: "float32", code: 10, size: 4, kind: "floating" }
    readonly shape = [2]
  }
  Object.defineProperty(Array.prototype, Symbol.for("@lazuli/core/copy"), {
    value: { url: "file:///elsewhere/index.js" },
  })
  return new Array()
}
const deep = (): unknown => {
  let list: unknown = 1
  for (let i = 0; i < 20_000; i++) list = [list]
  return list
}

export const wrongValues: readonly (() => unknown)[] = [
  ...[null, undefined, true, false, "", "a", "axis", "__proto__", "x".repeat(100_000)].map((v) => () => v),
  ...[0, -0, 1, -1, 2, 3, 7, 0.5, -0.5, 1.5, 1e-300, 1e308].map((v) => () => v),
  ...[
    2 ** 31,
    -(2 ** 31),
    2 ** 32,
    2 ** 53,
    -(2 ** 53),
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
  ].map((v) => () => v),
  ...[0n, 3n, -1n, 2n ** 70n].map((v) => () => v),
  () => Symbol("s"),
  () => ({}),
  () => ({ unknown: 1 }),
  () => ({ axis: "a" }),
  () => ({ stream: "a" }),
  () => ({ shape: [1], dtype: "float32" }),
  () => Object.create(null) as unknown,
  () => [],
  () => [[]],
  () => [1, "a"],
  () => [1, [2]],
  () => [null],
  () => [Number.NaN],
  () => [0, 0],
  () => [-1, 1.5],
  () => [2 ** 40],
  () => new globalThis.Array(3),
  () => new globalThis.Array(300).fill(1),
  () => [mx.array([1, 2]), "a"],
  () => ["a", "b"],
  () => new Date(0),
  () => /x/,
  () => new Map([["a", 1]]),
  () => new Set([1]),
  () => new Error("e"),
  () => Promise.resolve(1),
  () => () => 1,
  () => () => "a",
  () => (x: unknown) => x,
  () => class {},
  () => new Float32Array(2),
  () => new Float64Array(0),
  () => new BigInt64Array(2),
  () => new ArrayBuffer(8),
  () => mx.float16,
  () => mx.int32,
  () => mx.bool_,
  () => mx.complex64,
  () => mx.Dtype,
  () => mx.cpu,
  () => mx.floating,
  () => mx.complex(1, Number.NaN),
  () => mx.array(3),
  () => mx.array(true),
  () => mx.array([1, 2, 3]),
  () => mx.array([1, 2], mx.int32),
  () => mx.array([0, 9], mx.uint32),
  () => mx.array([1.5], mx.float16),
  () => mx.array([[1, 2]], mx.bfloat16),
  () => mx.array([1, 2], mx.float64),
  () => mx.array([1, 2], mx.int64),
  () => mx.array([mx.complex(1, 2)]),
  () => mx.zeros([0]),
  () => mx.zeros([2, 0, 3]),
  () => mx.ones([1, 2, 1, 2, 1]),
  () => mx.array([Number.NaN, Number.POSITIVE_INFINITY]),
  () => mx.Array,
  () => mx,
  disposed,
  foreign,
  cyclicList,
  cyclicObject,
  deep,
]
