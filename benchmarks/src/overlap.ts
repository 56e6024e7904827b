// Steps of data parallel training beside their parts, computing and exchanging gradients, where links are limited and where they are not:
// `node benchmarks/dist/overlap.js [ranks] [megabits a second …]`. Each rank is in a network namespace of its own, behind `tc tbf`; needs
// root. 0 stands for no limit, and no namespaces. LAZULI_DISABLE_COMPILE=1 runs steps that are not compiled.
import { execFileSync, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { availableParallelism } from "node:os"
import * as mx from "@lazuli/core"
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import { shareParameters } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import { SGD } from "@lazuli/nn/optimizers"
import { median } from "./median"

const here = process.argv[1]
const [LAYERS, WIDTH, BATCH, BUCKET] = [16, 512, 192, 1 << 20]
/** Before the first ones, the program's own code is not compiled. */
const [WARM, STEPS] = [15, 20]

interface Parts {
  readonly forward: number
  readonly compute: number
  readonly communication: number
  readonly step: number
}
interface Measured {
  readonly times: Parts
  readonly busy: Parts
}

/** Milliseconds of a step and of its parts, as this rank sees them, and those of processor time. */
function measure(): Measured {
  const group = mx.distributed.init(true)
  const communicationStream = mx.newStream(mx.cpu)
  mx.random.seed(1)
  const model = new nn.Sequential(
    ...Array.from({ length: LAYERS }, () => new nn.Linear(WIDTH, WIDTH, { bias: false })),
  )
  shareParameters(model)
  const optimizer = new SGD({ learningRate: 1e-3 })
  const loss = (x: mx.Array): mx.Array => model.forward(x).square().mean()
  const lossAndGradient = nn.valueAndGrad(model, loss)
  const x = mx.random.normal([BATCH, WIDTH])
  mx.eval(x, model.parameters())
  const average = <T>(gradients: T): T =>
    nn.averageGradients(gradients, { group, allReduceSize: BUCKET, communicationStream })
  const [, some] = lossAndGradient(x)
  mx.eval(some)
  const state = { inputs: [model, optimizer], outputs: [model, optimizer] }
  const train = (of: <T>(gradients: T) => T) =>
    compile((x: mx.Array) => {
      const [value, gradients] = lossAndGradient(x)
      optimizer.update(model, of(gradients))
      return value
    }, state)
  const [alone, together] = [train((gradients) => gradients), train(average)]
  const exchange = compile(average<typeof some>)
  const parts = {
    forward: () => mx.eval(loss(x)),
    compute: () => mx.eval(alone(x), model.parameters()),
    communication: () => mx.eval(exchange(some)),
    step: () => mx.eval(together(x), model.parameters()),
  }
  const times: Record<string, number[]> = {}
  // Of processors.
  const busy: Record<string, number[]> = {}
  // By turns, so that what else the machine does meets all alike.
  for (let i = 0; i < WARM + STEPS; i++)
    for (const [name, run] of Object.entries(parts)) {
      mx.eval(mx.distributed.barrier(null, { group }))
      const before = process.cpuUsage()
      const begin = performance.now()
      run()
      mx.synchronize()
      const took = performance.now() - begin
      const { user, system } = process.cpuUsage(before)
      if (i < WARM) continue
      ;(times[name] ??= []).push(took)
      ;(busy[name] ??= []).push((user + system) / 1000)
    }
  const mediansOf = (all: Record<string, number[]>): Parts =>
    Object.fromEntries(Object.entries(all).map(([name, laps]) => [name, median(laps)])) as unknown as Parts
  return { times: mediansOf(times), busy: mediansOf(busy) }
}

const run = (command: string, ...args: string[]): string => execFileSync(command, args, { encoding: "utf8" })

/** Namespaces `lazuli0` … joined by a bridge, each of which sends so many megabits a second at most. */
function join(ranks: number, megabits: number): () => void {
  const end = (): void => {
    for (let r = 0; r < ranks; r++) spawnQuietly("ip", "netns", "del", `lazuli${r}`)
    spawnQuietly("ip", "link", "del", "lazuli")
  }
  end()
  run("ip", "link", "add", "lazuli", "type", "bridge")
  run("ip", "link", "set", "lazuli", "up")
  for (let r = 0; r < ranks; r++) {
    const [space, inside, outside] = [`lazuli${r}`, `lazuli-in${r}`, `lazuli-out${r}`]
    run("ip", "netns", "add", space)
    run("ip", "link", "add", inside, "type", "veth", "peer", "name", outside)
    run("ip", "link", "set", outside, "master", "lazuli", "up")
    run("ip", "link", "set", inside, "netns", space)
    const within = ["netns", "exec", space]
    run("ip", ...within, "ip", "address", "add", `10.77.0.${r + 1}/24`, "dev", inside)
    run("ip", ...within, "ip", "link", "set", inside, "up")
    run("ip", ...within, "ip", "link", "set", "lo", "up")
    const limit = ["rate", `${megabits}mbit`, "burst", "128kb", "latency", "50ms"]
    run("ip", ...within, "tc", "qdisc", "add", "dev", inside, "root", "tbf", ...limit)
  }
  return end
}
function spawnQuietly(command: string, ...args: string[]): void {
  try {
    execFileSync(command, args, { stdio: "ignore" })
  } catch {
    // There is none.
  }
}

async function compare(ranks: number, megabits: number): Promise<void> {
  const end = megabits > 0 ? join(ranks, megabits) : () => {}
  try {
    const job = {
      LAZULI_SIZE: String(ranks),
      LAZULI_ADDRESS: `${megabits > 0 ? "10.77.0.1" : "127.0.0.1"}:29876`,
      LAZULI_SECRET: randomBytes(16).toString("hex"),
      LAZULI_BACKEND: "ring",
      LAZULI_QUIET: "1",
      LAZULI_TIME_LIMIT: "60",
      LAZULI_NUM_THREADS: "1",
    }
    const outputs = await Promise.all(
      Array.from({ length: ranks }, (_, rank) => {
        const node = [process.execPath, here, "rank"]
        const [command, ...args] = megabits > 0 ? ["ip", "netns", "exec", `lazuli${rank}`, ...node] : node
        const child = spawn(command, args, {
          env: { ...process.env, ...job, LAZULI_RANK: String(rank) },
          stdio: ["ignore", "pipe", "inherit"],
        })
        let out = ""
        child.stdout.on("data", (text) => {
          out += String(text)
        })
        return new Promise<string>((resolve) => child.once("close", () => resolve(out)))
      }),
    )
    const { times, busy } = JSON.parse(outputs[0]) as Measured
    const { forward, compute, communication, step } = times
    const [most, sum] = [Math.max(compute, communication), compute + communication]
    // A forward pass runs beside no exchange, and processors that all ranks share are busy with both parts.
    const beside = forward + Math.max(compute - forward, communication)
    const worked = ((busy.compute + busy.communication) * ranks) / Math.max(ranks, availableParallelism())
    const least = Math.max(beside, worked)
    const milliseconds = [
      forward,
      compute,
      communication,
      busy.compute + busy.communication,
      step,
      busy.step,
      least,
    ]
    const shares = [step / most, step / sum, step / least]
    const name = megabits > 0 ? `${megabits} Mbit/s` : "no limit"
    const cells = [...milliseconds.map((n) => n.toFixed(1)), ...shares.map((n) => n.toFixed(2))]
    console.log([name.padEnd(14), ...cells.map((cell) => cell.padStart(15))].join(""))
  } finally {
    end()
  }
}

const [mode = "2", ...rates] = process.argv.slice(2)
if (mode === "rank") {
  const times = measure()
  if (mx.distributed.init().rank() === 0) console.log(JSON.stringify(times))
} else {
  console.log(`${mode} ranks, ${LAYERS} layers of ${WIDTH}: median milliseconds`)
  const columns = ["forward", "compute", "communication", "their CPU", "step", "its CPU", "least"]
  columns.push("/ larger", "/ sum", "/ least")
  console.log(["".padEnd(14), ...columns.map((name) => name.padStart(15))].join(""))
  for (const rate of rates.length > 0 ? rates : ["0", "400", "4000"])
    await compare(Number(mode), Number(rate))
}
