// `npm run kernels`: every source of a GPU kernel that MLX's recorded cases need goes through clang, as CUDA to PTX and, with real address
// spaces, as C++ for OpenCL.
//
//   npm run kernels -- [--families unary,reduce] [--only ptx,native,strict] [--instances]

import { parseArgs } from "node:util"
import { findClang } from "@lazuli/gpu-kernels"
import { native, ptx, read, strict } from "./kernel-compilers"
import { cudaSources, instances, kernelSources, packagedSources } from "./kernel-sources"
import "@lazuli/backend-cpu"

const { values } = parseArgs({
  options: {
    families: { type: "string" },
    only: { type: "string", default: "ptx,native,strict" },
    instances: { type: "boolean", default: false },
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
let refused = 0
for (const reading of [ptx, native, strict]) {
  if (!wanted.includes(reading.name)) continue
  const sources = reading === native ? cudaSources() : metal
  const start = performance.now()
  const refusals = await read(clang, reading, sources)
  const seconds = ((performance.now() - start) / 1000).toFixed(0)
  console.log(
    `${reading.name}: ${sources.length - refusals.length} of ${sources.length} sources (${seconds} s)`,
  )
  for (const { file, message } of refusals) console.log(`  ${file}: ${message}`)
  refused += refusals.length
}
process.exitCode = refused > 0 ? 1 : 0
