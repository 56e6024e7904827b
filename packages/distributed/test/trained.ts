/** Results of training.ts: ranks trained as one process does, whatever was spread, and their checkpoints load in one. */
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { expect } from "vitest"
import { loadSharded } from "../src/nn"

class Mlp extends nn.Module {
  first = new nn.Linear(6, 16)
  second = new nn.Linear(16, 3)
}

/** Checks what the ranks of a job printed, and what they saved. */
export function expectTrained(out: readonly string[][], folder: string): void {
  const n = out.length
  const results = out.map(([line]) => JSON.parse(line))
  for (const { result } of results) {
    expect(Object.keys(result)).toHaveLength(9)
    for (const [name, value] of Object.entries(result as Record<string, number>)) {
      if (name.startsWith("parameters")) expect(value, name).toBeLessThan(1 / n + 0.06)
      else expect(value, name).toBeLessThan(name.endsWith("float64") ? 1e-10 : 1e-4)
    }
  }
  // In each step the members' batches are different examples.
  for (const step of [0, 1]) {
    const all = results.flatMap(({ batches }) => batches[step])
    expect(new Set(all).size).toBe(all.length)
  }
  const model = new Mlp()
  expect(() => loadSharded(join(folder, "float64"), model)).toThrow(
    "is float64 there, and float32 in the model",
  )
  model.update(mx.treeMap((x) => (x as mx.Array).astype(mx.float64), model.parameters()) as never)
  loadSharded(join(folder, "float64"), model)
  expect([model.first.weight.shape, model.second.bias?.shape]).toEqual([[16, 6], [3]])
  const again = new Mlp()
  loadSharded(join(folder, "float32"), again)
  expect(mx.allclose(again.first.weight, model.first.weight.astype(mx.float32), 0, 1).item()).toBe(true)
}
