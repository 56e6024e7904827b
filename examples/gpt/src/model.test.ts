import { mx } from "lazuli"
import { expect, test } from "vitest"
import { GPT } from "./model"

const shape = { context: 8, layers: 2, width: 16, heads: 2, dropout: 0 }

test("logits for every byte at every position", () => {
  const model = new GPT(shape)
  expect(model.forward(mx.zeros([3, 5], mx.int32)).shape).toEqual([3, 5, 256])
  // Tables, and in each block two norms, the projections of attention and the network.
  const block = 2 * 2 * 16 + 16 * 48 + 16 * 16 + (16 * 64 + 64) + (64 * 16 + 16)
  expect(model.size).toBe(256 * 16 + 8 * 16 + 2 * block + 2 * 16)
})

test("no position sees what comes after it", () => {
  const model = new GPT(shape)
  const before = mx.array([[1, 2, 3, 4, 5, 6]], mx.int32)
  const after = mx.array([[1, 2, 3, 4, 99, 98]], mx.int32)
  const difference = model.forward(before).subtract(model.forward(after)).abs().max(-1).index(0).tolist()
  expect((difference as number[]).map((d) => d > 0)).toEqual([false, false, false, false, true, true])
})

test("an untrained model knows little", () => {
  mx.random.seed(0)
  const model = new GPT({ ...shape, width: 64 })
  const loss = model.loss(mx.random.randint(0, 256, [16, 9])).item() as number
  expect(loss).toBeGreaterThan(Math.log(256) - 0.5)
  expect(loss).toBeLessThan(Math.log(256) + 2)
})
