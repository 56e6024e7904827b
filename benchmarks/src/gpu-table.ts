/**
 * `npm run bench:gpu`: what operations take on an NVIDIA GPU, beside PyTorch's eager mode where a python3 has it. Times are medians of
 * calls that wait for their result, after a few that do not count.
 *
 *   npm run bench:gpu -- [--only REGEX] [--rounds N] [--json FILE] [--without-pytorch]
 */
import { spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import "@lazuli/backend-cuda"

/** A row: how it is run, and the bytes or operations that it needs at least. */
interface Row {
  readonly name: string
  readonly bytes?: number
  readonly flops?: number
  /** Operations of one call: the time is given for one of them, in µs. */
  readonly ops?: number
  /** Makes what is measured; inputs are made once. */
  make(): () => mx.Array | mx.Array[]
}

const { values } = parseArgs({
  options: {
    only: { type: "string", default: "" },
    rounds: { type: "string", default: "20" },
    json: { type: "string" },
    "without-pytorch": { type: "boolean", default: false },
  },
})

const N = 8192
const matrix = (n = N, dtype: mx.Dtype = mx.float32): mx.Array => {
  const x = mx.random.normal([n, n]).astype(dtype)
  mx.eval(x)
  return x
}
const gelu = (x: mx.Array): mx.Array => x.multiply(mx.erf(x.multiply(Math.SQRT1_2)).add(1)).multiply(0.5)
const product = (name: string, n: number, dtype: mx.Dtype): Row => ({
  name,
  flops: 2 * n ** 3,
  make() {
    const [a, b] = [matrix(n, dtype), matrix(n, dtype)]
    return () => mx.matmul(a, b)
  },
})
const onMatrix = (name: string, bytes: number, f: (x: mx.Array) => mx.Array): Row => ({
  name,
  bytes: bytes * 4 * N * N,
  make() {
    const x = matrix()
    return () => f(x)
  },
})

const rows: Row[] = [
  onMatrix("copy 8192²", 2, (x) => x.add(0)),
  onMatrix("add 8192²", 3, (x) => x.add(x.transpose().transpose())),
  {
    name: "composed gelu 32×1000×4096",
    bytes: 2 * 4 * 32 * 1000 * 4096,
    make() {
      const x = mx.random.normal([32, 1000, 4096])
      mx.eval(x)
      const f = compile(gelu)
      return () => f(x) as mx.Array
    },
  },
  onMatrix("sum 8192², all", 1, (x) => x.sum()),
  onMatrix("sum 8192², axis 0", 1, (x) => x.sum(0)),
  onMatrix("sum 8192², axis 1", 1, (x) => x.sum(1)),
  onMatrix("softmax 8192²", 2, (x) => mx.softmax(x, -1)),
  {
    name: "layer norm 8192²",
    bytes: 2 * 4 * N * N,
    make() {
      const [x, w, b] = [matrix(), mx.ones([N]), mx.zeros([N])]
      return () => mx.fast.layerNorm(x, w, b, 1e-5)
    },
  },
  onMatrix("cumsum 8192², axis 1", 2, (x) => mx.cumsum(x, 1)),
  {
    name: "sort 1e7",
    make() {
      const x = mx.random.normal([1e7])
      mx.eval(x)
      return () => mx.sort(x)
    },
  },
  {
    name: "gather 1e6 rows of 64",
    bytes: 2 * 4 * 64e6,
    make() {
      const [x, i] = [mx.random.normal([1e6, 64]), mx.random.randint(0, 1e6, [1e6])]
      mx.eval([x, i])
      return () => mx.take(x, i, 0)
    },
  },
  product("matmul 4096 f32", 4096, mx.float32),
  product("matmul 4096 bf16", 4096, mx.bfloat16),
  {
    name: "chain of 100 adds (16 elements)",
    ops: 100,
    make() {
      const x = mx.ones([16])
      return () => {
        let y = x
        for (let i = 0; i < 100; i++) y = y.add(x)
        return y
      }
    },
  },
  {
    name: "one add, one eval (16 elements)",
    ops: 1,
    make() {
      const x = mx.ones([16])
      return () => x.add(x)
    },
  },
]

const median = (taken: number[]): number => taken.sort((a, b) => a - b)[taken.length >> 1]

function measure(row: Row): number | string {
  try {
    const f = row.make()
    const once = (): number => {
      const begin = performance.now()
      const made = f()
      mx.eval(made)
      const taken = performance.now() - begin
      for (const each of [made].flat()) each.dispose()
      return taken
    }
    // Until code is compiled and memory is there to be used again.
    for (let i = 0, end = performance.now() + 200; i < 3 || performance.now() < end; i++) once()
    const rounds = Number(values.rounds) * (row.ops ? 20 : 1)
    const taken = Array.from({ length: rounds }, once)
    return median(taken)
  } catch (error) {
    return (error as Error).message.split("\n")[0].slice(0, 200)
  } finally {
    mx.clearCache()
  }
}

/** PyTorch's times by row, in ms. */
function pytorch(): Record<string, number | null> {
  if (values["without-pytorch"]) return {}
  const script = fileURLToPath(new URL("../peers/gpu_pytorch.py", import.meta.url))
  const { status, stdout } = spawnSync("python3", [script, values.rounds], { encoding: "utf8" })
  return status === 0 ? (JSON.parse(stdout.trim().split("\n").pop() as string) as Record<string, number>) : {}
}

mx.setDefaultDevice(mx.gpu)
const begin = performance.now()
mx.eval(mx.add(mx.ones([2]), 1))
console.log(
  `${mx.deviceInfo(mx.gpu).deviceName}: first result after ${(performance.now() - begin).toFixed(0)} ms`,
)
const wanted = new RegExp(values.only)
const peer = pytorch()
const table = rows
  .filter(({ name }) => wanted.test(name))
  .map((row) => {
    const time = measure(row)
    const theirs = peer[row.name]
    const rate = (ms: number): string =>
      row.bytes
        ? `${(row.bytes / ms / 1e6).toFixed(0)} GB/s`
        : row.flops
          ? `${(row.flops / ms / 1e9).toFixed(1)} TFLOP/s`
          : ""
    const show = (ms: number): string =>
      row.ops ? `${((1000 * ms) / row.ops).toFixed(2)} µs` : `${ms.toFixed(3)} ms`
    console.log(
      [
        row.name.padEnd(34),
        typeof time === "number" ? `${show(time).padStart(12)} ${rate(time).padStart(14)}` : time,
        theirs && typeof time === "number"
          ? `PyTorch ${show(theirs).padStart(12)} ${rate(theirs).padStart(14)}   ${(time / theirs).toFixed(2)} ×`
          : "",
      ].join(" "),
    )
    return { name: row.name, time, pytorch: theirs }
  })
console.log(`without a kernel: ${JSON.stringify(mx.backendStats())}`)
if (values.json) writeFileSync(values.json, JSON.stringify(table, null, 1))
