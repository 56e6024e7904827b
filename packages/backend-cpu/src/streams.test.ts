/**
 * Work on several streams in a program that never asks for a promise.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

test("streams run at once and wait for each other, with nobody listening", () => {
  const streams = [0, 1, 2].map(() => mx.newStream(mx.cpu))
  for (let round = 0; round < 20; round++) {
    const parts = streams.map((stream, i) => mx.stream(stream, () => mx.full([1000], i).add(round)))
    const sum = parts.reduce((a, b) => a.add(b))
    mx.eval(sum, ...parts)
    expect(sum.sum().item()).toBe(1000 * (3 + 3 * round))
  }
})
