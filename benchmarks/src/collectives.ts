// All-reduce by our backends beside Open MPI and gloo, on local ranks, in one run: `node benchmarks/dist/collectives.js [ranks] [largest]`.
// Needs mpirun for the rows of MPI, and Debian's python3-torch for gloo's; what is not there is left out.

import { spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { launch } from "@lazuli/distributed/launch"
import { mx } from "lazuli"

const here = process.argv[1]
const peers = fileURLToPath(new URL("../peers/collectives.py", import.meta.url))
const [mode = "2", second = String(64 << 20)] = process.argv.slice(2)
const PYTHON = "/usr/bin/python3"

const sizesTo = (largest: number): number[] => {
  const sizes: number[] = []
  for (let bytes = 4; bytes <= largest; bytes *= 16) sizes.push(bytes)
  return sizes
}
const roundsOf = (bytes: number): number =>
  Math.max(8, Math.min(400, Math.floor((64 << 20) / Math.max(bytes, 1))))

/** The median microseconds of each size, as rank 0 sees it. */
function measure(largest: number): Record<string, number> {
  const group = mx.distributed.init(true)
  const times: Record<string, number> = {}
  for (const bytes of sizesTo(largest)) {
    const x = mx.ones([bytes / 4])
    mx.eval(x)
    const laps: number[] = []
    for (let i = 0; i < roundsOf(bytes) + 5; i++) {
      mx.eval(mx.distributed.barrier())
      const begin = performance.now()
      mx.eval(mx.distributed.allSum(x, { group }))
      if (i >= 5) laps.push((performance.now() - begin) * 1000)
    }
    times[bytes] = laps.sort((a, b) => a - b)[laps.length >> 1]
  }
  return times
}

async function compare(ranks: number, largest: number): Promise<void> {
  const rows: Record<string, Record<string, number>> = {}
  for (const backend of ["ring", "shm"]) {
    await launch({
      command: [here, "rank", String(largest)],
      ranks,
      backend,
      env: { LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "60" },
      print: (line, _, error) => {
        if (error) process.stderr.write(`${line}\n`)
        else rows[`lazuli ${backend}`] = JSON.parse(line) as Record<string, number>
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
  const take = (name: string, command: string, args: string[]): void => {
    const { stdout, status, stderr } = spawnSync(command, args, {
      encoding: "utf8",
      env: { ...process.env, LAZULI_BACKEND: "mpi", LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "60" },
    })
    const line = stdout.split("\n").find((each) => each.startsWith("{"))
    if (status === 0 && line) rows[name] = JSON.parse(line) as Record<string, number>
    else process.stderr.write(`${name}: left out\n${stderr.slice(0, 500)}\n`)
  }
  if (existsSync("/usr/bin/mpirun")) {
    take("lazuli mpi", "mpirun", [...mpi, process.execPath, here, "rank", String(largest)])
    take("Open MPI", "mpirun", [...mpi, PYTHON, peers, "mpi", String(largest)])
    take("Open MPI, TCP", "mpirun", [
      "--mca",
      "btl",
      "tcp,self",
      ...mpi,
      PYTHON,
      peers,
      "mpi",
      String(largest),
    ])
  }
  take("gloo", PYTHON, [peers, "gloo", String(largest), String(ranks)])
  console.log(`all-reduce of float32 on ${ranks} ranks of this host, median microseconds`)
  const sizes = sizesTo(largest)
  console.log(["bytes".padEnd(16), ...sizes.map((n) => String(n).padStart(10))].join(""))
  for (const [name, times] of Object.entries(rows))
    console.log(
      [name.padEnd(16), ...sizes.map((n) => (times[n] ?? Number.NaN).toFixed(1).padStart(10))].join(""),
    )
}

if (mode === "rank") {
  const times = measure(Number(second))
  if (mx.distributed.init().rank() === 0) console.log(JSON.stringify(times))
} else {
  await compare(Number(mode), Number(second))
}
