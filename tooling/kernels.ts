// `npm run kernels`: every source of a GPU kernel that MLX's recorded cases need goes through clang, as CUDA to PTX and, with real address
// spaces, as C++ for OpenCL.
//
//   npm run kernels -- [--families unary,reduce] [--only strict,native,ptx] [--instances] [--named gather,unpack] [--known FILE]
//
// `--named` reads those alone whose file or source has one of the words; `--known` leaves out what FILE lists as read before, and adds to
// it what is accepted, so that a later run reads what changed, or what an interrupted run did not reach.

import { createHash } from "node:crypto"
import { appendFileSync, existsSync, readFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { findClang } from "@lazuli/gpu-kernels"
import { native, ptx, type Reading, read, strict } from "./kernel-compilers"
import { cudaSources, instances, type KernelSource, kernelSources, packagedSources } from "./kernel-sources"
import "@lazuli/backend-cpu"

const { values } = parseArgs({
  options: {
    families: { type: "string" },
    only: { type: "string", default: "strict,native,ptx" },
    instances: { type: "boolean", default: false },
    named: { type: "string" },
    known: { type: "string" },
  },
})
const clang = findClang()?.command
if (!clang) {
  console.error("no clang is installed: apt-get install clang-19, or name one in LAZULI_CLANG")
  process.exit(2)
}
const all = await kernelSources(values.families?.split(","))
const metal = [...packagedSources(), ...(values.instances ? instances(all) : all)]
const wanted = values.only.split(",")
const names = values.named?.split(",")
const known = new Set(
  values.known !== undefined && existsSync(values.known)
    ? readFileSync(values.known, "utf8").trim().split("\n")
    : [],
)

/** Equal for a source that a compiler was given in the same form. */
const digestOf = (reading: Reading, { source, file }: KernelSource): string =>
  `${reading.name} ${createHash("sha256").update(`${reading.flags}\0${file}\0${source}`).digest("hex")}`

const isWanted = (reading: Reading, source: KernelSource): boolean =>
  (names?.some((name) => source.file.includes(name) || source.source.includes(name)) ?? true) &&
  !known.has(digestOf(reading, source))

let refused = 0
for (const reading of [strict, native, ptx]) {
  if (!wanted.includes(reading.name)) continue
  const sources = (reading === native ? cudaSources() : metal).filter((each) => isWanted(reading, each))
  const start = performance.now()
  const refusals = await read(clang, reading, sources, (source, refusal) => {
    if (refusal !== null) console.log(`  ${source.file}: ${refusal}`)
    else if (values.known !== undefined) appendFileSync(values.known, `${digestOf(reading, source)}\n`)
  })
  const seconds = ((performance.now() - start) / 1000).toFixed(0)
  console.log(
    `${reading.name}: ${sources.length - refusals.length} of ${sources.length} sources (${seconds} s)`,
  )
  refused += refusals.length
}
process.exitCode = refused > 0 ? 1 : 0
