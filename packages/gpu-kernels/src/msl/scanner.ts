/**
 * Turns Metal source into C++ for the host runtime: attributes and host names become a table of kernels, threadgroup variables
 * references into the group's memory, address spaces vanish. Lines stay where they are, so that a compiler's messages name the lines
 * of the Metal source.
 */
import { DeviceError } from "@lazuli/core/engine"
import type { Wording } from "../dispatch"
import { dispatchAttributes, lint, type Problem } from "./lint"
import {
  type FunctionDefinition,
  type Parameter,
  readAttributes,
  readStructure,
  type Statement,
} from "./structure"
import { type Token, tokenize, Words } from "./tokens"

/** A kernel that a source offers, by the name that the host uses. */
export interface ScannedKernel {
  readonly name: string
  /** How many buffers it takes: one above the highest index. */
  readonly buffers: number
}

/** A constant that is set when a pipeline is made. */
export interface FunctionConstant {
  readonly name: string
  readonly index: number
  readonly type: string
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

/** Whether a source must go through a preprocessor first: macros may hide what the scanner looks for. */
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

/**
 * Translates a source; `expanded` is its text after a preprocessor, where it has macros.
 * @throws DeviceError that lists what Metal does not accept, by line
 */
export function translate(source: MetalSource, expanded = source.text): Translation {
  const tokens = tokenize(withoutMetalIncludes(expanded))
  const words = new Words(tokens)
  const problems: Problem[] = []
  for (const t of tokens)
    if (t.kind === "directive" && /^\s*#\s*(include|import)\b/.test(t.text))
      problems.push({ line: t.line, message: `cannot include files: ${t.text.trim()}` })
  const structure = readStructure(words)
  problems.push(...lint(words, structure))
  if (problems.length > 0) throw refusal(source, problems)

  const scan = new Scan(words)
  const byName = new Map(structure.functions.filter((f) => f.isKernel).map((f) => [f.name, f]))
  for (const f of structure.functions) scan.function(f)
  for (const s of structure.statements) scan.statement(s, byName)
  scan.everywhere()
  return scan.finish(tokens, source.file)
}

/** The error for a source that Metal, or the compiler, does not accept. */
export function refusal(source: MetalSource, problems: readonly Problem[]): DeviceError {
  const lines = source.text.split("\n")
  const shown = problems.slice(0, 5).map(({ line, message }) => {
    const text = lines[line - 1]?.trim()
    const place = source.wording?.place(line) ?? `${source.file}:${line}`
    return `${place}: ${message}${text ? `\n    ${text}` : ""}`
  })
  if (problems.length > shown.length) shown.push(`and ${problems.length - shown.length} more`)
  const op = source.wording?.name ?? "metal"
  return new DeviceError(op, `the source of a kernel does not compile:\n${shown.join("\n")}`)
}

/** What waits for other threads, and so needs fibers. */
const WAITS = /^(threadgroup_barrier|simdgroup_\w+|simd_\w+|quad_\w+|make_filled_simdgroup_matrix)$/

class Scan {
  private readonly entries: string[] = []
  private readonly kernels: ScannedKernel[] = []
  private readonly constants: FunctionConstant[] = []
  private readonly slots = new Map<FunctionDefinition, { types: string[]; buffers: number; limit: number }>()
  private variables = 0
  private waits = false

  constructor(private readonly words: Words) {}

  /** Removes the attributes of a function, makes its threadgroup variables, and registers it if it is a kernel by itself. */
  function(f: FunctionDefinition): void {
    this.threadgroupVariables(f.open, f.end)
    if (!f.isKernel) return
    const slots = this.slotsOf(f)
    this.slots.set(f, slots)
    if (!f.isTemplate)
      this.register(f.attributes.find((a) => a.name === "host_name")?.argument, f, f.qualified)
  }

  private register(hostName: string | undefined, f: FunctionDefinition, expression: string): void {
    const slots = this.slots.get(f) ?? this.slotsOf(f)
    const name = hostName?.replace(/^"|"$/g, "") ?? f.name
    this.kernels.push({ name, buffers: slots.buffers })
    this.entries.push(
      `lz::Entry<&${expression}, decltype(&${expression})${slots.types.map((t) => `, ${t}`).join("")}>::describe(${JSON.stringify(name)}, LZ_WAITS, ${slots.limit})`,
    )
  }

  private slotsOf(f: FunctionDefinition): { types: string[]; buffers: number; limit: number } {
    const taken = new Set(
      f.parameters.flatMap((p) =>
        p.attributes.filter((a) => a.name === "buffer").map((a) => Number(a.argument)),
      ),
    )
    let highest = taken.size > 0 ? Math.max(...taken) : -1
    const types = f.parameters.map((p) => {
      const slot = this.slotOf(p, taken)
      if (slot.buffer !== undefined && slot.buffer > highest) highest = slot.buffer
      return slot.type
    })
    const limit = f.attributes.find((a) => a.name === "max_total_threads_per_threadgroup")?.argument
    return { types, buffers: highest + 1, limit: Number(limit ?? 0) || 0 }
  }

  private slotOf(p: Parameter, taken: Set<number>): { type: string; buffer?: number } {
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

  /** `threadgroup float tile[8][9], other;` → references to the group's memory. */
  private threadgroupVariables(open: number, end: number): void {
    const { words } = this
    for (let i = open; i < end; i++) {
      if (words.text(i) !== "threadgroup" || words.text(i + 1) === "(") continue
      const stop = this.declaratorEnd(i + 1, end)
      if (stop === null) continue
      const [first, ...others] = words.split(i + 1, stop)
      const name = this.declaratorName(first[0], first[1])
      const type = words.slice(first[0], name)
      const made = [[name, first[1]], ...others].map(([from, to]) => this.variable(type, from, to))
      words.erase(i + 1, stop + 1)
      words.at(i).text = made.join(" ")
      this.waits = true
      i = stop
    }
  }

  private variable(type: string, from: number, to: number): string {
    const n = this.variables++
    const name = this.words.text(from)
    const extents = this.words.slice(from + 1, to)
    return `static char lz_tag${n}; typedef ${type} lz_type${n}${extents}; lz_type${n}& ${name} = lz::variable<lz_type${n}>(&lz_tag${n});`
  }

  /** Where the declaration of variables that begins here ends, or null when it declares pointers or is none. */
  private declaratorEnd(begin: number, end: number): number | null {
    const { words } = this
    for (let i = begin; i < end; i++) {
      const text = words.text(i)
      if (text === ";") return i
      if (text === "[") i = words.closing(i)
      else if (text === "<") i = words.closing(i)
      else if (text !== "," && text !== "::" && words.at(i).kind !== "word") return null
    }
    return null
  }
  private declaratorName(begin: number, end: number): number {
    let name = begin
    for (let i = begin; i < end && this.words.text(i) !== "["; i++) {
      if (this.words.text(i) === "<") i = this.words.closing(i)
      else if (this.words.at(i).kind === "word") name = i
    }
    return name
  }

  /** Instantiations with host names, and function constants. */
  statement(s: Statement, kernels: ReadonlyMap<string, FunctionDefinition>): void {
    const { words } = this
    if (words.text(s.begin) === "template" && words.text(s.begin + 1) !== "<") {
      this.instantiation(s, kernels)
      return
    }
    for (let i = s.begin; i < s.end; i++) {
      if (!words.isAttribute(i)) continue
      const close = words.closing(i)
      const attribute = readAttributes(words, i + 2, close - 1).find((a) => a.name === "function_constant")
      if (attribute) this.functionConstant(s, i, attribute.argument)
      i = close
    }
  }

  private instantiation(s: Statement, kernels: ReadonlyMap<string, FunctionDefinition>): void {
    const { words } = this
    let hostName: string | undefined
    let i = s.begin + 1
    for (; words.isAttribute(i); i = words.closing(i) + 1) {
      const found = readAttributes(words, i + 2, words.closing(i) - 1).find((a) => a.name === "host_name")
      if (found) hostName = found.argument
    }
    if (words.text(i) === "kernel") i++
    // decltype(f<float>) f<float>, or void f<float>(…)
    i = words.text(i) === "decltype" ? words.closing(i + 1) + 1 : i + 1
    const from = i
    let name = ""
    for (; i < s.end && words.text(i) !== "("; i++) {
      if (words.text(i) === "<") i = words.closing(i)
      else if (words.at(i).kind === "word") name = words.text(i)
    }
    const f = kernels.get(name)
    if (!f || hostName === undefined) return
    const expression = words.slice(from, i)
    this.register(hostName, f, expression.includes("::") ? expression : `${s.namespace}${expression}`)
    words.erase(s.begin, s.end + 1)
  }

  private functionConstant(s: Statement, attribute: number, argument: string): void {
    const { words } = this
    const name = words.text(attribute - 1)
    let from = s.begin
    while (/^(constant|const|static|constexpr)$/.test(words.text(from))) from++
    const type = words.slice(from, attribute - 1)
    const index = Number(argument)
    this.constants.push({ name, index, type })
    words.erase(s.begin, s.end)
    words.at(s.begin).text = `constexpr ${type} ${name} = static_cast<${type}>(LZ_CONSTANT_${index})`
  }

  /** Attributes, address spaces and literals, everywhere. */
  everywhere(): void {
    const { words } = this
    const constants = new Map(this.constants.map((c) => [c.name, c.index]))
    for (let i = 0; i < words.length; i++) {
      const token = words.at(i)
      const { text } = token
      if (words.isAttribute(i)) {
        const close = words.closing(i)
        words.erase(i, close + 1)
        i = close
      } else if (token.kind === "number") token.text = literal(text)
      else if (token.kind !== "word") continue
      else if (text === "device" || text === "thread" || text === "threadgroup" || text === "kernel")
        token.text = ""
      else if (text === "constant")
        token.text = words.text(i - 1) === "const" || words.text(i + 1) === "const" ? "" : "const"
      else if (text === "is_function_constant_defined") {
        const close = words.closing(i + 1)
        const index = constants.get(words.text(i + 2))
        words.erase(i + 1, close + 1)
        token.text = index === undefined ? "false" : `(LZ_DEFINED_${index})`
        i = close
      } else if (WAITS.test(text)) this.waits = true
    }
  }

  finish(tokens: readonly Token[], file: string): Translation {
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

/** A floating literal without a suffix is a float in Metal; `h` and `bf` are suffixes. */
function literal(text: string): string {
  const hex = /^0[xX]/.test(text)
  if (hex ? !/[pP]/.test(text) : !/[.eE]|[fFhH]$|bf$/i.test(text)) return text
  if (/bf$/i.test(text) && !hex) return `(bfloat)${floating(text.slice(0, -2))}`
  if (/h$/i.test(text)) return `(half)${floating(text.slice(0, -1))}`
  return floating(text)
}
const floating = (text: string): string => {
  const digits = text.replace(/f$/i, "")
  return `${/[.eEpP]/.test(digits) ? digits : `${digits}.0`}f`
}
