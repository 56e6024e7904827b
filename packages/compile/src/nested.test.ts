/** Compiled functions that call compiled functions. */
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import { compile } from "./compile"

describe("compiled functions within compiled functions", () => {
  test("a function that calls itself is one program", () => {
    const state = { calls: mx.array(0) }
    const power = compile(
      (x: mx.Array, n: number): mx.Array => {
        state.calls = state.calls.add(1)
        return n === 0 ? mx.onesLike(x) : x.multiply(power(x, n - 1))
      },
      { inputs: state, outputs: state },
    )
    expect(power(mx.array([2, 3]), 3).tolist()).toEqual([8, 27])
    expect(power(mx.array([1, 2]), 3).tolist()).toEqual([1, 8])
    expect(state.calls.item()).toBe(8)
    expect(power.stats()).toMatchObject({ traces: 1, programs: 1 })
  })

  test("a call on arrays from outside within a trace gives what it gives outside", () => {
    const c = mx.array([1, 2])
    const inner = compile((x: mx.Array) => x.multiply(2).add(1))
    const outer = compile((x: mx.Array) => x.add(inner(c)))
    for (const v of [1, 2]) expect(outer(mx.array([v, v])).tolist()).toEqual([v + 3, v + 5])
    expect(inner(c).tolist()).toEqual([3, 5])
    expect(grad((x: mx.Array) => outer(x.multiply(inner(c))).sum())(c).tolist()).toEqual([3, 5])
  })

  test("share state, and leave it as calls one after the other do", () => {
    const state = { n: mx.array(1) }
    const options = { inputs: state, outputs: state }
    const double = compile(() => {
      state.n = state.n.multiply(2)
    }, options)
    const step = compile((x: mx.Array) => {
      double()
      state.n = state.n.add(x)
      double()
      return state.n
    }, options)
    double()
    expect(step(mx.array(1)).item()).toBe(10)
    double()
    expect(step(mx.array(1)).item()).toBe(82)
    expect(state.n.item()).toBe(82)
  })
})
