/**
 * The column `dtypes` against primitives whose derivatives are right in float64 and wrong, or of another dtype, elsewhere.
 */
import * as mx from "@lazuli/core"
import { definePrimitive, type PrimitiveRules, type VjpContext } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { dtypesColumn } from "./dtypes"
import { opCheck, standardColumns } from "./op-check"
import { numbers, values } from "./values"

type Rules = PrimitiveRules<object>
let count = 0
/** x² with some rules replaced, in its column dtypes, and whether it passes the columns of derivatives in float64. */
function square(rules: Partial<Rules>): string {
  const apply = definePrimitive({
    name: `@lazuli/conformance-test/square${count++}`,
    infer: ([x]) => x,
    reference: ([x], [out]) => {
      const [from, to] = [x.data as Float64Array, out.data as Float64Array]
      if (x.dtype !== mx.complex64) for (let i = 0; i < from.length; i++) to[i] = from[i] * from[i]
      else
        for (let i = 0; i < from.length; i += 2) {
          to[i] = from[i] * from[i] - from[i + 1] * from[i + 1]
          to[i + 1] = 2 * from[i] * from[i + 1]
        }
    },
    vjp: ({ inputs: [x], cotangents: [g] }) => [x.conjugate().multiply(2).multiply(g)],
    jvp: ({ inputs: [x], tangents: [t] }) => [t && x.multiply(2).multiply(t)],
    ...rules,
  })
  const samples = [{ inputs: [values([2, 3])] }]
  const elsewhere = standardColumns({ backends: [] }).filter(({ name }) =>
    ["jvp", "vjp", "second order"].includes(name),
  )
  const old = opCheck(apply, samples, { columns: elsewhere })
  expect(old.ok, "float64 says nothing of it").toBe(true)
  const [{ status, reason }] = opCheck(apply, samples, { columns: [dtypesColumn] }).results
  return status === "failed" ? (reason as string).replace(/-?\d+\.\d+/g, "…") : status
}
const slope = ({ inputs: [x], cotangents: [g] }: VjpContext<object>): mx.Array =>
  x.conjugate().multiply(2).multiply(g)

test("derivatives that are right in float64 alone", () => {
  const wide = (x: mx.Array): boolean => x.dtype === mx.float64
  expect({
    right: square({}),
    "a vjp three times too large but in float64": square({
      vjp: (c) => [slope(c).multiply(wide(c.inputs[0]) ? 1 : 3)],
    }),
    "the same, and the jvp that follows from it": square({
      vjp: (c) => [slope(c).multiply(wide(c.inputs[0]) ? 1 : 3)],
      jvp: undefined,
    }),
    "a vjp three times too large in bfloat16": square({
      vjp: (c) => [slope(c).multiply(c.inputs[0].dtype === mx.bfloat16 ? 3 : 1)],
    }),
    "cotangents in float32 of halves": square({
      vjp: (c) => [
        wide(c.inputs[0])
          ? slope(c)
          : slope(c).astype(c.inputs[0].dtype.size === 2 ? mx.float32 : c.inputs[0].dtype),
      ],
    }),
    "tangents in float32 of halves": square({
      jvp: ({ inputs: [x], tangents: [t] }) => {
        const y = t && x.multiply(2).multiply(t)
        return [y && x.dtype === mx.float16 ? y.astype(mx.float32) : y]
      },
    }),
    "no conjugate": square({ vjp: ({ inputs: [x], cotangents: [g] }) => [x.multiply(2).multiply(g)] }),
    "no conjugate, and a jvp that follows": square({
      vjp: ({ inputs: [x], cotangents: [g] }) => [x.multiply(2).multiply(g)],
      jvp: undefined,
    }),
    "a jvp that refuses halves": square({
      jvp: ({ inputs: [x], tangents: [t] }) => {
        if (x.dtype.size === 2) throw new mx.DTypeError("square", "no halves here")
        return [t && x.multiply(2).multiply(t)]
      },
    }),
  }).toMatchInlineSnapshot(`
    {
      "a jvp that refuses halves": "in float16: [square] no halves here (sample 0: float64[2,3])",
      "a vjp three times too large but in float64": "in float32: ⟨c, J·t⟩ is …, ⟨Jᴴ·c, t⟩ … (sample 0: float64[2,3])",
      "a vjp three times too large in bfloat16": "in bfloat16: ⟨c, J·t⟩ is …, ⟨Jᴴ·c, t⟩ … (sample 0: float64[2,3])",
      "cotangents in float32 of halves": "in float16: its vjp rule's cotangent 0 is float32[2,3], what it belongs to float16[2,3] (sample 0: float64[2,3])",
      "no conjugate": "in complex64: ⟨c, J·t⟩ is …, ⟨Jᴴ·c, t⟩ … (sample 0: float64[2,3])",
      "no conjugate, and a jvp that follows": "in complex64: element 0 of tangent 0 is …, expected … (sample 0: float64[2,3])",
      "right": "ok",
      "tangents in float32 of halves": "in float16: its jvp rule's tangent 0 is float32[2,3], what it belongs to float16[2,3] (sample 0: float64[2,3])",
      "the same, and the jvp that follows from it": "in float32: element 0 of tangent 0 is …, expected … (sample 0: float64[2,3])",
    }
  `)
})

test("partial derivatives in another dtype", () => {
  const apply = definePrimitive({
    name: "@lazuli/conformance-test/partials",
    infer: ([x]) => x,
    scalar: (s, [x]) => s.square(x),
    partials: ([x]) => (x.dtype === mx.float16 ? x.astype(mx.float32) : x).multiply(2),
  })
  const input = mx.array(numbers(4)).astype(mx.float32)
  expect(opCheck(apply, [{ inputs: [input] }], { columns: [dtypesColumn] }).results[0].reason).toBe(
    "in float16: its partial derivative w.r.t. input 0 is float32 of an output in float16 (sample 0: float32[4])",
  )
})
