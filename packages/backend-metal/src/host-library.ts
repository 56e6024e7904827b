/**
 * Metal source for the CPU: translated, and compiled for each set of values of its function constants.
 */
import { DeviceError } from "@lazuli/core/engine"
import {
  type FunctionConstants,
  type MetalSource,
  needsPreprocessor,
  refusal,
  type Translation,
  translate,
  withoutMetalIncludes,
} from "@lazuli/gpu-kernels"
import { type CompiledLibrary, type CompileFailure, compileLibrary, preprocess } from "./host-compiler"

/** A source that was translated. */
export class TranslatedSource {
  readonly translation: Translation
  /** By the values of the constants. */
  private readonly libraries = new Map<string, CompiledLibrary>()

  /** @throws DeviceError that lists what Metal does not accept, by line */
  constructor(
    readonly source: MetalSource,
    private readonly checked: boolean,
  ) {
    this.translation = translationOf(source)
  }

  /** The library with these constants. @throws DeviceError that names the lines that do not compile */
  compiled(constants: FunctionConstants): CompiledLibrary {
    const definitions = this.translation.constants
      .map(({ index }) => {
        const value = constants[index]
        const literal = typeof value === "boolean" ? String(value) : literalOf(value ?? 0)
        return `#define LZ_CONSTANT_${index} ${literal}\n#define LZ_DEFINED_${index} ${value !== undefined}\n`
      })
      .join("")
    const known = this.libraries.get(definitions)
    if (known) return known
    const made = compileLibrary(definitions + this.translation.code, this.source.file, this.checked)
    if ("problems" in made) throw refusalOf(this.source, made)
    this.libraries.set(definitions, made)
    return made
  }
}

/** The refusal of a compiler or a preprocessor, in terms of the Metal source. */
function refusalOf(source: MetalSource, { problems, output }: CompileFailure): DeviceError {
  if (problems.length > 0) return refusal(source, problems)
  const op = source.wording?.name ?? "metal"
  return new DeviceError(op, `the source of a kernel does not compile:\n${output.slice(0, 4000)}`)
}

function literalOf(value: number): string {
  if (Number.isInteger(value)) return String(value)
  if (Number.isFinite(value)) return `${value}f`
  return Number.isNaN(value) ? '__builtin_nanf("")' : `${value < 0 ? "-" : ""}__builtin_inff()`
}

/** A source as C++. @throws DeviceError that lists what Metal does not accept, by line */
export function translationOf(source: MetalSource): Translation {
  const { text, file } = source
  if (!needsPreprocessor(text)) return translate(source)
  const expanded = preprocess(withoutMetalIncludes(text), file)
  if (typeof expanded !== "string") throw refusalOf(source, expanded)
  return translate(source, expanded)
}
