/**
 * Rewrites Metal source as C++: attributes and address spaces vanish, instantiations with host names become registrations, function
 * constants become values that are set later. Lines stay where they are, so that a compiler's messages name the lines of the Metal
 * source. What a platform's kernels look like is in scanner.ts (the host) and cuda.ts.
 */
import {
  type FunctionDefinition,
  type Parameter,
  readAttributes,
  type Statement,
  type Structure,
  skipTemplate,
} from "./structure"
import type { Words } from "./tokens"

/** A constant that is set when a pipeline is made. */
export interface FunctionConstant {
  readonly name: string
  readonly index: number
  readonly type: string
}

/** Functions that wait for other threads. */
const WAITS = /^(threadgroup_barrier|simdgroup_\w+|simd_\w+|quad_\w+|make_filled_simdgroup_matrix)$/

const SPACES: ReadonlySet<string> = new Set(["device", "constant", "threadgroup", "thread"])

/** Rewrites the words of one source; what a platform writes for kernels, threadgroup variables and constants is its own. */
export abstract class Rewriter {
  protected readonly constants: FunctionConstant[] = []
  /** True if threads wait for each other anywhere. */
  protected waits = false

  constructor(protected readonly words: Words) {}

  /** Adds a kernel under the name that the host uses; `expression` names its function, with template arguments. */
  protected abstract register(name: string, f: FunctionDefinition, expression: string): void
  /** Declares a threadgroup variable; its name is at `from`, and its extents follow. */
  protected abstract variable(type: string, from: number, to: number): string
  /** Rewrites a variable outside functions. */
  protected globalConstant(_statement: Statement): void {}
  /** Rewrites the head of a kernel's function. */
  protected kernelHead(_kernel: FunctionDefinition): void {}

  /** True where the target language tells address spaces apart. */
  protected readonly hasSpaces: boolean = false

  /** Functions that differ in address spaces alone are one without them: the first stays. */
  private dropTwins(functions: readonly FunctionDefinition[]): void {
    const seen = new Set<string>()
    for (const f of functions) {
      if (f.isKernel) continue
      const { words } = this
      const head = words.slice(f.begin, skipTemplate(words, f.begin))
      const types = f.parameters.map((p) => typeWithoutSpace(words, p))
      const suffix = f.name === "operator" ? words.slice(f.begin, f.open) : ""
      const key = `${head} ${f.qualified}(${types.join()})${suffix}`
      if (types.length > 0 && seen.has(key)) words.erase(f.begin, f.end + 1)
      seen.add(key)
    }
  }

  /** An address space: only that of constants says something to a compiler without them. */
  protected space(name: string, i: number): string {
    if (name !== "constant") return ""
    return this.words.text(i - 1) === "const" || this.words.text(i + 1) === "const" ? "" : "const"
  }

  /** Rewrites everything. */
  rewrite(structure: Structure): void {
    if (!this.hasSpaces) this.dropTwins(structure.functions)
    const byName = new Map(structure.functions.filter((f) => f.isKernel).map((f) => [f.name, f]))
    for (const f of structure.functions) this.function(f)
    for (const s of structure.statements) this.statement(s, byName)
    this.everywhere()
  }

  /** Makes the threadgroup variables of a function, and registers it if it is a kernel by itself. */
  private function(f: FunctionDefinition): void {
    this.threadgroupVariables(f.open, f.end)
    if (!f.isKernel) return
    this.kernelHead(f)
    if (!f.isTemplate)
      this.register(
        unquoted(f.attributes.find((a) => a.name === "host_name")?.argument ?? f.name),
        f,
        f.qualified,
      )
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

  /** Instantiations with host names, function constants and other variables. */
  private statement(s: Statement, kernels: ReadonlyMap<string, FunctionDefinition>): void {
    const { words } = this
    if (words.text(s.begin) === "template" && words.text(s.begin + 1) !== "<") {
      this.instantiation(s, kernels)
      return
    }
    for (let i = s.begin; i < s.end; i++) {
      if (!words.isAttribute(i)) continue
      const close = words.closing(i)
      const attribute = readAttributes(words, i + 2, close - 1).find((a) => a.name === "function_constant")
      if (attribute) {
        this.functionConstant(s, i, attribute.argument)
        return
      }
      i = close
    }
    if (!s.inType) this.globalConstant(s)
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
    this.register(
      unquoted(hostName),
      f,
      expression.includes("::") ? expression : `${s.namespace}${expression}`,
    )
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
  private everywhere(): void {
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
      else if (text === "kernel") token.text = ""
      else if (SPACES.has(text)) token.text = this.space(text, i)
      else if (text === "is_function_constant_defined") {
        const close = words.closing(i + 1)
        const index = constants.get(words.text(i + 2))
        words.erase(i + 1, close + 1)
        token.text = index === undefined ? "false" : `(LZ_DEFINED_${index})`
        i = close
      } else if (WAITS.test(text)) this.waits = true
    }
  }
}

/** The words of a parameter's type as they are without address spaces; what is constant is const. */
function typeWithoutSpace(words: Words, p: Parameter): string {
  const kept: string[] = []
  let isConst = false
  for (let i = p.begin; i < p.end; i++) {
    const text = words.text(i)
    if (text === "=") break
    if (words.isAttribute(i)) i = words.closing(i)
    else if (text === "const" || text === "constant") isConst = true
    else if (!SPACES.has(text) && text !== p.name) kept.push(text)
  }
  return `${isConst ? "const " : ""}${kept.join(" ")}`
}

/** The text of string literals, of which several make one. */
const unquoted = (text: string): string => text.replace(/"\s*"/g, "").replace(/^"|"$/g, "")

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
