/**
 * From Metal source to machine code for one GPU: translation, NVRTC, and the folder in which the results are kept. With a kernel on
 * disk the compiler is not opened; where there is none, kernels that were compiled ahead serve (packed.ts).
 */
import { createHash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { DeviceError } from "@lazuli/core/engine"
import {
  type CudaParameter,
  type CudaSource,
  cudaHeaders,
  cudaSource,
  type DispatchForm,
  type FunctionConstants,
  isKept,
  kernelFolder,
  type LibraryOptions,
  pruneOnce,
  publish,
} from "@lazuli/gpu-kernels"
import { candidatesFor, isInstalled } from "./libraries"
import { type Compiled, type CudaNative, type GpuFacts, Source } from "./native"
import { nativeText } from "./native-source"
import { packedCode, packedKey } from "./packed"

/** The number of times that this process took each step. */
export const compilerStats = { compiled: 0, fromDisk: 0, packed: 0 }

/** A source and how it is compiled. */
export interface Request extends LibraryOptions {
  readonly source: string
  readonly constants: FunctionConstants
  readonly form?: DispatchForm
}

/** Machine code and its kernels. */
export interface Kernels {
  /** Equal for equal code. */
  readonly key: string
  readonly code: Uint8Array
  /** They wait for earlier work by themselves; see the prelude's `await_earlier`. */
  readonly waits: boolean
  readonly list: readonly {
    readonly name: string
    readonly symbol: string
    readonly maxThreads: number
    /** As the addon takes them. */
    readonly parameters: Int32Array
  }[]
}

const SOURCES: Record<CudaParameter["kind"], Source> = {
  pointer: Source.Pointer,
  value: Source.Value,
  grid: Source.Grid,
  threadgroup: Source.Threadgroup,
}
/** Bytes of arguments that come with a launch; the driver's limit is 4,096, with pointers and the grid. */
const MAX_INLINE = 3072
/** Threads for which kernels are compiled: the least of these that holds a threadgroup. */
const THREADS = [128, 256, 512, 1024]

/** Bytes of an argument in a launch, as the translation rounds them. */
const rounded = (bytes: number): number => 2 ** Math.max(4, Math.ceil(Math.log2(bytes)))

/** The arguments that come with the launch: all, but for the largest where that is too much. */
function inlineOf({ inline }: DispatchForm): (number | undefined)[] {
  const kept = inline.map((bytes) => (bytes === undefined ? undefined : rounded(bytes)))
  for (;;) {
    const sizes = kept.map((bytes) => bytes ?? 0)
    const total = sizes.reduce((sum, bytes) => sum + bytes, 0)
    if (total <= MAX_INLINE) return kept
    kept[sizes.indexOf(Math.max(...sizes))] = undefined
  }
}

/** The headers of this package's own kernels. */
const HEADERS = [
  "tensor-core.cuh",
  "warp-group.cuh",
  "packed-codes.cuh",
  "joined-matrices.cuh",
  "bulk-copies.cuh",
  "attention-keys.cuh",
  "clusters.cuh",
]
/** Source with this has instructions of one generation of GPUs alone. */
const ONE_GENERATION = `#include "${HEADERS[1]}"`

/** A source that is CUDA's already: its arguments are addresses, and bytes where they come with the launch. */
function nativeOf(source: string, name: string, { inline, threads }: DispatchForm): CudaSource {
  return {
    source,
    headers: [...cudaHeaders(), ...HEADERS.map((header) => ({ name: header, text: nativeText(header) }))],
    kernels: [
      {
        name,
        symbol: name,
        maxThreads: threads,
        parameters: inline.map((bytes, index) => ({
          kind: bytes === undefined ? "pointer" : "value",
          index,
        })),
      },
    ],
    options: ["-std=c++17", "-default-device", "--disable-warnings"],
  }
}

/** The translation of a request. @throws DeviceError for what Metal does not accept */
export function translationOf(request: Request): CudaSource {
  const { source, file, wording, mathMode, constants, form, isNative } = request
  if (isNative && form) return nativeOf(source, nameOf(request), form)
  return cudaSource(source, {
    file,
    wording,
    mathMode,
    constants,
    inline: form && inlineOf(form),
    whole: form?.whole,
    maxThreads: form && (THREADS.find((threads) => threads >= form.threads) ?? form.threads),
  })
}

/** The least compute capability of GPUs that launch a kernel before the end of the one before it. */
const AHEAD = 9
const waitsIn = ({ major }: GpuFacts, { source }: CudaSource): boolean =>
  major >= AHEAD && source.includes("await_earlier();")

const listOf = ({ kernels }: CudaSource): Kernels["list"] =>
  kernels.map(({ name, symbol, maxThreads, parameters }) => ({
    name,
    symbol,
    maxThreads,
    parameters: Int32Array.from(parameters.flatMap(({ kind, index }) => [SOURCES[kind], index ?? 0])),
  }))

let opened: { path: string; major: number; minor: number } | undefined

/** Opens NVRTC. @throws DeviceError that says where it was looked for */
export function openCompiler(native: CudaNative): void {
  if (opened) return
  const candidates = candidatesFor("nvrtc")
  try {
    opened = native.openCompiler(candidates)
  } catch (cause) {
    throw new DeviceError(
      "cuda",
      `compiling a kernel needs NVRTC, which cannot be loaded: ${(cause as Error).message}`,
      {
        cause,
        hint: "Install CUDA's toolkit or the Python package nvidia-cuda-nvrtc, or name the folder of libnvrtc in LAZULI_CUDA_PATH",
      },
    )
  }
}

/** True if NVRTC is there: a file of its name, or else what the loader says. */
export function hasCompiler(native: CudaNative): boolean {
  if (candidatesFor("nvrtc").length === 0) return false
  if (opened || isInstalled("nvrtc")) return true
  try {
    openCompiler(native)
    return true
  } catch {
    return false
  }
}

const nameOf = ({ file }: Request): string => (file ?? "kernel").replace(/\.metal$/, "")

const argumentsOf = (
  { major, minor }: GpuFacts,
  { source, headers, options }: CudaSource,
  name: string,
): Parameters<CudaNative["compile"]> => [
  source,
  `${name}.cu`,
  headers.map((header) => header.name),
  headers.map((header) => header.text),
  [`--gpu-architecture=sm_${major}${minor}${source.includes(ONE_GENERATION) ? "a" : ""}`, ...options],
]

/** The file that has, or will have, what these arguments make. */
function pathOf([source, , , headers, options]: Parameters<CudaNative["compile"]>): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([headers, options]))
    .update(source)
  return join(kernelFolder("cuda"), `${hash.digest("hex").slice(0, 40)}.cubin`)
}

/** Requests that serve for one, the first best: kernels that were compiled ahead are fewer than forms of dispatches. */
const servingFor = (request: Request): Request[] =>
  request.form?.whole ? [request, { ...request, form: { ...request.form, whole: false } }] : [request]

/** Kernels that were compiled ahead, and whose PTX the driver compiles; undefined where there is none. */
export function packedKernelsOf(facts: GpuFacts, request: Request): Kernels | undefined {
  for (const each of servingFor(request)) {
    const translated = translationOf(each)
    const code = packedCode(packedKey(translated), facts)
    // The instruction is not in code for older GPUs.
    if (code) return { key: packedKey(translated), code, list: listOf(translated), waits: false }
  }
  return undefined
}

/** True if a kernel is on disk or was compiled ahead. */
export function isProvided(facts: GpuFacts, request: Request): boolean {
  const path = pathOf(argumentsOf(facts, translationOf(request), nameOf(request)))
  return isKept(path) || packedKernelsOf(facts, request) !== undefined
}

/** Compiles a request, unless it is on disk. @throws DeviceError with what the compiler said */
export function kernelsOf(native: CudaNative, facts: GpuFacts, request: Request): Kernels {
  const translated = translationOf(request)
  const name = nameOf(request)
  const given = argumentsOf(facts, translated, name)
  const path = pathOf(given)
  if (isKept(path)) {
    compilerStats.fromDisk++
    return {
      key: path,
      code: readFileSync(path),
      list: listOf(translated),
      waits: waitsIn(facts, translated),
    }
  }
  if (!hasCompiler(native)) {
    const packed = packedKernelsOf(facts, request)
    if (packed) {
      compilerStats.packed++
      return packed
    }
  }
  openCompiler(native)
  const code = codeOf(native.compile(...given), request)
  compilerStats.compiled++
  publish(path, (beside) => writeFileSync(beside, code))
  pruneOnce(kernelFolder("cuda"))
  return { key: path, code, list: listOf(translated), waits: waitsIn(facts, translated) }
}

function codeOf({ code, log }: Compiled, { wording }: Request): Uint8Array {
  if (code) return code
  throw new DeviceError(
    wording?.name ?? "cuda",
    `the source of a kernel does not compile:\n${log.slice(0, 4000)}`,
  )
}
