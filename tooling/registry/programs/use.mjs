// A third-party primitive on every backend: by its kernel, under each transform, and compiled.
import assert from "node:assert/strict"
import { createRequire } from "node:module"
import { mx } from "lazuli"
import "@lazuli/backend-metal"
import { axpby } from "@lazuli/ext-axpby"

const file = createRequire(import.meta.url).resolve("@lazuli/ext-axpby/package.json")
assert.ok(file.startsWith(process.cwd()), `${file} is not of this folder`)
const found = mx.listPrimitives().find((p) => p.name === "@lazuli/ext-axpby/axpby")
assert.equal(found.source, "@lazuli/ext-axpby")

for (const device of [mx.cpu, mx.gpu]) {
  mx.setDefaultDevice(device)
  mx.resetBackendStats()
  const [x, y] = [
    mx.array([
      [1, 2],
      [3, 4],
    ]),
    mx.array([10, 20]),
  ]
  const f = (a, b) => axpby(a, b, 3, 0.5)
  const want = [
    [8, 16],
    [14, 22],
  ]
  assert.deepEqual(f(x, y).tolist(), want, "runs")
  assert.deepEqual(mx.backendStats(), {}, "by its kernel")
  assert.deepEqual(
    mx
      .grad((b) => f(x, b).sum())(y)
      .tolist(),
    [1, 1],
    "differentiates",
  )
  assert.deepEqual(
    mx.jvp((a) => f(a, y), [x], [mx.ones([2, 2])])[1][0].tolist(),
    [
      [3, 3],
      [3, 3],
    ],
    "forward, by one argument",
  )
  assert.deepEqual(
    mx
      .vmap(f, { inAxes: [1, null] })(x, y)
      .tolist(),
    [
      [8, 19],
      [11, 22],
    ],
    "vectorizes",
  )
  const compiled = mx.compile((a, b) => [f(a, b), mx.grad((c) => f(c, b).square().sum())(a)])
  for (let i = 0; i < 2; i++)
    assert.deepEqual(
      compiled(x, y).map((a) => a.tolist()),
      [
        want,
        [
          [48, 96],
          [84, 132],
        ],
      ],
      "compiles",
    )
}
