// `npm run host-step`: the demo's training step, with its default sizes, by the Metal kernels on the runtime that runs them on this
// machine's processors. The first step of a process that finds no compiled kernels is cold, that of one that finds them all is warm; the
// median of those that follow is `next`. Processor seconds are those of the process and of the compilers that it ran; both should be read
// on a machine that nothing else uses.
//
//   npm run host-step -- [--steps 5] [--bars cold,warm]     bars in seconds of wall time; 10,2 unless told otherwise

import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"

const { values } = parseArgs({
  options: {
    steps: { type: "string", default: "5" },
    bars: { type: "string", default: "10,2" },
    measure: { type: "boolean", default: false },
  },
})

interface Seconds {
  readonly wall: number
  readonly processor: number
}

/** Clock ticks of Linux's accounts. */
const TICKS = 100

/** Processor seconds of this process and of those that it waited for. */
function processorSeconds(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1].split(" ")
  // After the name: utime, stime, cutime and cstime are the fields 14 to 17 of the whole line.
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) / TICKS, 0)
}

/** The steps of one process. */
async function measure(): Promise<readonly Seconds[]> {
  const { mx } = await import("lazuli")
  await import("@lazuli/backend-metal")
  const { configOf, parseOptions } = await import("../examples/gpt/src/options")
  const { batchAt, readRepository } = await import("../examples/gpt/src/data")
  const { Trainer } = await import("../examples/gpt/src/train")
  const options = parseOptions([])
  if (options === null) throw new Error("the demo has no options")
  const config = configOf(options)
  const corpus = readRepository()
  mx.setDefaultDevice(mx.gpu)
  // The parameters are made, and their kernels compiled, before the first step.
  const trainer = new Trainer(config, 100)
  return Array.from({ length: Number(values.steps) }, (_, i) => {
    const [wall, processor] = [performance.now(), processorSeconds()]
    trainer.step(batchAt(corpus.train, config.batch, config.context + 1, config.seed, i))
    return { wall: (performance.now() - wall) / 1000, processor: processorSeconds() - processor }
  })
}

/** The same in a process of its own, which keeps compiled kernels in a folder. */
function inProcess(folder: string): readonly Seconds[] {
  const own = [join(import.meta.dirname, "run-source.mjs"), join(import.meta.dirname, "host-step.ts")]
  const output = execFileSync(process.execPath, [...own, "--measure", "--steps", values.steps], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, LAZULI_CACHE_DIR: folder },
  })
  return JSON.parse(output.trim().split("\n").at(-1) as string)
}

const show = (name: string, { wall, processor }: Seconds, bar?: number): void =>
  console.log(
    `${name}: ${wall.toFixed(2)} s, ${processor.toFixed(2)} s of processors${bar === undefined ? "" : ` (at most ${bar} s)`}`,
  )

if (values.measure) console.log(JSON.stringify(await measure()))
else {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-host-step-"))
  try {
    const bars = values.bars.split(",").map(Number)
    const [cold] = inProcess(folder)
    const [warm, ...others] = inProcess(folder)
    show("cold", cold, bars[0])
    show("warm", warm, bars[1])
    if (others.length > 0) {
      const median = (key: keyof Seconds): number =>
        others.map((each) => each[key]).sort((a, b) => a - b)[others.length >> 1]
      show("next", { wall: median("wall"), processor: median("processor") })
    }
    if (cold.wall > bars[0] || warm.wall > bars[1]) process.exitCode = 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
