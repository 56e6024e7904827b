/** Reports of compiled functions: reasons of traces, warnings, explanations and pictures. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"
import * as mx from "@lazuli/core"
import { backendFor, type Encoder } from "@lazuli/core/engine"
import { expect, test, vi } from "vitest"
import { compile } from "./compile"
import { drawGraph, exportToDot } from "./graph-picture"

test("a trace's reason names the argument that changed, and how", () => {
  const reasons: string[] = []
  const f = compile((x: mx.Array, o: { k: number; y?: mx.Array }) => x.multiply(o.k), {
    onRecompile: (reason) => reasons.push(reason),
  })
  f(mx.ones([2]), { k: 1 })
  f(mx.ones([3]), { k: 1 })
  f(mx.ones([3], mx.int32), { k: 1 })
  f(mx.ones([3], mx.int32), { k: 2 })
  f(mx.ones([3], mx.int32), { k: 2, y: mx.ones([1]) })
  expect(reasons).toMatchInlineSnapshot(`
    [
      "first call",
      "argument 0: float32[2] became float32[3]",
      "argument 0: float32[3] became int32[3]",
      "argument 1.k: 1 became 2",
      "argument 1: {k} became {k, y}",
    ]
  `)
})

test("an argument that keeps changing is warned about once", () => {
  const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
  try {
    const scale = compile(function scale(x: mx.Array, k: number) {
      return x.multiply(k)
    })
    for (let k = 0; k < 20; k++) scale(mx.ones([1]), k)
    expect(warn).toHaveBeenCalledTimes(1)
    expect(warn.mock.calls[0][0]).toMatch(
      /scale was traced 9 times because argument 1 kept changing \(last argument 1: 7 became 8\)/,
    )
  } finally {
    warn.mockRestore()
  }
})

test("an explanation lists what was fused and what was not", () => {
  const f = compile((x: mx.Array) => x.exp().add(1).multiply(x.sum(0)).sort(1))
  const { applications, steps } = f.explain(mx.ones([2, 3]))
  expect(applications).toBe(6)
  expect(steps.map(({ operations }) => operations)).toEqual([
    ["sum"],
    ["squeeze"],
    ["exp", "add", "multiply"],
    ["sort"],
  ])
  expect(String(f.explain(mx.ones([2, 3])))).toMatch(/exp \+ add \+ multiply \(2, 3\): fused into one pass/)
  expect(f.stats()).toEqual({ calls: 0, traces: 1, programs: 1 })
})

test("an explanation prints as a table, and names what goes in and comes out in its pictures", () => {
  const state = { layers: [{ w: mx.ones([2]) }] }
  const step = compile(
    (x: mx.Array) => {
      state.layers[0].w = state.layers[0].w.multiply(x)
      return { mean: state.layers[0].w.exp().mean(), same: state.layers[0].w }
    },
    { inputs: [state], outputs: [state] },
  )
  const told = step.explain(mx.ones([2]))
  expect(inspect(told)).toBe(String(told))
  for (const dot of Object.values(told.dot)) {
    for (const name of ["argument 0", "state[0].layers[0].w", "result.mean"])
      expect(dot).toContain(`label="${name}"`)
    expect(dot).toContain(String.raw`label="result.same\nstate[0].layers[0].w"`)
  }
  const alone = compile((x: mx.Array) => x.add(1).sum()).explain(mx.ones([2]))
  expect(alone.applications).toBe(3)
  expect(alone.steps[0].reason).toMatch(/^elementwise, and alone/)
})

test("a backend without plans runs the steps that an explanation tells of", () => {
  const f = compile((x: mx.Array) => x.exp().add(1).multiply(2).sum().sqrt())
  const x = mx.ones([4])
  const told = f.explain(x)
  expect(told.kernels).toBe(null)
  mx.eval(x)
  const { queue } = backendFor(mx.cpu)
  const encoder = queue.lower(x.exp().node) as Encoder
  const { encode } = encoder
  const run: unknown[] = []
  const spy = vi.spyOn(encoder, "encode").mockImplementation((node) => {
    run.push(node.primitive?.name)
    encode(node)
  })
  const value = f(x).item()
  spy.mockRestore()
  expect(run).toEqual(["@lazuli/compile/fused", "sum", "sqrt"])
  expect(value).toBe(x.exp().add(1).multiply(2).sum().sqrt().item())
})

test("graphs become DOT and SVG", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-dot-"))
  try {
    const x = mx.array([1, 2])
    const y = x.exp().add(x)
    exportToDot(join(folder, "g.dot"), { y, again: y, 'quo"te': mx.split(x, 2) })
    const dot = readFileSync(join(folder, "g.dot"), "utf8")
    for (const part of [
      'label="y"',
      'label="again"',
      'label="exp"',
      'label="input 0"',
      'quo\\"te.1',
      "float32(2,)",
    ])
      expect(dot).toContain(part)
    await drawGraph(join(folder, "g.svg"), dot)
    expect(readFileSync(join(folder, "g.svg"), "utf8")).toMatch(/<svg[\s\S]*>exp<\/text>[\s\S]*<\/svg>/)
    await expect(drawGraph(join(folder, "bad.svg"), "nonsense")).rejects.toThrow(
      /\[drawGraph\] cannot draw this graph/,
    )
    expect(() => exportToDot(join(folder, "none.dot"), 3)).toThrow(/received no array/)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
