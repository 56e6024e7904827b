// `npm run ptx`: compiles the GPU kernels ahead to PTX, for machines that have NVIDIA's driver and no NVRTC:
// packages/backend-cuda/dist/ptx, which is part of the package and not of the repository. Needs NVRTC (Python's package nvidia-cuda-nvrtc
// has it), and no GPU. What was compiled before is kept in `ptx` of the folder of compiled kernels (LAZULI_CACHE_DIR).
//
//   npm run ptx -- [--families unary,reduce] [--small] [--out FOLDER] [--jobs N] [--list]

import { type ChildProcess, fork } from "node:child_process"
import { createHash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { availableParallelism } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { type Compile, candidatesFor, packKernels } from "@lazuli/backend-cuda"
import { isKept, kernelFolder, publish } from "@lazuli/gpu-kernels"
import { requestsOfPrograms } from "./ptx-programs"
import "@lazuli/backend-cpu"

/** Bytes that the packed package may have. */
const MOST_BYTES = 7_000_000

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url))
const addon = path("../packages/backend-cuda/build/lazuli_cuda.node")

/** Compiles once for all runs of this version of the compiler. */
function keeping(compile: Compile): Compile {
  const { major, minor } = createRequire(import.meta.url)(addon).openCompiler(candidatesFor("nvrtc"))
  const folder = kernelFolder("ptx")
  return async (...args) => {
    const hash = createHash("sha256").update(JSON.stringify([major, minor, args]))
    const at = join(folder, `${hash.digest("hex").slice(0, 40)}.ptx`)
    if (isKept(at)) return { code: readFileSync(at), log: "" }
    const made = await compile(...args)
    const { code } = made
    if (code) publish(at, (beside) => writeFileSync(beside, code))
    return made
  }
}

/** Processes that compile. */
function compilers(count: number): { compile: Compile; end(): void } {
  const answers = new Map<
    number,
    Parameters<ConstructorParameters<typeof Promise<Awaited<ReturnType<Compile>>>>[0]>
  >()
  let asked = 0
  const idle: ChildProcess[] = []
  const all = Array.from({ length: count }, () => {
    const child = fork(path("nvrtc-worker.mjs"), [addon, ...candidatesFor("nvrtc")])
    child.on("message", ([id, code, log]: [number, string | null, string]) => {
      idle.push(child)
      answers.get(id)?.[0]({ code: code === null ? null : Buffer.from(code, "latin1"), log })
      answers.delete(id)
    })
    child.on("exit", (status) => {
      if (status !== 0) for (const [, [, fail]] of answers) fail(new Error("a compiler ended"))
    })
    idle.push(child)
    return child
  })
  return {
    compile: (...args) =>
      new Promise((done, fail) => {
        const id = ++asked
        answers.set(id, [done, fail])
        // As many are asked at once as there are.
        idle.pop()?.send([id, ...args])
      }),
    end: () => {
      for (const child of all) child.disconnect()
    },
  }
}

const { values } = parseArgs({
  options: {
    families: { type: "string" },
    small: { type: "boolean", default: false },
    out: { type: "string", default: "packages/backend-cuda/dist/ptx" },
    jobs: { type: "string", default: String(availableParallelism()) },
    list: { type: "boolean", default: false },
  },
})
const requests = requestsOfPrograms(values.families?.split(","), !values.small)
console.log(`${requests.length} kernels and forms are asked for`)
if (!values.list) {
  const begin = performance.now()
  let said = 0
  const jobs = Number(values.jobs)
  const { compile, end } = compilers(jobs)
  const note = (done: number, all: number): void => {
    if (performance.now() - said < 20_000) return
    said = performance.now()
    console.log(`${done} of ${all}`)
  }
  const options = { compile: keeping(compile), atOnce: jobs, note }
  const { kernels, bytes, refused } = await packKernels(requests, values.out, options)
  end()
  const seconds = ((performance.now() - begin) / 1000).toFixed(0)
  console.log(`${kernels} kernels in ${(bytes / 1e6).toFixed(2)} MB at ${values.out} (${seconds} s)`)
  for (const { name, log } of refused) console.error(`${name}: ${log.slice(0, 500)}`)
  if (refused.length > 0 || bytes > MOST_BYTES) process.exitCode = 1
}
