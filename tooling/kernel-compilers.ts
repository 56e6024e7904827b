/**
 * Compilers that read the GPU kernels without a GPU: clang makes PTX of their translation to CUDA, with declarations of its own in place
 * of NVIDIA's headers, and reads them with real address spaces as C++ for OpenCL.
 */
import { spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { availableParallelism, tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { cudaSource, metalWords, strictFlags, strictSource } from "@lazuli/gpu-kernels"
import { cudaHeaderTexts, type KernelSource } from "./kernel-sources"

const checks = fileURLToPath(new URL("../packages/gpu-kernels/checks/", import.meta.url))

/** A source that a compiler refused, with what it said first. */
export interface Refusal {
  readonly source: KernelSource
  readonly file: string
  readonly message: string
}

/** One way of reading a source: what a compiler is given, and with which flags. */
export interface Reading {
  readonly name: string
  readonly extension: string
  /** Headers that the text includes, by name. */
  readonly headers: Readonly<Record<string, string>>
  text(source: KernelSource): string
  readonly flags: readonly string[]
}

/** To PTX for the compute capability of an H100. */
export const ptx: Reading = {
  name: "ptx",
  extension: "cu",
  headers: Object.fromEntries(cudaSource("").headers.map(({ name, text }) => [name, text])),
  text: ({ source, file }) => cudaSource(source, { file }).source,
  flags: [
    ...["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_90", "-nocudainc", "-nocudalib", "-S"],
    ...["-std=c++17", "-O1", "-w", "-fdeclspec", "-ffp-contract=off", "-include", join(checks, "cuda.h")],
  ],
}

/** The same of kernels that are CUDA's already. */
export const native: Reading = {
  ...ptx,
  name: "native",
  headers: cudaHeaderTexts(),
  text: ({ source }) => source,
}

/** With the address spaces and the types of Metal, as C++ for OpenCL. */
export const strict: Reading = {
  name: "strict",
  extension: "cl",
  headers: {},
  text: ({ source, file }) => strictSource({ text: source, file }),
  flags: strictFlags,
}

/** Reads sources with a compiler, several at once; gives those that it refuses, and tells of each when it was read. */
export async function read(
  compiler: string,
  reading: Reading,
  sources: readonly KernelSource[],
  tell: (source: KernelSource, refusal: string | null) => void = () => {},
): Promise<Refusal[]> {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-kernels-"))
  const refused: Refusal[] = []
  try {
    for (const [name, text] of Object.entries(reading.headers)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true })
      writeFileSync(join(folder, name), text)
    }
    let next = 0
    const work = async (): Promise<void> => {
      while (next < sources.length) {
        const i = next++
        const message = await compile(
          compiler,
          reading,
          sources[i],
          join(folder, `${i}.${reading.extension}`),
        )
        if (message !== null) refused.push({ source: sources[i], file: sources[i].file, message })
        tell(sources[i], message)
      }
    }
    await Promise.all(Array.from({ length: availableParallelism() }, work))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return refused.sort((a, b) => (a.file < b.file ? -1 : 1))
}

/** The objection of the compiler, or of the translation before it, to a source; null where it accepts it. */
async function compile(
  compiler: string,
  { text, flags }: Reading,
  source: KernelSource,
  path: string,
): Promise<string | null> {
  try {
    writeFileSync(path, text(source))
  } catch (error) {
    return (error as Error).message
  }
  const { status, output } = await run(compiler, [...flags, path, "-o", `${path}.out`])
  return status === 0 ? null : metalWords(/^.*\berror: .*$/m.exec(output)?.[0] ?? output.slice(0, 500))
}

function run(command: string, args: readonly string[]): Promise<{ status: number | null; output: string }> {
  return new Promise((done) => {
    const child = spawn(command, args, {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, LC_ALL: "C" },
    })
    let output = ""
    child.stderr.on("data", (chunk) => {
      output += chunk
    })
    child.on("error", (error) => done({ status: null, output: error.message }))
    child.on("close", (status) => done({ status, output }))
  })
}
