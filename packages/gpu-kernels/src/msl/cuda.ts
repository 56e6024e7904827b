/**
 * Turns Metal source into CUDA C++ for NVRTC: a kernel's function stays a function, and a `__global__` one around it takes what the
 * launch gives, finds the thread's coordinates and calls it. The text includes `lazuli_cuda.h`, Metal's library for CUDA.
 */
import type { FunctionConstants, MathMode } from "../dispatch"
import { cudaPrelude } from "../prelude"
import { matchBranches } from "./conditional"
import { dispatchAttributes } from "./lint"
import { Rewriter } from "./rewrite"
import { expandedText, type MetalSource, scan } from "./scanner"
import type { FunctionDefinition, Parameter, Statement, Structure } from "./structure"
import type { Words } from "./tokens"

/** Options of a translation. */
export interface CudaOptions {
  /** Names the source in messages. */
  readonly file?: string
  readonly wording?: MetalSource["wording"]
  /** The values of the function constants. */
  readonly constants?: FunctionConstants
  /**
   * By buffer index, the sizes of the arguments that come with the launch instead of in memory. Without it references to constants do,
   * and nothing else.
   */
  readonly inline?: readonly (number | undefined)[]
  /**
   * The grid is a multiple of the threadgroup along each axis, a threadgroup has whole simdgroups, and all threads of a simdgroup
   * reach its exchanges.
   */
  readonly whole?: boolean
  /** The most threads of a threadgroup that the kernel will run with; 1024 where it is not given. */
  readonly maxThreads?: number
  /** "safe" where it is not given. */
  readonly mathMode?: MathMode
}

/** One parameter of a CUDA kernel. */
export interface CudaParameter {
  /**
   * `pointer`: an address. `value`: bytes, as many as `size` says or else as the argument has, filled up to 16. `threadgroup`: where,
   * in the block's dynamic memory, that of the index begins, as 32 bits. `grid`: seven words of 32 bits: threads and groups of the
   * grid along three axes, and 1 where blocks are numbered through, along x and then y.
   */
  readonly kind: "pointer" | "value" | "threadgroup" | "grid"
  /** Of the buffer or the threadgroup memory. */
  readonly index?: number
  /** Bytes, where they are known. */
  readonly size?: number
}

/** A kernel of a translated source. */
export interface CudaKernel {
  /** As the Metal source names it. */
  readonly name: string
  /** As the CUDA source names it, without mangling. */
  readonly symbol: string
  readonly parameters: readonly CudaParameter[]
  /** The most threads of a block that it may run with. */
  readonly maxThreads: number
}

/** A source for NVRTC. */
export interface CudaSource {
  readonly source: string
  readonly headers: readonly { readonly name: string; readonly text: string }[]
  readonly kernels: readonly CudaKernel[]
  /** The options of NVRTC besides the architecture. */
  readonly options: readonly string[]
}

const MAX_THREADS = 1024
const HEADER = "lazuli_cuda.h"

/** Translates a source for NVRTC. @throws DeviceError that lists what Metal does not accept, by line */
export function cudaSource(text: string, options: CudaOptions = {}): CudaSource {
  const source: MetalSource = { text, file: options.file ?? "kernel.metal", wording: options.wording }
  const { tokens, words, structure } = scan(source, expandedText(source))
  const cuda = new CudaRewriter(words, options)
  cuda.rewrite(structure)
  return {
    source: cuda.finish(tokens.map((t) => t.text).join(""), source.file),
    headers: [{ name: HEADER, text: cudaPrelude() }],
    kernels: cuda.kernels,
    options: [
      "-std=c++17",
      "-default-device",
      "--disable-warnings",
      ...mathOptions[options.mathMode ?? "safe"],
    ],
  }
}

const mathOptions: Record<MathMode, readonly string[]> = {
  safe: ["--fmad=false"],
  relaxed: ["--fmad=true"],
  fast: ["--use_fast_math"],
}

/** `uint i = 0; i < 4; i += 2` and the like, with numbers: where it begins, where it ends, by how much it steps. */
const LOOP = /^\w+ \w+ = (\d+)u?; \w+ < (\d+)u?; (?:\w+\s?\+\+|\+\+\s?\w+|\w+ \+= (\d+)u?)$/
const MAX_UNROLLED = 16

/** Attributes that depend on how the threads of a group are numbered. */
const NUMBERED = /^(thread_index_in_threadgroup|.*simdgroup.*|.*quadgroup.*)$/

const coordinates: Record<string, (type: string) => string> = {
  thread_position_in_grid: (t) =>
    `lz::three<${t}>(lz_t.group[0] * ::blockDim.x + lz_t.at[0], lz_t.group[1] * ::blockDim.y + lz_t.at[1], lz_t.group[2] * ::blockDim.z + lz_t.at[2])`,
  thread_position_in_threadgroup: (t) => `lz::three<${t}>(lz_t.at)`,
  thread_index_in_threadgroup: (t) => `lz::one<${t}>(lz_t.index)`,
  threadgroup_position_in_grid: (t) => `lz::three<${t}>(lz_t.group)`,
  threadgroups_per_grid: (t) => `lz::three<${t}>(lz_grid.groups)`,
  threads_per_grid: (t) => `lz::three<${t}>(lz_grid.threads)`,
  grid_size: (t) => `lz::three<${t}>(lz_grid.threads)`,
  grid_origin: (t) => `lz::three<${t}>(0, 0, 0)`,
  threads_per_threadgroup: (t) => `lz::three<${t}>(lz_t.size)`,
  dispatch_threads_per_threadgroup: (t) => `lz::three<${t}>(::blockDim.x, ::blockDim.y, ::blockDim.z)`,
  thread_index_in_simdgroup: (t) => `lz::one<${t}>(lz_t.index % 32)`,
  simdgroup_index_in_threadgroup: (t) => `lz::one<${t}>(lz_t.index / 32)`,
  simdgroups_per_threadgroup: (t) => `lz::one<${t}>(lz::divide_up(lz::volume(lz_t.size), 32))`,
  dispatch_simdgroups_per_threadgroup: (t) =>
    `lz::one<${t}>(lz::divide_up(::blockDim.x * ::blockDim.y * ::blockDim.z, 32))`,
  threads_per_simdgroup: (t) => `lz::one<${t}>(32)`,
  thread_execution_width: (t) => `lz::one<${t}>(32)`,
  thread_index_in_quadgroup: (t) => `lz::one<${t}>(lz_t.index % 4)`,
  quadgroup_index_in_threadgroup: (t) => `lz::one<${t}>(lz_t.index / 4)`,
  quadgroups_per_threadgroup: (t) => `lz::one<${t}>(lz::divide_up(lz::volume(lz_t.size), 4))`,
  dispatch_quadgroups_per_threadgroup: (t) =>
    `lz::one<${t}>(lz::divide_up(::blockDim.x * ::blockDim.y * ::blockDim.z, 4))`,
}

/** A parameter of a Metal kernel on its way to CUDA: what is declared, what is passed on. */
interface Passed {
  readonly parameter?: CudaParameter
  readonly declared?: string
  readonly argument: string
}

class CudaRewriter extends Rewriter {
  readonly kernels: CudaKernel[] = []
  private readonly pending: { name: string; f: FunctionDefinition; expression: string; spaces: boolean[] }[] =
    []

  constructor(
    words: Words,
    private readonly options: CudaOptions,
  ) {
    super(words)
  }

  protected register(name: string, f: FunctionDefinition, expression: string): void {
    this.pending.push({
      name,
      f,
      expression,
      spaces: f.parameters.map((p) => isConstantReference(this.words, p)),
    })
  }

  protected variable(type: string, from: number, to: number): string {
    return `__shared__ ${type} ${this.words.slice(from, to)};`
  }

  protected override kernelHead(f: FunctionDefinition): void {
    for (let i = f.begin; i < f.open; i++)
      if (this.words.text(i) === "void") {
        this.words.at(i).text = "__forceinline__ void"
        return
      }
  }

  override rewrite(structure: Structure): void {
    this.unrollLoops()
    super.rewrite(structure)
    // This package's own kernels say what they mean.
    if (this.options.wording && this.hasNarrow) matchBranches(this.words)
  }

  private get hasNarrow(): boolean {
    const { words } = this
    for (let i = 0; i < words.length; i++) if (/^b?(half|float16)/.test(words.text(i))) return true
    return false
  }

  /** Has loops of a few turns, which the source tells, unrolled. */
  private unrollLoops(): void {
    const { words } = this
    for (let i = 0; i < words.length; i++) {
      if (words.text(i) !== "for" || words.text(i + 1) !== "(") continue
      const head = LOOP.exec(words.slice(i + 2, words.closing(i + 1)))
      if (!head) continue
      const [, begin, end, step] = head
      if ((Number(end) - Number(begin)) / Number(step ?? 1) <= MAX_UNROLLED)
        words.at(i).text = "LZ_UNROLL for"
    }
  }

  /** Variables outside functions are in the memory for constants; integers of them are still constant expressions. */
  protected override globalConstant(s: Statement): void {
    const { words } = this
    let from = s.begin
    let found = false
    while (/^(constant|const|static|constexpr)$/.test(words.text(from))) {
      found ||= words.text(from) === "constant"
      from++
    }
    if (!found) return
    words.erase(s.begin, from)
    words.at(s.begin).text = "static __constant__ const "
  }

  finish(code: string, file: string): string {
    const entries = this.pending.map((k) => this.entry(k))
    const constants = this.constants.map(({ index }) => {
      const value = this.options.constants?.[index]
      return `#define LZ_CONSTANT_${index} ${literalOf(value ?? 0)}\n#define LZ_DEFINED_${index} ${value !== undefined}\n`
    })
    // The first for exchanges among all threads of a warp, the second for matrices on tensor cores.
    const defined = `${this.options.whole ? "#define LZ_WHOLE 1\n" : ""}${/\bsimdgroup_\w*(matrix|8x8)/.test(code) ? "#define LZ_LANES 1\n" : ""}`
    return `${defined}#include "${HEADER}"
${constants.join("")}namespace lzm {
#line 1 ${JSON.stringify(file)}
${code}
#line 1 "kernels"
${entries.join("")}}
`
  }

  private entry({
    name,
    f,
    expression,
    spaces,
  }: {
    name: string
    f: FunctionDefinition
    expression: string
    spaces: boolean[]
  }): string {
    const type = `decltype(&::lzm::${expression})`
    const taken = new Set(f.parameters.flatMap((p) => attributeOf(p, "buffer").map(Number)))
    const shared = new Set(f.parameters.flatMap((p) => attributeOf(p, "threadgroup").map(Number)))
    const passed = f.parameters.map((p, i) =>
      this.pass(p, `lz::Parameter<${i}, ${type}>`, i, spaces[i], taken, shared.size > 1),
    )
    const packed = this.waits || f.parameters.some((p) => p.attributes.some((a) => NUMBERED.test(a.name)))
    const declared = [...passed.flatMap((p) => p.declared ?? []), "const __grid_constant__ lz::Grid lz_grid"]
    const limit = Number(f.attributes.find((a) => a.name === "max_total_threads_per_threadgroup")?.argument)
    const maxThreads = Math.min(limit || MAX_THREADS, this.options.maxThreads ?? MAX_THREADS)
    const symbol = `lz_${name.replace(/\W/g, "_")}`
    const parameters: CudaParameter[] = [
      ...passed.flatMap((p) => p.parameter ?? []),
      { kind: "grid", size: 28 },
    ]
    this.kernels.push({ name, symbol, parameters, maxThreads })
    const arena = shared.size > 0 ? "  extern __shared__ uint4 lz_arena[];\n" : ""
    return `extern "C" __global__ void __launch_bounds__(${maxThreads}) ${symbol}(
    ${declared.join(",\n    ")}) {
  lz::await_earlier();
  lz::Thread lz_t;
  if (!lz::enter<${packed}>(lz_grid, lz_t)) return;
${arena}  ::lzm::${expression}(${passed.map((p) => p.argument).join(", ")});
}
`
  }

  private pass(
    p: Parameter,
    type: string,
    position: number,
    isConstant: boolean,
    taken: Set<number>,
    severalArenas: boolean,
  ): Passed {
    const attribute = p.attributes.find((a) => dispatchAttributes.has(a.name))
    if (attribute) return { argument: coordinates[attribute.name](type) }
    const [threadgroup] = attributeOf(p, "threadgroup")
    const target = `lz::Target<${type}>`
    if (threadgroup !== undefined) {
      const begin = severalArenas ? ` + lz_a${position}` : ""
      return {
        parameter: severalArenas ? { kind: "threadgroup", index: Number(threadgroup), size: 4 } : undefined,
        declared: severalArenas ? `const uint lz_a${position}` : undefined,
        argument: `lz::Argument<${type}>::at(reinterpret_cast<${target}*>(reinterpret_cast<char*>(lz_arena)${begin}))`,
      }
    }
    const index = Number(attributeOf(p, "buffer")[0] ?? firstFree(taken))
    taken.add(index)
    const { inline } = this.options
    const bytes = inline?.[index]
    const name = `lz_a${position}`
    if (isConstant && (inline === undefined || bytes !== undefined))
      return {
        parameter: { kind: "value", index },
        declared: `const __grid_constant__ lz::plain<${target}> ${name}`,
        argument: name,
      }
    if (bytes !== undefined) {
      const size = roundUp(bytes)
      return {
        parameter: { kind: "value", index, size },
        declared: `const __grid_constant__ lz::Bytes<${size}> ${name}`,
        argument: `lz::Argument<${type}>::at(reinterpret_cast<${target}*>(const_cast<char*>(${name}.data)))`,
      }
    }
    return {
      parameter: { kind: "pointer", index, size: 8 },
      declared: `${target}* ${name}`,
      argument: `lz::Argument<${type}>::at(${name})`,
    }
  }
}

const attributeOf = (p: Parameter, name: string): string[] =>
  p.attributes.filter((a) => a.name === name).map((a) => a.argument)

function firstFree(taken: ReadonlySet<number>): number {
  let index = 0
  while (taken.has(index)) index++
  return index
}

/** To a power of two, so that a few shapes of different ranks share one kernel. */
function roundUp(bytes: number): number {
  let size = 16
  while (size < bytes) size *= 2
  return size
}

/** `constant T& x` */
function isConstantReference(words: Words, p: Parameter): boolean {
  let constant = false
  for (let i = p.begin; i < p.end; i++) {
    const text = words.text(i)
    if (words.isAttribute(i)) return false
    if (text === "<") i = Math.min(words.closing(i), p.end)
    else if (text === "constant") constant = true
    else if (text === "*") return false
    else if (text === "&") return constant
  }
  return false
}

function literalOf(value: number | boolean): string {
  if (typeof value === "boolean" || Number.isInteger(value)) return String(value)
  if (Number.isFinite(value)) return `${value}f`
  return Number.isNaN(value) ? "NAN" : `${value < 0 ? "-" : ""}INFINITY`
}
