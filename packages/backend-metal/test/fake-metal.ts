/**
 * The Apple runtime on the fake Metal, which `npm run build` makes: the addon that ships calls it as it would call Metal. The fake ends the
 * process at a violation, unless a test expects one. To be imported before anything uses the runtime.
 */
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
import { type LibrarySource, MAX_BUFFER_INDEX, signaturesOf } from "@lazuli/gpu-kernels"
import { AppleRuntime } from "../src/apple-runtime"
import { compileAhead } from "../src/host-compiler"
import { TranslatedSource, translationOf } from "../src/host-library"
import type { LibraryOptions, MetalLibrary } from "../src/runtime"

const path = fileURLToPath(new URL("../build/fake/lazuli_metal_fake.node", import.meta.url))

interface FakeLibrary {
  readonly problem?: string
  readonly number?: number
  readonly kernels?: readonly object[]
  readonly constants?: readonly object[]
}

/** The fake's functions; see native/fake/binding.cc. */
export interface FakeMetal {
  setCompiler(
    compile: (source: string, mathMode: number) => FakeLibrary,
    load: (
      library: number,
      constants: readonly number[],
    ) => { problem?: string; path?: string; symbol?: string },
  ): void
  /** Living objects by class. */
  living(): Record<string, number>
  /** The number of each message since {@link forgetMessages}, by class and selector. */
  messages(): Record<string, number>
  forgetMessages(): void
  openPools(): number
  /** Violations are noted from now on. */
  expect(): void
  /** Those that were; the next one ends the process. */
  noted(): string[]
  /** The call of this number among those that may fail fails; 0 for none. */
  failAt(call: number, code?: number): void
  pretend(what: string): void
  calls(): { calls: number; failed: string }
  mistakes(): string[]
  /** Right programs, which must not be taken for mistakes. */
  rights(): string[]
  /** Makes one of either. Gives what was said. */
  mistake(name: string): string[]
}

export const fake = createRequire(import.meta.url)(path) as FakeMetal

/** The text behind what the runtime puts before it. */
const withoutHead = (text: string): string => text.replace(/^#pragma clang fp contract\(off\)\n#line 1\n/, "")

const checked = process.env.LAZULI_METAL_CHECK === "1"
const sources: TranslatedSource[] = []
/** Of the source that is compiled: what the host runtime keeps on disk goes by it. */
let file = "kernel.metal"
const known = new Map<string, FakeLibrary>()

/** As Metal numbers types. */
const DATA_TYPES: Readonly<Record<string, number>> = {
  bool: 53,
  char: 45,
  uchar: 49,
  short: 37,
  ushort: 41,
  int: 29,
  uint: 33,
  long: 81,
  ulong: 85,
  float: 3,
}

function compile(text: string): FakeLibrary {
  const before = known.get(text)
  if (before) return before
  try {
    const source = { text: withoutHead(text), file }
    const translated = new TranslatedSource(source, checked)
    const signatures = signaturesOf(source)
    // Errors show now, as with Metal, if no constant decides what there is.
    if (translated.translation.constants.length === 0) translated.compiled({})
    const made = {
      number: sources.push(translated) - 1,
      kernels: [...signatures.kernels.values()].map(({ name, buffers }) => ({
        name,
        buffers: buffers
          .filter(({ index }) => index <= MAX_BUFFER_INDEX)
          .map(({ index, isWritten, onlyWith, type }) => ({
            index,
            isWritten,
            isOptional: onlyWith !== null,
            alignment: alignmentOf(type),
          })),
      })),
      constants: signatures.constants.map(({ name, index, type }) => ({
        name,
        index,
        type: DATA_TYPES[type] ?? 0,
      })),
    }
    known.set(text, made)
    return made
  } catch (error) {
    return { problem: asMetalSays((error as Error).message) }
  }
}

/** Bytes at whose multiples a value of a type begins. */
function alignmentOf(type: string): number {
  const [, name = "", count] =
    /^(?:const|constant|device|\s)*(?:atomic_|packed_)?([a-z_]*?)(?:32|64)?(?:_t)?([234])?\s*[*&]/.exec(
      type,
    ) ?? []
  const size =
    { half: 2, bfloat: 2, short: 2, ushort: 2, int: 4, uint: 4, float: 4, long: 8, ulong: 8 }[name] ?? 1
  return /packed_/.test(type) || !count ? size : size * (count === "2" ? 2 : 4)
}

/** `program_source:3: …` as Apple's compiler has it. */
const asMetalSays = (message: string): string =>
  message.replace(/^(.+?):(\d+): /gm, "program_source:$2:1: error: ")

function load(library: number, constants: readonly number[]) {
  const { translation } = sources[library]
  const values: Record<number, number | boolean> = {}
  for (let i = 0; i < constants.length; i += 2) {
    const isBool = translation.constants.find(({ index }) => index === constants[i])?.type === "bool"
    values[constants[i]] = isBool ? constants[i + 1] !== 0 : constants[i + 1]
  }
  try {
    return sources[library].compiled(values)
  } catch (error) {
    return { problem: asMetalSays((error as Error).message) }
  }
}

fake.setCompiler(compile, load)

/** The Apple runtime, with the fake under it; it compiles sources ahead as the host runtime does. */
export class AppleOnFake extends AppleRuntime {
  // Other backends do not borrow from it.
  readonly emulated = true
  constructor() {
    super([path])
  }
  override newLibrary(text: string, options: LibraryOptions = {}): MetalLibrary {
    file = options.file ?? "kernel.metal"
    return super.newLibrary(text, options)
  }
  async prepare(all: readonly LibrarySource[]): Promise<void> {
    const translated = all.flatMap((each) => {
      try {
        const { code, constants } = translationOf({ text: each.source, file: each.file })
        return constants.length === 0 ? [code] : []
      } catch {
        return []
      }
    })
    await compileAhead(translated, checked)
  }
}
