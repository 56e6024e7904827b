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

/** Names of vector types, whose constructors are written as literals. */
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
    const { words } = this
    for (let i = 0; i < words.length; i++) {
      if (!VECTOR.test(words.text(i)) || words.text(i + 1) !== "(") continue
      words.at(i).text = `((${words.text(i)})`
      words.at(words.closing(i + 1)).text += ")"
    }
    super.rewrite(structure)
  }
}
