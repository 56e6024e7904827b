/**
 * The kernels of a source as their callers see them: which buffers they take, which of those they write, which constants the source has.
 */
import { dispatchAttributes } from "./lint"
import { type FunctionConstant, Rewriter } from "./rewrite"
import { expandedText, type MetalSource, scan } from "./scanner"
import type { FunctionDefinition, Parameter } from "./structure"
import type { Words } from "./tokens"

/** A parameter that is a buffer. */
export interface BufferParameter {
  readonly name: string
  readonly index: number
  /** The words of its type, as they were written, with the name behind them. */
  readonly type: string
  /** True for memory of the device that is not const. */
  readonly isWritten: boolean
  /** The function constant without which it is not there. */
  readonly onlyWith: string | null
}

/** A kernel by the name that the host uses. */
export interface KernelSignature {
  readonly name: string
  readonly buffers: readonly BufferParameter[]
  /** The function constants that it names itself. */
  readonly constants: readonly string[]
  /** The indices of its `[[threadgroup(index)]]` parameters, with their names. */
  readonly threadgroup: readonly { readonly name: string; readonly index: number }[]
}

/** The kernels and constants of a source. */
export interface SourceSignature {
  readonly kernels: ReadonlyMap<string, KernelSignature>
  readonly constants: readonly (FunctionConstant & {
    /** The source asks whether it is defined, so that it need not be. */
    readonly isOptional: boolean
  })[]
}

/** Reads the signatures of a source. @throws DeviceError that lists what Metal does not accept, by line */
export function signaturesOf(source: MetalSource): SourceSignature {
  const text = expandedText(source)
  const { words, structure } = scan(source, text)
  const reader = new SignatureReader(words)
  reader.rewrite(structure)
  return reader.read(text)
}

class SignatureReader extends Rewriter {
  private readonly kernels = new Map<string, KernelSignature>()
  private readonly mentions = new Map<string, ReadonlySet<string>>()

  protected register(name: string, f: FunctionDefinition): void {
    const taken = new Set(f.parameters.flatMap((p) => numbers(p, "buffer")))
    const buffers: BufferParameter[] = []
    const threadgroup: { name: string; index: number }[] = []
    for (const p of f.parameters) {
      const [at] = numbers(p, "threadgroup")
      if (at !== undefined) threadgroup.push({ name: p.name, index: at })
      else if (!p.attributes.some((a) => dispatchAttributes.has(a.name))) {
        let [index] = numbers(p, "buffer")
        // Without an attribute a buffer takes the first free index.
        if (index === undefined) {
          index = 0
          while (taken.has(index)) index++
          taken.add(index)
        }
        const only = p.attributes.find((a) => a.name === "function_constant")?.argument ?? null
        const type = this.words.slice(p.begin, p.end)
        buffers.push({ name: p.name, index, type, isWritten: isWritten(this.words, p), onlyWith: only })
      }
    }
    const mentioned = new Set<string>()
    for (let i = f.begin; i < f.end; i++) mentioned.add(this.words.text(i))
    this.mentions.set(name, mentioned)
    this.kernels.set(name, { name, buffers, threadgroup, constants: [] })
  }

  protected variable(): string {
    return ""
  }

  read(text: string): SourceSignature {
    const kernels = [...this.kernels.values()].map((kernel) => {
      const constants = this.constants.map(({ name }) => name)
      return { ...kernel, constants: constants.filter((name) => this.mentions.get(kernel.name)?.has(name)) }
    })
    return {
      kernels: new Map(kernels.map((kernel) => [kernel.name, kernel])),
      constants: this.constants.map((constant) => ({
        ...constant,
        isOptional: new RegExp(`is_function_constant_defined\\s*\\(\\s*${constant.name}\\s*\\)`).test(text),
      })),
    }
  }
}

const numbers = (p: Parameter, name: string): number[] =>
  p.attributes.filter((a) => a.name === name).map((a) => Number(a.argument))

/** `device T*` and `device T&` without const. */
function isWritten(words: Words, p: Parameter): boolean {
  let isDevice = false
  for (let i = p.begin; i < p.end; i++) {
    const text = words.text(i)
    if (words.isAttribute(i)) i = words.closing(i)
    else if (text === "<") i = Math.min(words.closing(i), p.end)
    else if (text === "*" || text === "&") return isDevice
    else if (text === "device") isDevice = true
    else if (text === "const" || text === "constant") return false
  }
  return false
}
