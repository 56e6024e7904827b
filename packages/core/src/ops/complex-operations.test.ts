import { expect, test } from "vitest"
import { primitiveByName } from "../graph/primitive"
import * as mx from "../index"

const z = mx.array([mx.complex(0.3, 0.2)])
const scalar = mx
  .listPrimitives()
  .filter((p) => p.semantics === "scalar" && Object.keys(p.params).length === 0)
const publicName: Record<string, string> = { round: "roundToInteger", select: "where" }

test.each(scalar.map(({ name }) => name))(
  "%s of complex numbers has a value, or is refused when it is built",
  (name) => {
    const f = (mx as unknown as Record<string, (...xs: mx.Array[]) => mx.Array>)[publicName[name] ?? name]
    for (const xs of name === "select" ? [[mx.array(true), z, z]] : [[z], [z, z]]) {
      let y: mx.Array
      try {
        y = f(...xs)
      } catch {
        continue
      }
      y.tolist()
    }
  },
)

test.each(["erf", "erfinv", "arctan2", "floorDivide", "remainder"])(
  "%s refuses complex64 in its primitive",
  (name) => {
    const { infer } = primitiveByName(name).rules
    expect(() => infer([z.node, z.node], {})).toThrow(`[${name}] is not defined for complex64`)
  },
)
