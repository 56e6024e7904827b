// All-reduce between GPUs by NCCL, and data parallel and fully sharded training of a model of GPT-2 small's size, as a rank of a job:
// `npx lazuli launch -n 2 --backend nccl benchmarks/dist/device-collectives.js [megabytes]`; beside it
// benchmarks/peers/device_collectives.py. Jobs whose environment variable TURNS names one folder, which does not exist, take turns round by
// round. After the megabytes, `memory` measures what steps of fully sharded parameters take, in a process that has done nothing else.
import { mkdirSync, rmdirSync } from "node:fs"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { setTimeLimit } from "@lazuli/distributed"
import { shareParameters } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import { AdamW } from "@lazuli/nn/optimizers"
import { GPT_BATCH, GPT_LENGTH, GPT_WORDS, Gpt } from "./gpu-gpt"
import { median } from "./median"

const megabytes = Number(process.argv[2] ?? 100)
// The other ranks wait while rank 0 waits for its turn.
setTimeLimit(120)
const group = mx.distributed.init({ backend: "nccl" })
const [rank, size] = [group.rank(), group.size()]
const { TURNS } = process.env

const pause = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}
const meet = (): void => mx.eval(mx.distributed.barrier())

/** Runs `body` while no other job does. */
function inTurn<T>(body: () => T): T {
  const folder = rank === 0 ? TURNS : undefined
  for (let isMine = folder === undefined; !isMine; ) {
    pause(2)
    try {
      mkdirSync(folder as string)
      isMine = true
    } catch {}
  }
  meet()
  try {
    return body()
  } finally {
    meet()
    if (folder !== undefined) rmdirSync(folder)
  }
}

/** Milliseconds, of the slowest rank. */
const slowest = (ms: number): number =>
  mx.stream(mx.cpu, () => mx.distributed.allMax(mx.array([ms])).item() as number)

interface Row {
  readonly body: () => void
  /** Only rank 0 runs it. */
  readonly isAlone?: boolean
}

/** Median milliseconds of a call of each row, of some rounds of several, in which rows take turns; other rounds come before. */
function timed<K extends string>(
  rows: Record<K, Row>,
  calls: number,
  rounds: number,
  warm: number,
): Record<K, number> {
  const names = Object.keys(rows) as K[]
  const times = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>
  for (let i = 0; i < rounds + warm; i++)
    inTurn(() => {
      for (const name of names) {
        const { body, isAlone = false } = rows[name]
        const runs = !isAlone || rank === 0
        if (runs) body()
        mx.synchronize()
        meet()
        const begin = performance.now()
        for (let k = 0; runs && k < calls; k++) body()
        mx.synchronize()
        const ms = slowest((performance.now() - begin) / calls)
        if (i >= warm) times[name].push(ms)
      }
    })
  return Object.fromEntries(names.map((name) => [name, median(times[name])])) as Record<K, number>
}

function shard(model: Gpt): void {
  model.words = nn.fullyShard(model.words)
  model.blocks = model.blocks.map((block) => nn.fullyShard(block))
  model.head = nn.fullyShard(model.head)
}

/** A training step of a model of bfloat16. */
function gptStep(average: <T>(gradients: T) => T, isSharded = false): () => void {
  mx.random.seed(1)
  const model = new Gpt()
  model.setDtype(mx.bfloat16)
  shareParameters(model)
  if (isSharded) shard(model)
  const optimizer = new AdamW({ learningRate: 1e-4 })
  optimizer.init(model)
  const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) => model.loss(x, y))
  const state = [model.state, optimizer.state]
  const step = compile(
    (x: mx.Array, y: mx.Array): mx.Array => {
      const [loss, gradients] = lossAndGradient(x, y)
      optimizer.update(model, average(gradients))
      return loss
    },
    { inputs: state, outputs: state, donate: true },
  )
  const tokens = mx.random.randint(0, GPT_WORDS, [GPT_BATCH, GPT_LENGTH])
  mx.eval(tokens, model.parameters())
  return () => mx.eval(step(tokens, tokens), state)
}

/**
 * Megabytes at most, in steps of a model of bfloat16 whose parts the members hold, and at the end of one; and those of what does not
 * depend on the batch: all parameters, gradients and moments, and the largest layer.
 */
function gptMemory(batch: number): Record<string, number> {
  mx.random.seed(1)
  const model = new Gpt()
  model.setDtype(mx.bfloat16)
  shareParameters(model)
  const bytesOf = (tree: unknown): number =>
    mx.treeFlatten(tree as never).reduce((sum, [, x]) => sum + (x instanceof mx.Array ? x.nbytes : 0), 0)
  const [whole, largest] = [bytesOf(model.parameters()), bytesOf(model.head.parameters())]
  shard(model)
  const optimizer = new AdamW({ learningRate: 1e-4 })
  optimizer.init(model)
  const lossAndGradient = nn.valueAndGrad(model, (x: mx.Array, y: mx.Array) => model.loss(x, y))
  const tokens = mx.random.randint(0, GPT_WORDS, [batch, GPT_LENGTH])
  mx.eval(tokens, model.parameters(), optimizer.state)
  // Collects arrays that the program has dropped, which count until then.
  mx.memoryReport()
  mx.clearCache()
  mx.resetPeakMemory()
  const state = [model.state, optimizer.state]
  const step = compile(
    (x: mx.Array, y: mx.Array): mx.Array => {
      const [loss, gradients] = lossAndGradient(x, y)
      optimizer.update(model, gradients)
      return loss
    },
    { inputs: state, outputs: state, donate: true },
  )
  for (let i = 0; i < 3; i++) {
    mx.eval(step(tokens, tokens), state)
    mx.synchronize()
    mx.memoryReport()
  }
  const megabytesOf = (bytes: number): number => Math.round(bytes / 1e6)
  return {
    "at most, MB": megabytesOf(mx.getPeakMemory()),
    "between steps, MB": megabytesOf(mx.getActiveMemory()),
    "parameters, gradients and moments, MB": megabytesOf(4 * whole),
    "largest layer, MB": megabytesOf(largest),
  }
}

const SUMS = 10
/**
 * Sums of so many bytes: each of the last one's, evaluated together, promised one by one, and as one compiled function; or of one array,
 * each waited for.
 */
function sums(bytes: number): Record<"evaluated" | "promised" | "compiled" | "waited for", Row> {
  const x = mx.contiguous(mx.ones([bytes / 4], mx.float32))
  mx.eval(x)
  const together = compile((y: mx.Array): mx.Array => {
    for (let i = 0; i < SUMS; i++) y = mx.distributed.allSum(y)
    return y
  })
  // Without what JavaScript still holds, memory is used again, as PyTorch's sums are in place.
  const chain = (submit: (y: mx.Array) => void): mx.Array => {
    let y = mx.distributed.allSum(x)
    for (let i = 1; i < SUMS; i++) {
      submit(y)
      const next = mx.distributed.allSum(y)
      y.dispose()
      y = next
    }
    return y
  }
  const rowOf = (sum: () => mx.Array): Row => ({
    body() {
      const y = sum()
      mx.eval(y)
      y.dispose()
    },
  })
  const one = rowOf(() => mx.distributed.allSum(x))
  return {
    evaluated: rowOf(() => chain(() => {})),
    promised: rowOf(() => chain((y) => void mx.asyncEval(y))),
    compiled: rowOf(() => together(x)),
    "waited for": {
      body() {
        for (let i = 0; i < SUMS; i++) one.body()
      },
    },
  }
}

function everything(): void {
  const results: Record<string, number> = {}
  if (size > 1)
    for (const [name, ms] of Object.entries(timed(sums(megabytes * 1_000_000), 1, 40, 20))) {
      results[`all-reduce of ${megabytes} MB, ${name}, ms`] = ms / SUMS
      // As NCCL's tests count: what each link carries.
      results[`${name}, GB/s`] = ((megabytes / 1000) * 2 * (size - 1)) / size / (ms / SUMS / 1000)
    }
  const alone = <T>(gradients: T): T => gradients
  const steps: Record<string, Row> = {
    "GPT-2 small step, bf16, one GPU, ms": { body: gptStep(alone), isAlone: true },
  }
  if (size > 1) {
    steps["each alone, ms"] = { body: gptStep(alone) }
    steps["data parallel, ms"] = { body: gptStep((gradients) => nn.averageGradients(gradients)) }
    steps["fully sharded, ms"] = { body: gptStep(alone, true) }
  }
  Object.assign(results, timed(steps, 4, 12, 3))
  if (rank === 0) console.log(JSON.stringify({ ranks: size, ...results }))
}

const parts: Record<string, () => void> = {
  memory() {
    for (const batch of [GPT_BATCH, 1]) {
      const memory = gptMemory(batch)
      if (rank === 0) console.log(JSON.stringify({ ranks: size, batch, ...memory }))
    }
  },
}
;(parts[process.argv[3]] ?? everything)()
