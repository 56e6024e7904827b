/**
 * Compiled functions on the native backend against the same functions as they were written, from the first call on.
 */
import { sharedNames } from "@lazuli/core/engine"
import { mx, nn } from "lazuli"
import { expect, test } from "vitest"

test("a constant that elementwise work and, later, a kernel read", () => {
  const drop = new nn.Dropout(0.5)
  const f = (x: mx.Array) => mx.valueAndGrad((y: mx.Array) => drop.forward(y).square().sum())(x)
  const compiled = mx.compile(f, { inputs: mx.random.state, outputs: mx.random.state })
  const x = mx.arange(1, 9).astype(mx.float32)
  for (const seed of [1, 2, 3]) {
    mx.random.seed(seed)
    const [loss, gradient] = f(x).map((a) => a.tolist())
    mx.random.seed(seed)
    expect(compiled(x).map((a) => a.tolist())).toEqual([loss, gradient])
  }
})

test("every call has a name of its own, so that programs in files can name it", () => {
  expect(sharedNames()).toEqual([])
})

test("views of nothing need no place", () => {
  expect(mx.compile((x: mx.Array) => mx.median(x, 0))(mx.zeros([3, 0])).shape).toEqual([0])
})
