/**
 * Turns Metal source into C++ for the host runtime: attributes and host names become a table of kernels, threadgroup variables
 * references into the group's memory, address spaces vanish. Lines stay where they are, so that a compiler's messages name the lines
 * of the Metal source.
 */
import { DeviceError } from "@lazuli/core/engine"
import type { Wording } from "../dispatch"
import { dispatchAttributes, lint, type Problem } from "./lint"
import { preprocess } from "./preprocessor"
import { type FunctionConstant, Rewriter } from "./rewrite"
import { type FunctionDefinition, type Parameter, readStructure, type Structure } from "./structure"
import { type Token, tokenize, Words } from "./tokens"

export type { FunctionConstant }

/** A kernel that a source offers, by the name that the host uses. */
export interface ScannedKernel {
  readonly name: string
  /** The number of buffers it takes: one above the highest index. */
  readonly buffers: number
}

/** A translated source. */
export interface Translation {
  /**
   * C++ for the prelude in native/prelude. To be defined are `LZ_LIBRARY`, the symbol of its table of kernels, and `LZ_CONSTANT_<i>` and
   * `LZ_DEFINED_<i>` for each function constant.
   */
  readonly code: string
  readonly kernels: readonly ScannedKernel[]
  readonly constants: readonly FunctionConstant[]
}

/** True if a source must go through a preprocessor first: macros may hide what the scanner looks for. */
export function needsPreprocessor(source: string): boolean {
  return /^[ \t]*#[ \t]*(define|undef|if|ifdef|ifndef|else|elif|endif)\b/m.test(source)
}

/** Empties the lines that include Metal's own headers, which the prelude stands for. */
export function withoutMetalIncludes(source: string): string {
  return source.replace(/^[ \t]*#[ \t]*(include|import)[ \t]*<(metal|simd)[\w/.]*>.*$/gm, "")
}

/** A text in Metal, and how messages name its lines. */
export interface MetalSource {
  readonly text: string
  readonly file: string
  readonly wording?: Wording
}

/** A source's text without macros and conditions. @throws DeviceError for malformed ones, by line */
export function expandedText(source: MetalSource): string {
  const text = withoutMetalIncludes(source.text)
  if (!needsPreprocessor(text)) return text
  const expanded = preprocess(text)
  if (typeof expanded !== "string") throw refusal(source, expanded)
  return expanded
}

/** The words and the structure of a source that Metal accepts, as far as the lint can tell. */
export interface ScannedSource {
  readonly tokens: readonly Token[]
  readonly words: Words
  readonly structure: Structure
}

/**
 * Reads a source; `expanded` is its text after a preprocessor, where it has macros.
 * @throws DeviceError that lists what Metal does not accept, by line
 */
export function scan(source: MetalSource, expanded = source.text): ScannedSource {
  const tokens = tokenize(withoutMetalIncludes(expanded))
  const words = new Words(tokens)
  const problems: Problem[] = []
  for (const t of tokens)
    if (t.kind === "directive" && /^\s*#\s*(include|import)\b/.test(t.text))
      problems.push({ line: t.line, message: `cannot include files: ${t.text.trim()}` })
  const structure = readStructure(words)
  problems.push(...lint(words, structure))
  if (problems.length > 0) throw refusal(source, problems)
  return { tokens, words, structure }
}

/**
 * Translates a source for the host; `expanded` is its text after a preprocessor, where it has macros.
 * @throws DeviceError that lists what Metal does not accept, by line
 */
export function translate(source: MetalSource, expanded = source.text): Translation {
  const { tokens, words, structure } = scan(source, expanded)
  const host = new HostRewriter(words)
  host.rewrite(structure)
  return host.finish(tokens, source.file)
}

/** The error for a source that Metal, or the compiler, does not accept. */
export function refusal(source: MetalSource, problems: readonly Problem[]): DeviceError {
  const lines = source.text.split("\n")
  const shown = problems.slice(0, 5).map(({ line, message }) => {
    const text = lines[line - 1]?.trim()
    const location = source.wording?.location(line) ?? `${source.file}:${line}`
    return `${location}: ${message}${text ? `\n    ${text}` : ""}`
  })
  if (problems.length > shown.length) shown.push(`and ${problems.length - shown.length} more`)
  const op = source.wording?.name ?? "metal"
  return new DeviceError(op, `the source of a kernel does not compile:\n${shown.join("\n")}`)
}

/** Names of matrices of simdgroups, and of those of which no thread has elements of its own; see matrices.h. */
const WHOLE_MATRICES: Readonly<Record<string, string>> = {
  simdgroup_matrix: "lz_whole_matrix",
  make_filled_simdgroup_matrix: "lz_filled_whole_matrix",
  simdgroup_float8x8: "lz_whole_float8x8",
  simdgroup_half8x8: "lz_whole_half8x8",
  simdgroup_bfloat8x8: "lz_whole_bfloat8x8",
}

/** Kernels become entries of a table, threadgroup variables references into the group's memory. */
class HostRewriter extends Rewriter {
  private readonly entries: string[] = []
  private readonly kernels: ScannedKernel[] = []
  private variables = 0

  protected register(name: string, f: FunctionDefinition, expression: string): void {
    const bindings = this.bindingsOf(f)
    this.kernels.push({ name, buffers: bindings.buffers })
    this.entries.push(
      `lz::Entry<&${expression}, decltype(&${expression})${bindings.types.map((t) => `, ${t}`).join("")}>::describe(${JSON.stringify(name)}, LZ_WAITS, ${bindings.limit})`,
    )
  }

  private bindingsOf(f: FunctionDefinition): { types: string[]; buffers: number; limit: number } {
    const taken = new Set(
      f.parameters.flatMap((p) =>
        p.attributes.filter((a) => a.name === "buffer").map((a) => Number(a.argument)),
      ),
    )
    let highest = taken.size > 0 ? Math.max(...taken) : -1
    const types = f.parameters.map((p) => {
      const binding = this.bindingOf(p, taken)
      if (binding.buffer !== undefined && binding.buffer > highest) highest = binding.buffer
      return binding.type
    })
    const limit = f.attributes.find((a) => a.name === "max_total_threads_per_threadgroup")?.argument
    return { types, buffers: highest + 1, limit: Number(limit ?? 0) || 0 }
  }

  private bindingOf(p: Parameter, taken: Set<number>): { type: string; buffer?: number } {
    for (const { name, argument } of p.attributes) {
      if (name === "buffer") return { type: `lz::Buffer<${argument}>`, buffer: Number(argument) }
      if (name === "threadgroup") return { type: `lz::Threadgroup<${argument}>` }
      if (dispatchAttributes.has(name)) return { type: `lz::attribute::${name}` }
    }
    // Without an attribute a buffer takes the first free index.
    let index = 0
    while (taken.has(index)) index++
    taken.add(index)
    return { type: `lz::Buffer<${index}>`, buffer: index }
  }

  protected variable(type: string, from: number, to: number): string {
    const n = this.variables++
    const name = this.words.text(from)
    const extents = this.words.slice(from + 1, to)
    return `static char lz_tag${n}; typedef ${type} lz_type${n}${extents}; lz_type${n}& ${name} = lz::variable<lz_type${n}>(&lz_tag${n});`
  }

  /** Lets the first thread of a simdgroup compute with matrices alone, where no thread asks for its own elements. */
  private wholeMatrices(tokens: readonly Token[]): void {
    if (tokens.some(({ text }) => text === "thread_elements")) return
    for (const token of tokens)
      if (token.kind === "word" && Object.hasOwn(WHOLE_MATRICES, token.text))
        token.text = WHOLE_MATRICES[token.text]
  }

  finish(tokens: readonly Token[], file: string): Translation {
    this.wholeMatrices(tokens)
    const table = this.entries.length > 0 ? this.entries.join(",\n") : "{}"
    const code = `#line 1 ${JSON.stringify(file)}
${tokens.map((t) => t.text).join("")}
#line 1 "kernel table"
#define LZ_WAITS ${this.waits}
static const lz::Kernel lz_kernels[] = {
${table}
};
extern "C" { extern __attribute__((visibility("default"))) const lz::Library LZ_LIBRARY; const lz::Library LZ_LIBRARY = {lz::kAbi, ${this.entries.length}, lz_kernels, LZ_WAITS}; }
`
    return { code, kernels: this.kernels, constants: this.constants }
  }
}
