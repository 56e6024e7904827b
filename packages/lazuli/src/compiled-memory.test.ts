/** The most memory that a compiled training step takes: little more than what must live at once, and less than the eager one. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { listBackends, type Plans } from "@lazuli/core/engine"
import { mx, nn, optim } from "lazuli"
import { expect, test, vi } from "vitest"

class Model extends nn.Module {
  tokens = new nn.Embedding(128, 128)
  body = new nn.TransformerEncoder(2, 128, 4, { mlpDims: 512, normFirst: true })
  head = new nn.Linear(128, 128)
  forward(ids: mx.Array): mx.Array {
    const mask = nn.MultiHeadAttention.createAdditiveCausalMask(32)
    return this.head.forward(this.body.forward(this.tokens.forward(ids), mask))
  }
}

/** A step of a small transformer, eager or compiled, and the most bytes that were in use during one. */
function training(compiled: boolean, donate: boolean) {
  const { active: before } = mx.memoryReport()
  mx.random.seed(0)
  const model = new Model()
  const optimizer = new optim.AdamW({ learningRate: 1e-3 })
  optimizer.init(model)
  const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) =>
    nn.losses.crossEntropy(model.forward(x), y, { reduction: "mean" }),
  )
  const eager = (x: mx.Array, y: mx.Array): mx.Array => {
    const [value, gradient] = lossAndGradient(x, y)
    optimizer.update(model, gradient)
    return value
  }
  const state = [model.state, optimizer.state]
  const replayed = mx.compile(eager, { inputs: state, outputs: state, donate })
  const [x, y] = [mx.random.randint(0, 128, [32, 32]), mx.random.randint(0, 128, [32, 32])]
  mx.eval(x, y, state)
  const step = (): number => {
    const loss = (compiled ? replayed : eager)(x, y)
    mx.eval(loss, state)
    return Number(loss.item())
  }
  const losses = [step(), step()]
  const active = mx.memoryReport().active - before
  mx.resetPeakMemory()
  losses.push(step())
  const peak = mx.getPeakMemory() - before
  return { losses, active, peak, explain: () => replayed.explain(x, y) }
}

/** The bytes that a kernel may take for its own time: a product packs its factors, here at most 1024×512 and 512×128. */
const PACKED = 4 * (1024 * 512 + 512 * 128)

test("a compiled transformer step takes at most a tenth more than what lives at once, and less than the eager one", () => {
  const eager = training(false, false)
  const kept = training(true, false)
  const donated = training(true, true)
  expect(kept.losses).toEqual(eager.losses)
  expect(donated.losses).toEqual(eager.losses)
  const { arenaBytes, liveBytes } = donated.explain()
  expect(arenaBytes).toBeLessThanOrEqual(1.1 * Number(liveBytes))
  // Between inputs and outputs, and outputs too small to be worth donating.
  const live = donated.active + Number(liveBytes)
  expect(donated.peak).toBeLessThanOrEqual(1.1 * live + PACKED)
  expect(donated.peak).toBeLessThan(kept.peak)
  expect(donated.peak).toBeLessThan(eager.peak)
}, 120_000)

/** The plans that are left of so many functions, each compiled, called and dropped in synchronous code. */
function plansLeft(count: number, make: () => (x: mx.Array) => mx.Array): number {
  const plans = listBackends().find(({ name }) => name === "cpu")?.plans as Required<Plans>
  const record = vi.spyOn(plans, "record")
  const release = vi.spyOn(plans, "release")
  const x = mx.ones([3])
  for (let i = 0; i < count; i++) mx.eval(make()(x))
  const left = record.mock.calls.length - release.mock.calls.length
  expect(record.mock.calls.length).toBe(count)
  record.mockRestore()
  release.mockRestore()
  return left
}

test("a synchronous loop gives the plans of functions back that it dropped", { timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-plans-"))
  const file = join(folder, "f.lazuli")
  mx.exportFunction(file, (x) => x.exp().sum(), [mx.ones([3])])
  expect(plansLeft(1500, () => mx.compile((x) => x.exp().sum()))).toBeLessThan(1200)
  expect(plansLeft(1500, () => mx.importFunction<[mx.Array], mx.Array>(file))).toBeLessThan(1200)
  rmSync(folder, { recursive: true })
})
