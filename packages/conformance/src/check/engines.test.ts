/**
 * The column `compiled` against primitives whose rules read values or sizes of what is being traced, and the kit on results that have more
 * elements than a call has room for arguments.
 */
import * as mx from "@lazuli/core"
import { definePrimitive, type PrimitiveRules } from "@lazuli/core/engine"
import "@lazuli/backend-cpu"
import { expect, test } from "vitest"
import { compiledColumn } from "./engines"
import { formatChecks, type OpReport, opCheck, standardColumns } from "./op-check"
import { values } from "./values"

let count = 0
/** x² · y with some rules replaced, checked in its compiled column. */
function product(rules: Partial<PrimitiveRules<object>>): OpReport {
  const apply = definePrimitive({
    name: `@lazuli/conformance-test/product${count++}`,
    infer: ([x]) => x,
    decompose: ([x, y]) => x.square().multiply(y),
    vjp: ({ inputs: [x, y], cotangents: [g] }) => [
      g.multiply(x).multiply(y).multiply(2),
      g.multiply(x.square()),
    ],
    jvp: ({ inputs: [x, y], tangents: [s, t] }) => {
      const parts = [s?.multiply(x).multiply(y).multiply(2), t?.multiply(x.square())]
      return [parts.filter((part) => part !== undefined).reduce((a, b) => a.add(b))]
    },
    ...rules,
  })
  return opCheck(apply, [{ inputs: [values([2, 3]), values([2, 3], 1, 2, 5)] }], {
    columns: [compiledColumn],
  })
}
const reasonOf = ({ results: [{ status, reason }] }: OpReport): string =>
  status === "failed" ? (reason as string).replace(/-?\d+\.\d+/g, "…") : status

test("rules that leave the trace, or give something else inside it", () => {
  let calls = 0
  expect({
    right: reasonOf(product({})),
    "a jvp that reads a value": reasonOf(
      product({
        jvp: ({ inputs: [x, y], tangents: [s, t] }) => [
          (s ?? mx.zerosLike(x))
            .multiply(x.multiply(y).multiply((y.sum().item() as number) > 0 ? 2 : 1))
            .add(t ?? 0),
        ],
      }),
    ),
    "a vjp that reads a value": reasonOf(
      product({
        vjp: ({ inputs: [x], cotangents: [g] }) => [g.multiply(x.max().item() as number), null],
      }),
    ),
    "a vjp that is no function": reasonOf(
      product({ vjp: ({ cotangents: [g] }) => [g.multiply(++calls), g] }),
    ),
  }).toMatchInlineSnapshot(`
    {
      "a jvp that reads a value": "[eval] an array that is being traced by vmap or compile has no value yet. Return it from the function, or move what needs its value (item, tolist, printing, if) out of the traced function. One that a compiled function left in a variable never gets a value: name the tree that holds it in \`outputs\` (sample 0: float64[2,3], float64[2,3])",
      "a vjp that is no function": "output 0 of the first call of its vjp: element 0 is …, expected … (sample 0: float64[2,3], float64[2,3])",
      "a vjp that reads a value": "[eval] an array that is being traced by vmap or compile has no value yet. Return it from the function, or move what needs its value (item, tolist, printing, if) out of the traced function. One that a compiled function left in a variable never gets a value: name the tree that holds it in \`outputs\` (sample 0: float64[2,3], float64[2,3])",
      "right": "ok",
    }
  `)
})

test("results of 300 000 elements", () => {
  const inputs = [values([300_001])]
  const options = {
    backends: ["cpu"],
    dtypes: [mx.float32, mx.int32, mx.complex64],
    fillings: ["special"],
    layouts: ["row-major", "reversed"],
  } as const
  for (const column of standardColumns(options)) {
    const report = opCheck("square", [{ inputs }], { columns: [column] })
    expect(formatChecks(report.ok ? [] : [report])).toBe(formatChecks([]))
  }
}, 120_000)
