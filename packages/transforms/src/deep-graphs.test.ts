/**
 * Graphs 100,000 applications deep: every walk over them goes without recursion.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { grad, jvp, linearize, vjp, vmap } from "./index"

const DEPTH = 100_000
const deep = (x: mx.Array): mx.Array => {
  let y = x
  for (let i = 0; i < DEPTH; i++) y = y.add(x)
  return y
}
const one = mx.array(1)

it("differentiate both ways", () => {
  expect(vjp(deep, [one], [one])[1][0].item()).toBe(DEPTH + 1)
  expect(linearize(deep, [one])[1](one)[0].item()).toBe(DEPTH + 1)
  // Evaluation has no part in the rest.
  expect(jvp(deep, [one], [one])[1][0].shape).toEqual([])
})

it("batch", () => {
  expect(vmap(deep)(mx.zeros([2])).shape).toEqual([2])
})

it("compile, and differentiate through what was compiled", () => {
  const compiled = compile(deep)
  expect(compiled(one).item()).toBe(DEPTH + 1)
  expect(grad(compiled)(one).shape).toEqual([])
})
