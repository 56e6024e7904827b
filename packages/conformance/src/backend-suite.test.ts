/**
 * The suite, run for the reference and the CPU: here in a part that takes seconds, by `npm run conformance:ops -- --suite` in full.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { definePrimitive } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { editedBackend, encodeReference } from "../test/edited-backend"
import { QUICK } from "../test/quick-suite"
import { backendSuite } from "./backend-suite"
import { formatChecks, type OpReport } from "./check/op-check"

const failed = (reports: readonly OpReport[]): string => formatChecks(reports.filter(({ ok }) => !ok))
const none = formatChecks([])

test("the CPU, every primitive, around the widths of vectors", () => {
  const reports = backendSuite("cpu", QUICK)
  expect(failed(reports)).toBe(none)
  expect(reports.length).toBeGreaterThan(100)
}, 120_000)

test("the reference agrees with itself", () => {
  const reports = backendSuite("reference", { primitives: ["add", "sum", "matmul", "sort"], sizes: [5] })
  expect(failed(reports)).toBe(none)
})

test("a primitive asked for that no sample reaches", () => {
  definePrimitive({
    name: "@lazuli/conformance-test/unreached",
    infer: ([a]) => a,
    decompose: ([a]) => a,
    vjp: ({ cotangents }) => cotangents,
  })
  const [report] = backendSuite("reference", {
    primitives: ["@lazuli/conformance-test/unreached"],
    sizes: [],
  })
  expect(report.ok).toBe(false)
})

test("a backend that is wrong beyond a block's edge, made by a factory", () => {
  const reports = backendSuite(
    () =>
      editedBackend("blocks", (node) => {
        encodeReference(node)
        const { storage } = node
        if (node.primitive?.name === "exp" && node.size > 64 && storage && node.dtype === mx.float32)
          new Float32Array(storage.bytes as ArrayBuffer)[64] = 0
      }),
    { primitives: ["exp", "log"], sizes: [8, 33] },
  )
  expect(
    reports.map(({ primitive, results }) => [primitive, ...results.map(({ status }) => status)]),
  ).toEqual([
    ["exp", "ok", "failed"],
    ["log", "ok", "ok"],
  ])
})
