// Steps of data parallel training beside their parts, computing and exchanging gradients, where links are limited and where they are not:
// `node benchmarks/dist/overlap.js [ranks] [megabits a second …]`. Each rank is in a network namespace of its own, behind `tc tbf`; needs
// root. 0 stands for no limit, and no namespaces. Ranks run on shares of the processors, as `lazuli launch` starts them, or with `--all`
// in front on any. LAZULI_DISABLE_COMPILE=1 runs steps that are not compiled.
//
// All ranks do the same at once in each part, which ends when the last of them has: `compute` is the step without `averageGradients`,
// `communication` the averages of gradients that were made long before, `in turn` the step without a stream for its communication.
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

const PARTS = ["forward", "compute", "communication", "inTurn", "step"] as const
type Parts<T> = Record<(typeof PARTS)[number], T>
interface Measured {
  readonly times: Parts<number[]>
  readonly busy: Parts<number[]>
}
const forAll = <T>(of: (part: (typeof PARTS)[number]) => T): Parts<T> =>
  Object.fromEntries(PARTS.map((part) => [part, of(part)])) as Parts<T>

/** Milliseconds of each step and of its parts, as this rank sees them, and those of processor time. */
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
  const averageOn =
    (stream?: mx.Stream) =>
    <T>(gradients: T): T =>
      nn.averageGradients(gradients, { group, allReduceSize: BUCKET, communicationStream: stream })
  const average = averageOn(communicationStream)
  const [, some] = lossAndGradient(x)
  mx.eval(some)
  const state = { inputs: [model, optimizer], outputs: [model, optimizer] }
  const train = (of: <T>(gradients: T) => T) =>
    compile((x: mx.Array) => {
      const [value, gradients] = lossAndGradient(x)
      optimizer.update(model, of(gradients))
      return value
    }, state)
  const [alone, inTurn, together] = [train((gradients) => gradients), train(averageOn()), train(average)]
  const exchange = compile(average<typeof some>)
  const parts: Parts<() => void> = {
    forward: () => mx.eval(loss(x)),
    compute: () => mx.eval(alone(x), model.parameters()),
    communication: () => mx.eval(exchange(some)),
    inTurn: () => mx.eval(inTurn(x), model.parameters()),
    step: () => mx.eval(together(x), model.parameters()),
  }
  const times = forAll((): number[] => [])
  // Of processors.
  const busy = forAll((): number[] => [])
  // By turns, so that what else the machine does meets all alike.
  for (let i = 0; i < WARM + STEPS; i++)
    for (const part of PARTS) {
      mx.eval(mx.distributed.barrier(null, { group }))
      const before = process.cpuUsage()
      const begin = performance.now()
      parts[part]()
      mx.synchronize()
      const took = performance.now() - begin
      const { user, system } = process.cpuUsage(before)
      if (i < WARM) continue
      times[part].push(took)
      busy[part].push((user + system) / 1000)
    }
  return { times, busy }
}

/** The medians of laps, each of which ends when its last rank has. */
const mediansOf = (ranks: readonly Parts<number[]>[]): Parts<number> =>
  forAll((part) => median(ranks[0][part].map((_, lap) => Math.max(...ranks.map((laps) => laps[part][lap])))))

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

/** A command that runs another one on a rank's share of the processors. */
function onShare(rank: number, ranks: number): string[] {
  const all = availableParallelism()
  if (all < ranks) return []
  const [first, end] = [rank, rank + 1].map((share) => Math.floor((all * share) / ranks))
  return ["taskset", "-c", `${first}-${end - 1}`]
}

async function compare(ranks: number, megabits: number, onAll: boolean): Promise<void> {
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
        const within = megabits > 0 ? ["ip", "netns", "exec", `lazuli${rank}`] : []
        const share = onAll ? [] : onShare(rank, ranks)
        const [command, ...args] = [...within, ...share, process.execPath, here, "rank"]
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
    const measured = outputs.map((output) => JSON.parse(output) as Measured)
    const { forward, compute, communication, inTurn, step } = mediansOf(measured.map(({ times }) => times))
    const busy = mediansOf(measured.map((rank) => rank.busy))
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
      inTurn,
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

const onAll = process.argv[2] === "--all"
const [mode = "2", ...rates] = process.argv.slice(onAll ? 3 : 2)
if (mode === "rank") console.log(JSON.stringify(measure()))
else {
  console.log(`${mode} ranks, ${LAYERS} layers of ${WIDTH}: median milliseconds`)
  const columns = ["forward", "compute", "communication", "their CPU", "in turn", "step", "its CPU", "least"]
  columns.push("/ larger", "/ sum", "/ least")
  console.log(["".padEnd(14), ...columns.map((name) => name.padStart(15))].join(""))
  for (const rate of rates.length > 0 ? rates : ["0", "400", "4000"])
    await compare(Number(mode), Number(rate), onAll)
}
