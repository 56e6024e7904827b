// All-reduce by our backends beside Open MPI and gloo, on local ranks, in one run:
// `node benchmarks/dist/collectives.js [ranks] [largest, or sizes a,b,…] [median|least] [ring,shm,mpi,openmpi,tcp,gloo] [rounds]`. Each
// operation comes after a barrier, or in a row of several without. Of several rounds, each of which starts every program again, the median
// one counts. Further contestants: `part`, a group that `split` gave, by `mpi`; and `between`, `mpi` as it is between hosts, by TCP, held
// against `tcp`. Needs mpirun for the rows of MPI, and Debian's python3-torch for gloo's; what is not there is left out.

import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { compile } from "@lazuli/compile"
import type { Communicator } from "@lazuli/distributed"
import { launch } from "@lazuli/distributed/launch"
import { mx } from "lazuli"
import { median } from "./median"

const here = process.argv[1]
const peers = fileURLToPath(new URL("../peers/collectives.py", import.meta.url))
const [
  mode = "2",
  second = String(256 << 20),
  statistic = "median",
  chosen = "ring,shm,mpi,openmpi,tcp,gloo",
  rounds = "1",
] = process.argv.slice(2)
/** Open MPI's options for TCP alone. */
const TCP = ["--mca", "btl", "tcp,self"]
const PYTHON = process.env.PYTHON ?? "/usr/bin/python3"

/** Microseconds by size; the peers count alike. */
type Times = Record<string, { median: number; least: number }>
/** By the way in which operations are called. */
type Rows = Record<string, Times>

/** Those named, or a geometric row up to the only one that is named. */
const sizesOf = (text: string): number[] => {
  const named = text.split(",").map(Number)
  if (named.length > 1) return named
  const sizes: number[] = []
  for (let bytes = 4; bytes < named[0]; bytes *= 16) sizes.push(bytes)
  return [...sizes, named[0]]
}
const roundsOf = (bytes: number): number => Math.max(6, Math.min(400, Math.floor((64 << 20) / bytes)))
/** Rounds before them, after which even a program's own code is compiled: with more ranks than processors that takes thousands. */
const warmOf = (bytes: number): number => Math.min(3000, Math.floor((4 << 20) / bytes))
/** Operations in a row. */
const rowOf = (bytes: number): number => Math.max(2, Math.min(50, Math.floor((16 << 20) / bytes)))

function timesOf(
  bytes: number,
  [rounds, operations]: [number, number],
  begin: () => void,
  run: () => void,
): Times[string] {
  const laps: number[] = []
  const warm = Math.max(3, Math.floor(warmOf(bytes) / operations))
  for (let i = 0; i < rounds + warm; i++) {
    begin()
    const start = performance.now()
    run()
    if (i >= warm) laps.push(((performance.now() - start) * 1000) / operations)
  }
  return { median: median(laps), least: Math.min(...laps) }
}

/** As this rank sees it: the backend's own call, an `eval` for each, and several in a compiled function. */
function measure(sizes: number[]): Rows {
  const all = mx.distributed.init(true)
  const group = mode === "part" ? all.split(0, all.size() - all.rank()) : all
  const { communicator } = group as unknown as { communicator: Communicator }
  const rows: Rows = { call: {}, eval: {}, "in a row": {} }
  // Made once: to make one takes longer than the call.
  const empty = new Uint8Array(0)
  const arrival: Parameters<Communicator["run"]>[0] = {
    kind: "barrier",
    name: "barrier",
    reduction: "sum",
    dtype: mx.float32,
    input: empty,
    output: empty,
    count: 0,
    peer: 0,
    shape: 0,
    structure: 0,
    derivative: 0,
  }
  for (const bytes of sizes) {
    const [rounds, count] = [roundsOf(bytes), bytes / 4]
    // Filled, so that every page is there.
    const [input, output] = [0, 0].map((zero) => new Uint8Array(bytes).fill(zero))
    // By the backend itself, which ranks leave as closely together as others' do.
    const barrier = (): void => communicator.run(arrival)
    const work = {
      ...arrival,
      kind: "allReduce",
      name: "allSum",
      input,
      output,
      count,
      shape: count,
    } as const
    const call = (): void => communicator.run(work)
    rows.call[bytes] = timesOf(bytes, [rounds, 1], barrier, call)
    // Without that it would be one zero which is read many times.
    const x = mx.contiguous(mx.zeros([count]))
    mx.eval(x)
    // Its memory is for the next one, as others' results are in the same place every time.
    rows.eval[bytes] = timesOf(bytes, [rounds, 1], barrier, () => {
      const y = mx.distributed.allSum(x, { group })
      mx.eval(y)
      y.dispose()
    })
    const operations = rowOf(bytes)
    const row = compile((a: mx.Array): mx.Array => {
      let y = a
      for (let i = 0; i < operations; i++) y = mx.distributed.allSum(y, { group })
      return y
    })
    rows["in a row"][bytes] = timesOf(bytes, [Math.max(4, rounds >> 3), operations], barrier, () => {
      const y = row(x)
      mx.eval(y)
      y.dispose()
    })
    x.dispose()
  }
  return rows
}

/** One program after the other. */
async function run(ranks: number, contestants: string[]): Promise<Rows> {
  const rows: Rows = {}
  const keep = (name: string, line: string): void => {
    for (const [way, times] of Object.entries(JSON.parse(line) as Rows)) rows[`${name}, ${way}`] = times
  }
  for (const backend of ["ring", "shm"]) {
    if (!contestants.includes(backend)) continue
    await launch({
      command: [here, "rank", second],
      ranks,
      backend,
      env: { LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "60" },
      print: (line, _, error) => {
        if (error) process.stderr.write(`${line}\n`)
        else keep(backend, line)
      },
    })
  }
  const mpi = [
    "--allow-run-as-root",
    "--oversubscribe",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "-n",
    String(ranks),
  ]
  const peer = [...mpi, PYTHON, peers, "mpi", second]
  const others: Record<string, [name: string, command: string, args: string[]]> = {
    mpi: ["mpi", "mpirun", [...mpi, process.execPath, here, "rank", second]],
    part: ["mpi part", "mpirun", [...mpi, process.execPath, here, "part", second]],
    between: [
      "mpi TCP",
      "mpirun",
      [...TCP, "-x", "LAZULI_MPI=mixed", ...mpi, process.execPath, here, "rank", second],
    ],
    openmpi: ["Open MPI", "mpirun", peer],
    tcp: ["Open MPI TCP", "mpirun", [...TCP, ...peer]],
    gloo: ["gloo", PYTHON, [peers, "gloo", second, String(ranks)]],
  }
  for (const [key, [name, command, args]] of Object.entries(others)) {
    if (!contestants.includes(key)) continue
    const { stdout, status, stderr } = spawnSync(command, args, {
      encoding: "utf8",
      env: { ...process.env, LAZULI_BACKEND: "mpi", LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "60" },
    })
    const line = stdout?.split("\n").find((each) => each.startsWith("{"))
    if (status === 0 && line) keep(name, line)
    else process.stderr.write(`${name}: left out\n${stderr?.slice(0, 500) ?? ""}\n`)
  }
  return rows
}

async function compare(ranks: number, sizes: number[], contestants: string[]): Promise<void> {
  const all: Rows[] = []
  for (let i = 0; i < Number(rounds); i++) all.push(await run(ranks, contestants))
  const timeOf = (name: string, bytes: number): number => {
    return median(all.map((rows) => rows[name]?.[bytes]?.[statistic as "median" | "least"] ?? Number.NaN))
  }
  const print = (name: string, numbers: number[], digits = 1): void =>
    console.log([name.padEnd(24), ...numbers.map((n) => n.toFixed(digits).padStart(11))].join(""))
  console.log(`all-reduce of float32 on ${ranks} ranks of this host, ${statistic} in microseconds`)
  print("bytes", sizes, 0)
  for (const name of Object.keys(all[0]))
    print(
      name,
      sizes.map((bytes) => timeOf(name, bytes)),
    )
  console.log("times the better of the peers that it is held against")
  const against = {
    ring: ["gloo", "Open MPI TCP"],
    shm: ["gloo", "Open MPI"],
    mpi: ["Open MPI"],
    "mpi part": ["Open MPI"],
    "mpi TCP": ["Open MPI TCP"],
  }
  for (const way of ["call", "in a row"])
    for (const [name, its] of Object.entries(against)) {
      const measured = its.map((each) => `${each}, ${way}`).filter((each) => all[0][each])
      if (!all[0][`${name}, ${way}`] || measured.length === 0) continue
      const best = (bytes: number): number => Math.min(...measured.map((each) => timeOf(each, bytes)))
      print(
        `${name}, ${way}`,
        sizes.map((bytes) => timeOf(`${name}, ${way}`, bytes) / best(bytes)),
        2,
      )
    }
}

if (mode === "rank" || mode === "part") {
  const times = measure(sizesOf(second))
  if (mx.distributed.init().rank() === 0) console.log(JSON.stringify(times))
} else {
  await compare(Number(mode), sizesOf(second), chosen.split(","))
}
