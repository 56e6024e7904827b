/** Fusion, by what explanations show of programs. Bits and speed are tested on backends. */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { compile } from "./compile"

const stepsOf = (f: (x: mx.Array) => unknown, x = mx.ones([4, 3])): (readonly string[])[] =>
  compile(f as (x: mx.Array) => mx.Array)
    .explain(x)
    .steps.map(({ operations }) => operations)

test("a chain of elementwise work is one step", () => {
  expect(stepsOf((x) => x.exp().add(1).tanh().square())).toEqual([["exp", "add", "tanh", "square"]])
})

test("work that is read twice is computed once, in the step that needs it", () => {
  expect(
    stepsOf((x) => {
      const y = x.exp()
      return y.multiply(y.add(1))
    }),
  ).toEqual([["exp", "add", "multiply"]])
})

test("work of another shape is a step of its own", () => {
  expect(stepsOf((x) => [x.exp().sin(), x.index(0).cos().abs()]).map((s) => s.length)).toContain(2)
  expect(stepsOf((x) => x.exp().sum(1).add(1)).at(-1)).toContain("add")
})

test("an operation without a scalar program divides a chain", () => {
  expect(stepsOf((x) => x.exp().add(1).sort(1).negative().abs())).toEqual([
    ["exp", "add"],
    ["sort"],
    ["negative", "abs"],
  ])
})

test("several results of one chain are outputs of one step", () => {
  expect(
    stepsOf((x) => {
      const y = x.exp()
      return [y, y.add(1)]
    }),
  ).toEqual([["exp", "add"]])
})
