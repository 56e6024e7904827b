// Stands in for one process of a job: FAKE_CASES has the kernels by case, and what befalls it; FAKE_LOG names a file of what ran.
import { appendFileSync, existsSync, readFileSync, writeFileSync, writeSync } from "node:fs"
import { dirname, join } from "node:path"

const file = process.env.LAZULI_GPU_CHECKS
const folder = dirname(file)
const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"))
const { mode, cases } = read("job.json")
const skipped = read("skipped.json")
const tool = process.env.FAKE_TOOL ?? "survey"
for (const [name, { kernels = [], at = "", is = "", libraries = false }] of Object.entries(
  JSON.parse(process.env.FAKE_CASES),
)) {
  if (skipped.includes(name) || (cases ? !cases.includes(name) : !new RegExp(mode.only ?? "").test(name)))
    continue
  // Without cuBLASLt, which is hidden from initcheck, other kernels serve.
  if (libraries && mode.without !== "") {
    if (!cases) continue
    kernels.length = 0
  }
  if (existsSync(join(folder, "stop"))) continue
  try {
    writeFileSync(join(folder, `${name.replaceAll(" ", "-")}.claim`), file, { flag: "wx" })
  } catch {
    continue
  }
  writeSync(1, `case ${name}\n`)
  appendFileSync(process.env.FAKE_LOG, `${tool} ${mode.name}: ${name}\n`)
  if (at === tool) {
    if (is === "hang") await new Promise((done) => setTimeout(done, 60_000))
    if (is === "crash") process.exit(7)
    if (is === "slow") await new Promise((done) => setTimeout(done, 1500))
    if (is === "report")
      writeSync(1, "========= Invalid __global__ read of size 4 bytes\n=========     at there+0x10\n")
    if (is === "race in a library")
      writeSync(1, "========= Error: Race reported between Read access at cudnn_generated_kernel+0x2f0\n")
    if (is === "skip") kernels.length = 0
    if (is === "wrong") appendFileSync(file, `${JSON.stringify({ problem: `${name}: it is wrong` })}\n`)
  }
  appendFileSync(file, `${JSON.stringify({ name, kernels, seconds: 0.1 })}\n`)
}
