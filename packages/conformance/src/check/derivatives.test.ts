/**
 * The columns of derivatives against primitives whose rules are wrong in one corner: for one set of their arguments.
 */
import type * as mx from "@lazuli/core"
import { definePrimitive, type PrimitiveRules } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { jvpColumn, subsets, vjpColumn } from "./derivatives"
import { opCheck } from "./op-check"
import { values } from "./values"

test("sets of arguments", () => {
  expect(subsets([0, 2])).toEqual([[0], [2], [0, 2]])
  expect(subsets([0, 1, 2, 3, 4, 5]).length).toBe(63)
  expect(new Set(subsets([0, 1, 2, 3, 4, 5, 6]).map(String)).size).toBe(7 + 21 + 1 + 7)
})

test("rules of six arguments that are wrong for three of them together", () => {
  const inputs = [0, 1, 2, 3, 4, 5].map((i) => values([2], 0.5, 1.5, i + 1))
  const product = (xs: readonly mx.Array[]): mx.Array => xs.reduce((a, b) => a.multiply(b))
  const partial = (xs: readonly mx.Array[], k: number): mx.Array => product(xs.filter((_, i) => i !== k))
  const wrongFor = [1, 3, 4].join()
  const setOf = (flags: readonly boolean[]): string => flags.flatMap((yes, i) => (yes ? [i] : [])).join()
  const right: PrimitiveRules<object> = {
    infer: ([x]) => x,
    decompose: product,
    vjp: ({ inputs: xs, cotangents: [g] }) => xs.map((_, k) => g.multiply(partial(xs, k))),
    jvp: ({ inputs: xs, tangents }) => [
      tangents
        .flatMap((t, k) => (t ? [t.multiply(partial(xs, k))] : []))
        .reduce((a: mx.Array, b: mx.Array) => a.add(b)),
    ],
  }
  const columns = [jvpColumn, vjpColumn]
  const check = (name: string, rules: Partial<PrimitiveRules<object>>) =>
    opCheck(definePrimitive({ name: `@lazuli/conformance-test/${name}`, ...right, ...rules }), [{ inputs }], {
      columns,
    }).results.map(({ status, reason }) => `${status}${reason === null ? "" : `: ${reason.slice(0, 22)}`}`)
  expect({
    right: check("sixRight", {}),
    "the vjp": check("sixVjp", {
      vjp: (c) => {
        const grads = right.vjp?.(c) ?? []
        return setOf(c.wanted) === wrongFor ? grads.map((g) => g?.multiply(2) ?? null) : grads
      },
    }),
    "the jvp": check("sixJvp", {
      jvp: (c) => {
        const [t] = right.jvp?.(c) ?? []
        return [setOf(c.tangents.map(Boolean)) === wrongFor ? (t?.multiply(2) ?? null) : (t ?? null)]
      },
    }),
  }).toEqual({
    right: ["ok", "ok"],
    "the vjp": ["ok", "failed: w.r.t. inputs 1,3,4 of"],
    "the jvp": ["failed: w.r.t. inputs 1,3,4: e", "failed: w.r.t. inputs 1,3,4: ⟨"],
  })
})
