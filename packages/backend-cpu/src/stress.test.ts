/**
 * Threads that hand work over, send arrays to each other and are terminated in the middle of it, again and again.
 * `LAZULI_STRESS_ROUNDS=200 npx vitest run packages/backend-cpu/src/stress.test.ts` does so for longer.
 */

import { generator } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { answer, bundleEngine } from "../test/engine-bundle"
import "./index"

const ROUNDS = Number(process.env.LAZULI_STRESS_ROUNDS ?? 10)
const THREADS = 4
const { start } = bundleEngine()

/** Sends a product back, and then works until it is terminated, sometimes waiting for what it handed over. */
const WORK = `
  const { x, y, turn } = mx.receive(data)
  const s = mx.newStream(mx.cpu)
  let z = x.matmul(y)
  mx.asyncEval(z)
  post(mx.share({ z: mx.stream(s, () => z.add(turn)) }))
  for (let i = 0; ; i++) {
    z = mx.tanh(z.matmul(y)).add(x)
    const other = mx.stream(s, () => z.multiply(2).sum())
    const done = mx.asyncEval(z, other)
    if (i % 3 === turn % 3) await done
    if (i % 5 === 0) mx.eval(mx.array(new Float32Array(1000)).add(i))
  }`

test(`${THREADS} threads, ${ROUNDS} times: no crash, right answers, and no memory left behind`, async () => {
  const next = generator(11)
  const side = 96
  const one = mx.ones([side, side]).add(0)
  const two = mx.full([side, side], 2).add(0)
  mx.eval(one, two)
  const before = mx.memoryReport()
  // A function of its own, which holds nothing afterwards.
  const play = async (round: number): Promise<void> => {
    const workers = Array.from({ length: THREADS }, (_, k) =>
      start(WORK, mx.share({ x: one, y: two, turn: round + k })),
    )
    const pending: mx.Array[] = []
    const answers = workers.map(async (worker, k) => {
      const note = (await answer(worker)) as mx.SharedTree<{ z: mx.Array }>
      // Before it is sure whether all will have answered.
      if (next() < 0.2) await worker.terminate()
      const { z } = mx.receive(note)
      const sum = z.subtract(round + k).matmul(one)
      mx.asyncEval(sum)
      pending.push(sum)
    })
    await Promise.all(answers)
    if (next() < 0.7) await new Promise((resolve) => setTimeout(resolve, 30 * next()))
    const ends = workers.map((worker) => worker.terminate())
    for (const sum of pending) expect(sum.index(3, 5).item()).toBe(2 * side * side)
    await Promise.all(ends)
  }
  for (let round = 0; round < ROUNDS; round++) await play(round)
  await new Promise((resolve) => setTimeout(resolve, 1))
  const { active, buffers, byOp } = mx.memoryReport()
  expect({ active, buffers }, JSON.stringify(byOp)).toEqual({
    active: before.active,
    buffers: before.buffers,
  })
})
