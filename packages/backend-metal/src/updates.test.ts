/** Updates on a GPU's kernels: written over their array where nothing else reads it, and the same values either way. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./index"

const gpu = <T>(body: () => T): T => mx.stream(mx.gpu, body)
const filled = (dtype: mx.Dtype): mx.Array => {
  const x = mx.zeros([40, 50], dtype).add(3)
  mx.eval(x)
  return x
}
const updates: [string, (x: mx.Array) => mx.Array][] = [
  ["a row", (x) => x.at(3).add(2)],
  ["a column", (x) => x.at("...", 4).multiply(2)],
  ["rows at positions", (x) => mx.scatter(x, [1, 1, 7], 5, { reduction: "sum" })],
  ["the last of several", (x) => mx.scatter(x, [1, 1, 7], mx.array([[1], [2], [4]]).astype(x.dtype))],
  [
    "a block at a position",
    (x) => mx.sliceUpdate(x, mx.ones([2, 3], x.dtype), mx.array([5, 6], mx.int32), [0, 1]),
  ],
  [
    "locations along an axis",
    (x) => mx.putAlongAxis(x, mx.array([[2], [3]].concat(Array(38).fill([0])), mx.int32), 9, 1),
  ],
]

test.each(updates)("%s", (_name, change) => {
  for (const dtype of [mx.float32, mx.float16, mx.int8])
    gpu(() => {
      const want = change(filled(dtype)).tolist()
      const x = filled(dtype)
      const { storage } = x.node
      const y = change(x)
      x.dispose()
      mx.eval(y)
      expect(y.node.storage).toBe(storage)
      expect(y.tolist()).toEqual(want)
      const z = change(y)
      expect(z.tolist()).toEqual(change(change(filled(dtype))).tolist())
      expect(y.tolist()).toEqual(want)
      const twice = compile((v: mx.Array) => change(change(v)), { donate: [0] })
      expect([twice(filled(dtype)).tolist(), twice(y).tolist()]).toEqual([
        change(change(filled(dtype))).tolist(),
        change(z).tolist(),
      ])
    })
})

test.each(updates)(
  "a plan with %s writes over a donated array, and copies what others read",
  (_name, change) => {
    gpu(() => {
      const [state, eager] = [{ x: filled(mx.float32) }, { x: filled(mx.float32) }]
      const trees = { inputs: state, outputs: state, donate: true }
      const step = compile(() => {
        state.x = change(change(state.x))
      }, trees)
      const { storage } = state.x.node
      for (let i = 0; i < 3; i++) {
        step()
        mx.eval(state.x)
        eager.x = change(change(eager.x))
      }
      expect(state.x.node.storage).toBe(storage)
      expect(state.x.tolist()).toEqual(eager.x.tolist())
      const view = state.x.index("5:")
      const want = view.tolist()
      step()
      mx.eval(state.x)
      expect(view.tolist()).toEqual(want)
      expect(state.x.node.storage).not.toBe(storage)
    })
  },
)

test("a plan runs a chain of updates in its result's memory", () => {
  gpu(() => {
    const chain = compile((x: mx.Array) => updates.reduce((y, [, change]) => change(y), x.multiply(2)))
    const x = filled(mx.float32)
    const want = updates.reduce((y, [, change]) => change(y), x.multiply(2)).tolist()
    expect(chain(x).tolist()).toEqual(want)
    // Positions and updates, but no array.
    expect(chain.explain(x).arenaBytes).toBeLessThan(x.nbytes)
    expect(x.tolist()).toEqual(filled(mx.float32).tolist())
  })
})
