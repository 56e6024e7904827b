// Compiles sources with NVRTC, one after another, for tooling/ptx.ts: NVRTC serves one thread of a process at a time, so that several
// processes share the work. Arguments: the addon, and the folders to look for NVRTC in.

import { createRequire } from "node:module"

const [addon, ...candidates] = process.argv.slice(2)
const native = createRequire(import.meta.url)(addon)
native.openCompiler(candidates)
process.on("message", ([id, source, ...others]) => {
  const { code, log } = native.compile(source, ...others)
  process.send([id, code?.toString("latin1"), log])
})
process.on("disconnect", () => process.exit(0))
