/** Memory use of growing buffers. */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { put } from "./cache"

test("a growing buffer frees its predecessors", async () => {
  const x = mx.full([1, 8, 256, 64], 1)
  const before = mx.getActiveMemory()
  let buffer: mx.Array | null = null
  for (let i = 0; i < 6; i++) {
    buffer = put(buffer, x, 256 * i)
    await mx.asyncEval([buffer])
  }
  const { nbytes } = buffer as mx.Array
  expect(mx.getActiveMemory() - before).toBeLessThan(1.1 * nbytes)
})
