/** Parameters whose names JavaScript's objects also mean something by: their state is their own. */
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { MultiOptimizer, SGD } from "./index"

type Named = Record<string, mx.Array>
const make = (value: number): Named =>
  Object.fromEntries(["__proto__", "constructor", "w"].map((key) => [key, mx.array([value])]))

it.each([
  ["SGD", () => new SGD(0.5, { momentum: 0.9 })],
  [
    "MultiOptimizer",
    () => new MultiOptimizer([new SGD(0.5, { momentum: 0.9 }), new SGD(0.5)], [(path) => path !== "w"]),
  ],
])("%s steps parameters named __proto__ and constructor", (_name, optimizer) => {
  const before = [Object.prototype, Object].map((o) => Object.getOwnPropertyNames(o))
  const stepped = optimizer().applyGradients(make(1), make(2))
  expect(Object.keys(stepped).sort()).toEqual(["__proto__", "constructor", "w"])
  for (const value of Object.values(stepped)) expect(value.item()).toBeCloseTo(1.5)
  expect([Object.prototype, Object].map((o) => Object.getOwnPropertyNames(o))).toEqual(before)
})
