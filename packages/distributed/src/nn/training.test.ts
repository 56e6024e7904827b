import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { afterAll, expect, test } from "vitest"
import { hasMpirun, programOf, runJob, runUnderMpi } from "../../test/run-job"
import { expectTrained } from "../../test/trained"
import { dataParallel, hasSharded, loadSharded, RankSampler, saveSharded } from "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-spread-"))
afterAll(() => rmSync(scratch, { recursive: true }))

const backends = process.platform === "linux" ? ["ring", "shm", "mpi"] : ["ring", "mpi"]
test.each(backends.flatMap((backend) => [2, 4].map((n) => ({ backend, n }))))(
  "$n ranks train as one does by $backend, however the model is spread, and their checkpoints load on one",
  async ({ backend, n }) => {
    if (backend === "mpi" && !hasMpirun) return
    const program = await programOf("training")
    const folder = join(scratch, backend, String(n))
    const env = { CHECKPOINT: folder, LAZULI_TIME_LIMIT: "20" }
    const { code, out, errors } =
      backend === "mpi"
        ? await runUnderMpi([program], n, { env })
        : await runJob([program], n, { backend, env, timeLimit: 20 })
    expect(code, String(errors)).toBe(0)
    expectTrained(out, folder)
  },
  60_000,
)

test("models that are spread in several ways keep their state, or are refused", async () => {
  const { code, out, errors } = await runJob([await programOf("spread-models"), join(scratch, "models")], 4, {
    timeLimit: 20,
  })
  expect(code, errors.flat().join("\n")).toBe(0)
  for (const [line] of out) expect(JSON.parse(line)).toEqual([])
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
  expect(state).toEqual({ epoch: 0, position: 6, count: 7, seed: 5 })
  expect(sampler.length).toBe(3)
  const expected = [sampler.next(), sampler.next()]
  sampler.state = state
  expect([sampler.next(), sampler.next()]).toEqual(expected)
  sampler.state = { epoch: 1, position: 2 }
  const foreign = [
    { ...state, count: 8 },
    { ...state, seed: 6 },
    { epoch: 0, position: 8 },
  ]
  for (const other of foreign)
    expect(() => {
      sampler.state = other
    }).toThrow("is not one of 7 examples by the seed 5")
  expect(sampler.state).toMatchObject({ epoch: 1, position: 2 })
  expect(() => new RankSampler(1, { batchSize: 2 })).toThrow(mx.ArgumentError)
  expect(() => new RankSampler(0, { batchSize: 2 })).toThrow("count must be a positive integer")
  expect(() => new RankSampler(4, undefined as never)).toThrow(
    "[RankSampler] options must be an object with batchSize",
  )
  for (const seed of [Number.NaN, 2 ** 32, 0.5, "x" as never])
    expect(() => new RankSampler(4, { batchSize: 2, seed })).toThrow("seed must be an integer of 32 bits")
  for (const seed of [-1, 2 ** 32 - 1]) new RankSampler(4, { batchSize: 2, seed }).next()
  expect(() => new RankSampler(4, { batch_size: 2 } as never)).toThrow('Did you mean "batchSize"?')
  expect(() => dataParallel(new nn.Linear(1, 1), () => mx.array(0), { bucket: 1 } as never)).toThrow(
    '[dataParallel] has no option "bucket"',
  )
})
