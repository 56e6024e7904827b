import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./index"

test("buffer ids that came back together are taken in ascending order", () => {
  const base = mx.array(new Float32Array(512))
  const results = (): mx.Array[] => {
    const all = Array.from({ length: 3000 }, (_, i) => base.add(i))
    mx.eval(all)
    return all
  }
  const first = results()
  // 7 shares no factor with 3000: every one, in another order.
  for (let i = 0; i < first.length; i++) first[(i * 7) % first.length].dispose()
  const ids = results().map(({ node }) => node.storage?.id ?? -1)
  expect(ids.length).toBe(3000)
  expect(ids).toEqual([...ids].sort((a, b) => a - b))
})
