/** Functions and derivatives leave no reader of an array behind: its memory could neither be released nor written over. */
import * as mx from "@lazuli/core"
import { arraysOf, handles, type Node } from "@lazuli/core/engine"
import { jvp, vjp } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import { goldenSpaces } from "../../../tooling/golden-spaces"
import { onBackendNamed } from "./backend-choice"
import { type Application, applicationsOf } from "./check/applications"
import { type Setting, settingOf } from "./check/derivatives"
import { invoke } from "./golden/calls"
import type { GoldenCase } from "./golden/format"
import { goldenCases, goldenFamilies } from "./golden/replay"
import { arrayOf, leavesOf } from "./golden/values"
import { samples } from "./samples"

/** Primitives of which something is left, with the reason. */
const known: Record<string, string> = {
  "@lazuli/compile/program": "a program may have rules of others, which keep arrays",
  quantize: "the derivative of rounding reads no cotangent",
  scaledDotProductAttentionVjp: "second derivatives read not all cotangents",
}

/** By node: the edges from what the roots are computed from. */
function edgesBehind(roots: readonly Node[]): Map<Node, number> {
  const edges = new Map<Node, number>()
  const seen = new Set<Node>()
  const stack = [...roots]
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    const first = node.outputs?.[0] ?? node
    if (seen.has(first)) continue
    seen.add(first)
    for (const input of first.inputs) {
      edges.set(input, (edges.get(input) ?? 0) + 1)
      stack.push(input)
    }
  }
  return edges
}

/** Readers besides the results, of derivatives by one input. */
function leftBy(
  rule: "vjp" | "jvp",
  { inputs }: Application,
  { by, cs, ts }: Setting,
  which: number,
): string[] {
  const seeds = cs.map((c) => c.add(0))
  mx.eval(seeds)
  const watched = [...inputs, ...seeds].map(({ node }) => node)
  const before = watched.map(({ uses }) => uses)
  const own: Node[] = []
  const f = (x: mx.Array): mx.Array[] => {
    const outputs = by([which])(x)
    own.push(x.node, ...outputs.map(({ node }) => node))
    return outputs
  }
  const results =
    rule === "vjp" ? vjp(f, [inputs[which]], seeds).flat() : jvp(f, [inputs[which]], [ts[which]]).flat()
  const edges = edgesBehind([...own, ...results.map(({ node }) => node)])
  const left: string[] = []
  for (const node of new Set([...watched, ...own, ...edges.keys()])) {
    if (node.primitive?.facts.immediate) continue
    const more = node.uses - (before[watched.indexOf(node)] ?? 0) - (edges.get(node) ?? 0)
    if (more !== 0) left.push(`${node.primitive?.name ?? "an input"}: ${more}`)
  }
  return left
}

describe.each(["vjp", "jvp"] as const)("after a %s only results read what they are computed from", (rule) => {
  const found = onBackendNamed("reference", () => applicationsOf(samples))
  const names = [...new Set(found.map(({ primitive }) => primitive.name))].filter((name) => !(name in known))
  test.each(names)("%s", (name) => {
    onBackendNamed("reference", () => {
      for (const application of found.filter(({ primitive }) => primitive.name === name)) {
        const setting = settingOf(application)
        if (typeof setting === "string") continue
        for (const which of setting.smooth)
          expect([application.sample, which, leftBy(rule, application, setting, which)]).toEqual([
            application.sample,
            which,
            [],
          ])
      }
    })
  })
})

/** A function that reads values, and so makes parts with handles. */
const withParts = /^core\.repeat$/

/** The primitives of the handles that a recorded call makes besides those of its results and its arguments. */
function partsOf(c: GoldenCase): string[] {
  const made: mx.Array[] = []
  let results: mx.Array[] = []
  const args = (c.args ?? []).flatMap(leavesOf).map(arrayOf)
  let next = 0
  handles.scope = (handle) => void made.push(handle)
  try {
    results = arraysOf(invoke(c, goldenSpaces, () => args[next++]))
  } catch {
    // Cases of errors, and of functions that do not exist here.
    return []
  } finally {
    handles.scope = null
  }
  return made
    .filter((handle) => !results.includes(handle))
    .flatMap(({ node: { primitive } }) =>
      primitive === null || primitive.facts.immediate ? [] : [primitive.name],
    )
}

test("functions make handles of their results alone", () => {
  onBackendNamed("reference", () => {
    const left: Record<string, string> = {}
    let count = 0
    for (const family of goldenFamilies())
      for (const c of goldenCases(family)) {
        if (!c.fn.startsWith("core.") || c.transform || c.call || c.calls || c.then || withParts.test(c.fn))
          continue
        // Arrays among options are made with the call.
        if (Object.values(c.kwargs ?? {}).flatMap(leavesOf).length > 0) continue
        count++
        const parts = partsOf(c)
        if (parts.length > 0) left[c.fn] = parts.join()
      }
    expect(left).toEqual({})
    expect(count).toBeGreaterThan(3000)
  })
})
