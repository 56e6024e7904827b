/** Simplification, by what explanations show of programs; that values stay the same is tested on backends. */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { compile } from "./compile"

const stepsOf = (f: (x: mx.Array) => unknown, x = mx.ones([2, 3])): string[] =>
  compile(f as (x: mx.Array) => mx.Array)
    .explain(x)
    .steps.flatMap(({ operations }) => operations)

test("equal applications run once", () => {
  expect(stepsOf((x) => x.sum(0).add(x.sum(0)))).toEqual(["sum", "squeeze", "add"])
  expect(stepsOf((x) => [x.sort(1), x.sort(0)])).toEqual(["sort", "sort"])
})

test("applications that no result needs do not run", () => {
  expect(
    stepsOf((x) => {
      x.sort(0)
      return x.cumsum(1)
    }),
  ).toEqual(["cumsum"])
})

test("operations that change nothing are dropped", () => {
  expect(stepsOf((x) => x.astype(mx.float32).multiply(1).T.T.sort(1))).toEqual(["sort"])
})

test("constants of constants are computed at the trace", () => {
  const steps = stepsOf((x) => x.add(mx.array(2).multiply(3)))
  expect(steps.filter((name) => name === "multiply").length).toBeLessThanOrEqual(1)
  expect(compile((x: mx.Array) => x.add(mx.array(2).multiply(3)))(mx.ones([2])).tolist()).toEqual([7, 7])
})
