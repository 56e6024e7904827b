/**
 * Users' sources held to Metal's address spaces, which a compiler for the CPU does not have: clang reads them where it is installed.
 * What it said is remembered on disk.
 */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { flagFrom } from "@lazuli/core/engine"
import {
  type Clang,
  findClang,
  isKept,
  kernelFolder,
  type MetalSource,
  publish,
  refusal,
  strictFlags,
  strictHeader,
  strictProblems,
  strictSource,
} from "@lazuli/gpu-kernels"

let clang: { found: Clang | null; header: string } | undefined

/** Null where there is no clang, or `LAZULI_METAL_STRICT=0` asks for none. */
function reader(): { found: Clang; header: string } | null {
  if (flagFrom("LAZULI_METAL_STRICT") === false) return null
  clang ??= { found: findClang(), header: readFileSync(strictHeader, "utf8") }
  const { found, header } = clang
  return found && { found, header }
}

/** @throws DeviceError where memory of one address space is taken for that of another, or types do not fit */
export function checkAddressSpaces(source: MetalSource): void {
  const used = reader()
  if (!used) return
  const text = strictSource(source)
  const hash = createHash("sha256")
  for (const part of [used.found.version, used.header, text]) hash.update(part).update("\0")
  const path = join(kernelFolder("metal-host"), `${hash.digest("hex").slice(0, 40)}.strict`)
  let output = ""
  if (isKept(path)) output = readFileSync(path, "utf8")
  else {
    const { status, stderr } = spawnSync(used.found.command, [...strictFlags, "-"], {
      env: { ...process.env, LC_ALL: "C" },
      input: text,
      encoding: "utf8",
      maxBuffer: 1 << 28,
    })
    output = status === 0 ? "" : (stderr ?? "")
    publish(path, (beside) => writeFileSync(beside, output))
  }
  const problems = strictProblems(output, source.file)
  if (problems.length > 0) throw refusal(source, problems)
}
