/**
 * Turns Metal source into C++ for OpenCL, which has real address spaces, for a compiler that only looks: what it refuses Apple's would
 * refuse too. `checks/strict.h` declares Metal's library; nothing has a body there.
 */
import { Rewriter } from "./rewrite"
import { expandedText, type MetalSource, scan } from "./scanner"
import type { FunctionDefinition } from "./structure"

/** The source for `clang -x clcpp -cl-std=clc++2021`. @throws DeviceError for what the lint refuses */
export function strictSource(source: MetalSource): string {
  const { tokens, words, structure } = scan(source, expandedText(source))
  const strict = new StrictRewriter(words)
  strict.rewrite(structure)
  return strict.finish(tokens.map((t) => t.text).join(""), source.file)
}

const spaces: Record<string, string> = {
  device: "__global",
  constant: "__constant",
  threadgroup: "__local",
  thread: "__private",
}

/** Names of vector types. */
const VECTOR = /^(bool|char|uchar|short|ushort|int|uint|long|ulong|half|float|bfloat)[234]$/

class StrictRewriter extends Rewriter {
  protected override readonly hasSpaces = true
  private readonly used: string[] = []
  private variables = 0

  protected register(_name: string, _f: FunctionDefinition, expression: string): void {
    this.used.push(expression)
  }
  protected override space(name: string): string {
    return spaces[name]
  }
  protected variable(type: string, from: number, to: number): string {
    const made = `lz_type${this.variables++}`
    const extents = this.words.slice(from + 1, to)
    return `typedef ${type} ${made}${extents}; __local ${made}& ${this.words.text(from)} = *lz_local<${made}>();`
  }

  finish(code: string, file: string): string {
    const constants = this.constants.map(
      ({ index }) => `#define LZ_CONSTANT_${index} 1\n#define LZ_DEFINED_${index} true\n`,
    )
    // Taking the address makes an instance of a template.
    const uses = this.used.map((expression, i) => `inline void lz_use${i}() { (void)&${expression}; }\n`)
    return `${constants.join("")}#line 1 ${JSON.stringify(file)}\n${code}\n#line 1 "kernels"\n${uses.join("")}`
  }

  override rewrite(structure: Parameters<Rewriter["rewrite"]>[0]): void {
    const conditions = this.hasWord(/^bfloat/) ? this.conditions() : []
    this.vectors()
    super.rewrite(structure)
    for (const [from, to] of conditions) {
      this.words.at(from).text = `lz_value(${this.words.text(from)}`
      this.words.at(to).text += ")"
    }
  }

  /** Constructors of vectors: of one argument, which may be a vector of another type, or of their elements. */
  private vectors(): void {
    const { words } = this
    const aliases = this.aliases()
    for (let i = 0; i < words.length; i++) {
      const name = words.text(i)
      const isVec = name === "vec" && words.text(i + 1) === "<"
      if (!isVec && !VECTOR.test(name) && !aliases.has(name)) continue
      const last = isVec ? words.closing(i + 1) : i
      if (words.text(last + 1) !== "(") continue
      const close = words.closing(last + 1)
      if (words.split(last + 2, close).length === 1) {
        words.at(i).text = `lz_convert<${name}`
        words.at(last).text += ">"
      } else if (!isVec) {
        words.at(i).text = `((${name})`
        words.at(close).text += ")"
      }
    }
  }

  /** Other names of vector types: `using float_4 = vec<T, 4>;` and `typedef vec<T, 4> float_4;`. */
  private aliases(): Set<string> {
    const { words } = this
    const names = new Set<string>()
    for (let i = 0; i < words.length; i++) {
      if (words.text(i) !== "vec" || words.text(i + 1) !== "<") continue
      const first = words.text(i - 1) === "::" ? i - 2 : i
      if (words.text(first - 1) === "=" && words.text(first - 3) === "using") names.add(words.text(first - 2))
      if (words.text(first - 1) === "typedef") names.add(words.text(words.closing(i + 1) + 1))
    }
    return names
  }

  private hasWord(pattern: RegExp): boolean {
    const { words } = this
    for (let i = 0; i < words.length; i++) if (pattern.test(words.text(i))) return true
    return false
  }

  /**
   * The operands of `c ? a : b`, by their first and last words: they are made values, because a class in one address space and the same
   * class in another have no common type.
   */
  private conditions(): [number, number][] {
    const { words } = this
    const found: [number, number][] = []
    for (let i = 0; i < words.length; i++) {
      if (words.text(i) !== "?") continue
      const colon = this.operandEnd(i + 1)
      const end = this.operandEnd(colon + 1)
      if (words.text(colon) !== ":") continue
      found.push([i + 1, colon - 1])
      // A `>` may end template arguments instead.
      if (!/[<>]/.test(this.outside(colon + 1, end))) found.push([colon + 1, end - 1])
    }
    // A literal may be a null pointer.
    return found.filter(([from, to]) => from < to || words.at(from).kind === "word")
  }

  /** Where an operand of a conditional ends. */
  private operandEnd(begin: number): number {
    const { words } = this
    let inner = 0
    for (let i = begin; i < words.length; i++) {
      const text = words.text(i)
      if (/^[([{]$/.test(text)) i = words.closing(i)
      else if (text === "?") inner++
      else if (text === ":" ? inner-- === 0 : /^[,;)\]}]$/.test(text)) return i
    }
    return words.length
  }

  /** The signs of a range outside its brackets. */
  private outside(begin: number, end: number): string {
    let signs = ""
    for (let i = begin; i < end; i++) {
      if (/^[([{]$/.test(this.words.text(i))) i = this.words.closing(i)
      else if (this.words.at(i).kind === "sign") signs += this.words.text(i)
    }
    return signs
  }
}
