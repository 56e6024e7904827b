/**
 * Makes the folder of kernels that were compiled ahead (packed.ts), from requests for them.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { brotliCompress, constants } from "node:zlib"
import type { CudaSource, KernelRequest } from "@lazuli/gpu-kernels"
import { type Request, translationOf } from "./compiler"
import type { CudaNative } from "./native"
import { type Capability, type PackIndex, packedKey } from "./packed"

/** Kernels that are compressed together: related ones share most of their text. */
const GROUP = 256
/** Of brotli: 9 makes a third more bytes, 11 takes three times as long for a fifteenth fewer. */
const QUALITY = 10
/** The version of PTX that drivers from CUDA 12.0 on read: nothing here needs a newer one, whatever the compiler writes above it. */
const PTX_VERSION = ".version 8.0"

/** The outcome of {@link packKernels}. */
export interface Packed {
  readonly kernels: number
  /** Compressed. */
  readonly bytes: number
  /** Kernels that the compiler refused, with its words. */
  readonly refused: readonly { readonly name: string; readonly log: string }[]
}

/** Options of {@link packKernels}. */
export interface PackOptions {
  readonly compile: Compile
  /** Compilations at a time. */
  readonly atOnce?: number
  readonly note?: (done: number, all: number) => void
}

interface Wanted {
  readonly translated: CudaSource
  readonly name: string
  readonly capability: Capability
}

/** A kernel as it is packed: for grids of any size. */
function packable({ source, options, constants: given = {}, form }: KernelRequest): Request {
  return { source, ...options, constants: given, form: form && { ...form, whole: false } }
}

/** Compiles with NVRTC, as the addon's `compileLater` does. */
export type Compile = CudaNative["compileLater"]

/** Comments, empty lines, and hints that older drivers do not know. */
const COMMENTS = /^\/\/.*\n|^\s*\.pragma "used_bytes_mask .*\n|^\s*\n/gm
/** The text without comments and without those constants of the prelude that no kernel reads, which are most of it. */
function trimmed(ptx: string): string {
  if (!/^\.version /m.test(ptx.slice(0, 1000))) return ptx
  const text = ptx.replace(COMMENTS, "").replace(/^\.version \d+\.\d+/m, PTX_VERSION)
  const globals = [...text.matchAll(/^\.(?:visible )?global .*?(\w+)(?:\[\d*\])?(?: = .*)?;\n/gm)]
  let kept = text
  for (const [line, name] of globals) {
    const first = text.indexOf(name)
    if (text.indexOf(name, first + name.length) < 0) kept = kept.replace(line, "")
  }
  return kept
}

/**
 * Compiles kernels to PTX and writes them to a folder, which is made anew. `compile` is given NVRTC's arguments; `note` is told how far
 * it has come.
 */
export async function packKernels(
  requests: Iterable<KernelRequest>,
  folder: string,
  { compile, atOnce = 1, note = () => {} }: PackOptions,
): Promise<Packed> {
  const wanted = new Map<string, Wanted>()
  for (const each of requests) {
    const request = packable(each)
    const translated = translationOf(request)
    // The kernels in CUDA's own language are for tensor cores of bfloat16 too.
    wanted.set(packedKey(translated), { translated, name: each.name, capability: request.isNative ? 80 : 75 })
  }
  const order = [...wanted].sort(
    ([, a], [, b]) => a.capability - b.capability || (a.name < b.name ? -1 : Number(a.name > b.name)),
  )
  const made = new Map<string, string>()
  const refused: { name: string; log: string }[] = []
  let next = 0
  const work = async (): Promise<void> => {
    for (let i = next++; i < order.length; i = next++) {
      const [key, { translated, name, capability }] = order[i]
      const { source, headers, options } = translated
      const { code, log } = await compile(
        source,
        `${name}.cu`,
        headers.map((header) => header.name),
        headers.map((header) => header.text),
        [`--gpu-architecture=compute_${capability}`, ...options],
      )
      // The compiler's text ends with a zero.
      if (code) made.set(key, trimmed(Buffer.from(code).toString("latin1").replace(/\0$/, "")))
      else refused.push({ name, log })
      note(made.size + refused.length, order.length)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  const entries = order.flatMap(([key, { capability }]) => {
    const ptx = made.get(key)
    return ptx === undefined ? [] : [{ key, ptx, capability }]
  })
  return { ...(await writePack(entries, folder)), refused }
}

const compress = promisify(brotliCompress)

async function writePack(
  entries: readonly { readonly key: string; readonly ptx: string; readonly capability: Capability }[],
  folder: string,
): Promise<{ kernels: number; bytes: number }> {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const kernels: Record<string, number> = {}
  const groups: Capability[] = []
  let bytes = 0
  const write = (name: string, content: string | Uint8Array): void => {
    writeFileSync(join(folder, name), content)
    bytes += content.length
  }
  const work: Promise<void>[] = []
  for (let from = 0; from < entries.length; ) {
    const { capability } = entries[from]
    const group = entries.slice(from, from + GROUP).filter((each) => each.capability === capability)
    const text = JSON.stringify(Object.fromEntries(group.map(({ key, ptx }) => [key, ptx])))
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: QUALITY,
      [constants.BROTLI_PARAM_LGWIN]: 24,
      [constants.BROTLI_PARAM_SIZE_HINT]: text.length,
    }
    const name = `${groups.length}.br`
    // On the threads of Node's pool.
    work.push(compress(text, { params }).then((packed) => write(name, packed)))
    for (const { key } of group) kernels[key] = groups.length
    groups.push(capability)
    from += group.length
  }
  await Promise.all(work)
  const index: PackIndex = { kernels, groups }
  write("index.json", JSON.stringify(index))
  return { kernels: entries.length, bytes }
}
