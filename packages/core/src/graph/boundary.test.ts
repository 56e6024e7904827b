/** Errors come under the name of the function that was called, with the kind of argument it wanted, and are never longer than a page. */
import { expect, test } from "vitest"
import * as mx from "../index"
import { operation, publicFunction } from "./args"
import { ofUser } from "./boundary"

const x = mx.array([[1, 2]])

test("an error of a function that another one uses has the name of the one that was called", () => {
  const outer = operation("outermost", ["a"], (a: mx.Array) => a.reshape([3]))
  const call = (): unknown => outer([x])
  expect(call).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [outermost] cannot reshape an array of shape (1, 2) into (3,): 2 elements do not fill 3]`,
  )
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(mx.ShapeError)
    expect((error as mx.ShapeError).op).toBe("outermost")
    expect((error as mx.ShapeError).stack).toMatch(/^ShapeError: \[outermost\] /)
  }
  expect(() => outer([x, { stream: "tpu" }])).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [outermost] expected a device (mx.cpu or mx.gpu) or a stream, received the string "tpu"]`,
  )
})

test("an error of the user's own function keeps its name", () => {
  const outer = publicFunction("outermost", { fn: "function" }, (fn: () => unknown) => ofUser(fn))
  expect(() => outer(() => x.reshape([3]))).toThrow("[reshape]")
  expect(() => outer(3 as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [outermost] fn must be a function, received the number 3]`,
  )
})

test("arguments are held to their kinds", () => {
  expect(() => mx.sum(undefined as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [sum] needs a: expected an array or a scalar, received nothing]`,
  )
  expect(() => mx.sum(x, "1" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [sum] axis must be an integer or a list of integers, received the string "1"]`,
  )
  expect(() => mx.sum(x, [0, 1.5])).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [sum] axis must be an integer or a list of integers, received a list whose element 1 is the number 1.5]`,
  )
  expect(() => mx.sum(x, 0, 1 as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [sum] keepdims must be a boolean, received the number 1]`,
  )
  expect(() => mx.var(x, { ddof: "a" as never })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [var] ddof must be a number, received the string "a"]`,
  )
  expect(() => mx.take(x, "a" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [take] indices must be an array of integers, or integers in lists, received the string "a"]`,
  )
  expect(mx.sum(x, null, null as never).item()).toBe(3)
})

test("a message repeats only so much of the input", () => {
  const long = "x".repeat(100_000)
  const message = (call: () => unknown): string => {
    try {
      call()
    } catch (error) {
      return (error as Error).message
    }
    return ""
  }
  for (const call of [
    () => mx.sum(x, { [long]: 1 } as never),
    () => mx.reshape(x, new globalThis.Array(100_000).fill(7)),
    () => mx.einsum(long, x),
    () =>
      mx.treeUnflatten([
        [long, 1],
        [`${long}.a`, 2],
      ]),
  ]) {
    const text = message(call)
    expect(text.length).toBeGreaterThan(0)
    expect(text.length).toBeLessThan(5000)
  }
})

test("numbers out of range, holes and endless lists are refused", () => {
  let deep: unknown = 1
  for (let i = 0; i < 20_000; i++) deep = [deep]
  const refused = (call: () => unknown): string => {
    try {
      call()
    } catch (error) {
      return (error as Error).message
    }
    return "taken"
  }
  expect(
    [
      () => mx.random.bernoulli(1.5),
      () => mx.random.bernoulli([0.5, Number.NaN] as never),
      () => mx.setPrintoptions(-2),
      () => mx.sum(x, new globalThis.Array(2)),
      () => mx.take(x, deep as never),
      () => x.index(deep as never),
      () => mx.fft.fftfreq(2 ** 40),
      () => mx.hanning(2 ** 40),
      () => mx.degrees("a" as never),
      () => mx.issubdtype(mx.float32, "floating" as never),
      () => mx.newThreadLocalStream("tpu" as never),
      () => mx.registerBackend({ name: "mine" } as never),
    ].map(refused),
  ).toMatchInlineSnapshot(`
    [
      "[random.bernoulli] p must be a number from 0 to 1, a list of such numbers or an array, received the number 1.5",
      "[random.bernoulli] p must be a number from 0 to 1, a list of such numbers or an array, received a list whose element 1 is the number NaN",
      "[setPrintoptions] precision must be an integer from -1 to 60, received the number -2",
      "[sum] axis must be an integer or a list of integers, received a list whose element 0 is nothing",
      "[take] indices are nested more than 64 levels deep",
      "[index] indices are nested more than 64 levels deep",
      "[fft.fftfreq] n must be an integer of at most 268435456, received the number 1099511627776",
      "[hanning] M must be an integer of at most 268435456, received the number 1099511627776",
      "[degrees] a must be an array or a scalar, received the string "a". mx.array(data) makes an array",
      "[issubdtype] arg2 must be a dtype or a category such as mx.floating, received the string "floating"",
      "[newThreadLocalStream] expected a device (mx.cpu or mx.gpu) or a stream, received the string "tpu"",
      "[registerBackend] a backend must be an object with a device, "cpu" or "gpu", received a plain object",
    ]
  `)
})
