import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { afterAll, expect, test } from "vitest"
import { programOf, runJob } from "../../test/run-job"
import { dataParallel, hasSharded, loadSharded, RankSampler, saveSharded } from "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-spread-"))
afterAll(() => rmSync(scratch, { recursive: true }))

test("2 and 4 ranks train as one does, however the model is spread, and their checkpoints load on one", async () => {
  const program = await programOf("training")
  for (const n of [2, 4]) {
    const folder = join(scratch, String(n))
    const { code, out, errors } = await runJob([program], n, { env: { CHECKPOINT: folder }, timeLimit: 20 })
    expect(code, errors.flat().join("\n")).toBe(0)
    const results = out.map(([line]) => JSON.parse(line))
    for (const { result } of results) {
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
    class Mlp extends nn.Module {
      first = new nn.Linear(6, 16)
      second = new nn.Linear(16, 3)
    }
    const model = new Mlp()
    loadSharded(join(folder, "float64"), model)
    expect([model.first.weight.shape, model.second.bias?.shape]).toEqual([[16, 6], [3]])
    const again = new Mlp()
    loadSharded(join(folder, "float32"), again)
    expect(mx.allclose(again.first.weight, model.first.weight.astype(mx.float32), 0, 1).item()).toBe(true)
  }
}, 60_000)

test("one process: the same names, and a checkpoint without all its parts is refused", () => {
  const folder = join(scratch, "one")
  const model = new nn.Linear(2, 3)
  expect(hasSharded(folder)).toBe(false)
  saveSharded(folder, model)
  expect(hasSharded(folder)).toBe(true)
  const other = new nn.Linear(2, 3)
  loadSharded(folder, other)
  expect(mx.arrayEqual(other.weight, model.weight).item()).toBe(true)
  expect(() => loadSharded(tmpdir(), other)).toThrow(mx.FormatError)
  const step = dataParallel(model, (x: mx.Array) => model.forward(x).sum())
  expect(step(mx.ones([1, 2]))[1].weight.tolist()).toEqual([
    [1, 1],
    [1, 1],
    [1, 1],
  ])
})

test("a sampler goes through all examples, resumes, and refuses what cannot be divided", () => {
  const sampler = new RankSampler(7, { batchSize: 2, seed: 5 })
  const epoch = [0, 1, 2].flatMap(() => sampler.next())
  expect(new Set(epoch).size).toBe(6)
  const { state } = sampler
  expect(state).toEqual({ epoch: 0, position: 6 })
  const expected = [sampler.next(), sampler.next()]
  sampler.state = state
  expect([sampler.next(), sampler.next()]).toEqual(expected)
  expect(() => new RankSampler(1, { batchSize: 2 })).toThrow(mx.ArgumentError)
  expect(() => new RankSampler(0, { batchSize: 2 })).toThrow("count must be a positive integer")
  expect(() => new RankSampler(4, undefined as never)).toThrow(
    "[RankSampler] options must be an object with batchSize",
  )
  expect(() => new RankSampler(4, { batch_size: 2 } as never)).toThrow('Did you mean "batchSize"?')
  expect(() => dataParallel(new nn.Linear(1, 1), () => mx.array(0), { bucket: 1 } as never)).toThrow(
    '[dataParallel] has no option "bucket"',
  )
})
