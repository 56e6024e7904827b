/**
 * Runs the C++ compiler for the host runtime, and keeps what it made on disk: a shared library by the name of a hash of everything that
 * went into it, for each source. Sources that are known together share one file under all of their names. Files are written beside
 * their location and then renamed, so that processes can share the folder.
 */
import { spawn, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs"
import { availableParallelism, cpus } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { DeviceError } from "@lazuli/core/engine"
import { besideOf, isKept, kernelFolder, preludeFolder, pruneOnce, publish } from "@lazuli/gpu-kernels"

const native = fileURLToPath(new URL("../native/", import.meta.url))

const FLAGS = [
  "-std=c++17",
  "-O1",
  "-fPIC",
  "-march=native",
  // Metal's char is signed everywhere, and every instruction rounds by itself.
  "-fsigned-char",
  "-ffp-contract=off",
  "-fno-math-errno",
  "-fno-trapping-math",
  "-fno-exceptions",
  "-fno-rtti",
  "-fvisibility=hidden",
  "-w",
]
/** Kernels that tell the executor of every access; see native/checked/checked.h. */
const CHECKED_FLAGS = ["-fsanitize=thread"]
/** Rounds each operation on half, which g++ otherwise lets wait. */
const GCC_FLAGS = ["-fexcess-precision=16"]
const MACROS = ["-D__METAL__=1", "-D__METAL_VERSION__=320", "-D__HAVE_BFLOAT__=1"]

/** The compiler's refusal, by lines of the file that was named in the source. */
export interface CompileFailure {
  readonly problems: readonly { readonly line: number; readonly message: string }[]
  readonly output: string
}

/** The number of times that this process took each step. */
export const compilerStats = { compiled: 0, fromDisk: 0, preprocessed: 0, prelude: 0 }

/** Where compiled kernels are kept. */
export const cacheFolder = (): string => kernelFolder("metal-host")

let digest: string | undefined
/** A hash of the prelude, the flags and the processor: what every library depends on besides its source. */
function baseDigest(): string {
  if (digest) return digest
  const hash = createHash("sha256")
  for (const from of [join(native, "include/lazuli"), join(native, "prelude"), preludeFolder])
    for (const name of readdirSync(from)
      .filter((file) => file.endsWith(".h"))
      .sort())
      hash
        .update(name)
        .update("\0")
        .update(readFileSync(join(from, name)))
  hash.update(JSON.stringify([FLAGS, GCC_FLAGS, MACROS, process.platform, process.arch, cpus()[0]?.model]))
  digest = hash.digest("hex")
  return digest
}

function keyOf(...parts: string[]): string {
  const hash = createHash("sha256").update(baseDigest())
  for (const part of parts) hash.update("\0").update(part)
  return hash.digest("hex").slice(0, 40)
}

/** The part of a key that tells checked libraries from others. */
const checkedKey = (checked: boolean): string[] =>
  checked ? ["checked", readFileSync(join(native, "checked/checked.h"), "utf8")] : []

interface Compiler {
  readonly command: string
  readonly isGcc: boolean
  readonly version: string
}
let compiler: Compiler | undefined

/** `CXX`, or the first of g++, clang++ and c++ that runs. @throws DeviceError when none does */
function findCompiler(): Compiler {
  if (compiler) return compiler
  const candidates = process.env.CXX ? [process.env.CXX] : ["g++", "clang++", "c++"]
  for (const command of candidates) {
    const { status, stdout } = spawnSync(command, ["--version"], { encoding: "utf8" })
    if (status !== 0) continue
    compiler = { command, isGcc: !/clang/i.test(stdout), version: stdout.split("\n")[0] }
    return compiler
  }
  throw new DeviceError(
    "metal",
    `the host runtime needs a C++ compiler to compile a kernel, and ${candidates.join(", ")} ${candidates.length > 1 ? "do" : "does"} not run`,
    { hint: "Install one (on Debian or Ubuntu: apt-get install g++), or name one in CXX" },
  )
}

/** True where kernels can run: on Linux, with a C++ compiler. */
export function canCompileKernels(): boolean {
  if (process.platform !== "linux") return false
  try {
    findCompiler()
    return true
  } catch {
    return false
  }
}

/** The compiler speaks plain English whatever the user's locale is. */
const RUN = { env: { ...process.env, LC_ALL: "C" } }

function flagsOf({ isGcc }: Compiler, checked: boolean): string[] {
  return [...FLAGS, ...(isGcc ? GCC_FLAGS : []), ...(checked ? CHECKED_FLAGS : [])]
}

/** The prelude, precompiled once for each compiler; gives the file to include. */
function prelude(used: Compiler, checked: boolean): string {
  const from = join(native, checked ? "checked/checked.h" : "prelude/prelude.h")
  const location = join(cacheFolder(), `prelude-${keyOf(used.version, ...checkedKey(checked))}`)
  const header = join(location, "prelude.h")
  const compiled = `${header}.gch`
  if (existsSync(compiled)) return header
  mkdirSync(location, { recursive: true, mode: 0o700 })
  publish(header, (beside) => writeFileSync(beside, `#include ${JSON.stringify(from)}\n`))
  publish(compiled, (beside) => {
    const { status, stderr } = spawnSync(
      used.command,
      [...flagsOf(used, checked), `-I${preludeFolder}`, "-x", "c++-header", header, "-o", beside],
      { ...RUN, encoding: "utf8" },
    )
    if (status !== 0)
      throw new DeviceError(
        "metal",
        `${used.version} does not compile the host runtime's prelude:\n${stderr}`,
      )
  })
  compilerStats.prelude++
  return header
}

/** Expands macros and conditions; what it gives has line markers. Remembered on disk. Gives what the preprocessor refused otherwise. */
export function preprocess(source: string, file: string): string | CompileFailure {
  const path = join(cacheFolder(), `${keyOf("preprocessed", file, source)}.ii`)
  if (isKept(path)) return readFileSync(path, "utf8")
  const { command } = findCompiler()
  const { status, stdout, stderr } = spawnSync(command, ["-E", "-w", "-undef", ...MACROS, "-x", "c++", "-"], {
    ...RUN,
    input: `#line 1 ${JSON.stringify(file)}\n${source}`,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  })
  if (status !== 0) return readFailure(stderr, file)
  compilerStats.preprocessed++
  publish(path, (beside) => writeFileSync(beside, stdout))
  return stdout
}

/** Where a source's kernels are. */
export interface CompiledLibrary {
  /** A shared library. */
  readonly path: string
  /** The symbol that it exports for this source. */
  readonly symbol: string
}

function libraryOf(code: string, checked: boolean): CompiledLibrary {
  const key = keyOf(code, ...checkedKey(checked))
  return { path: join(cacheFolder(), `${key}.so`), symbol: `lazuli_metal_${key}` }
}

/** The command that makes a shared library of the compiler's input. */
function commandFor(used: Compiler, target: string, checked: boolean): string[] {
  return [
    ...flagsOf(used, checked),
    ...[
      "-shared",
      "-nostdlib",
      "-include",
      prelude(used, checked),
      // For a compiler that does not take what it has precompiled, as where memory lies elsewhere, and reads the text.
      `-I${preludeFolder}`,
      "-x",
      "c++",
      "-",
      "-o",
      target,
      "-lm",
      "-lgcc",
    ],
  ]
}

/** Compiles translated source to a shared library, unless it is on disk. Gives where it is, or what the compiler refused. */
export function compileLibrary(
  translated: string,
  file: string,
  checked: boolean,
): CompiledLibrary | CompileFailure {
  const code = codeFor(translated, checked)
  const location = libraryOf(code, checked)
  if (isKept(location.path)) {
    compilerStats.fromDisk++
    return location
  }
  const used = findCompiler()
  const beside = besideOf(location.path)
  try {
    const { status, stderr } = spawnSync(used.command, commandFor(used, beside, checked), {
      ...RUN,
      input: `#define LZ_LIBRARY ${location.symbol}\n${code}`,
      encoding: "utf8",
      maxBuffer: 1 << 28,
    })
    if (status !== 0) return readFailure(stderr, file)
    renameSync(beside, location.path)
    compilerStats.compiled++
    pruneOnce(cacheFolder())
    return location
  } finally {
    rmSync(beside, { force: true })
  }
}

/** Checked kernels run on fibers even where no thread waits, so that each access is known by its thread. */
const codeFor = (code: string, checked: boolean): string =>
  checked ? code.replaceAll("#define LZ_WAITS false", "#define LZ_WAITS true") : code

/** The number of sources compiled as one: enough to make starting the compiler cheap, few enough to keep every processor busy. */
const UNIT = 48

/** Sources that are compiled to one file. */
interface Unit {
  readonly locations: readonly CompiledLibrary[]
  readonly beside: string
  readonly input: string
}

/** Translated sources without function constants that are not on disk, in as many parts as keep every processor busy. */
function missingUnits(translated: readonly string[], checked: boolean): Unit[] {
  const codes = new Set(translated.map((code) => codeFor(code, checked)))
  const missing = [...codes].filter((code) => !isKept(libraryOf(code, checked).path))
  const size = Math.min(UNIT, Math.ceil(missing.length / availableParallelism()))
  const units: Unit[] = []
  for (let i = 0; i < missing.length; i += size) {
    const part = missing.slice(i, i + size)
    const locations = part.map((code) => libraryOf(code, checked))
    // A namespace each, because all name their kernels alike.
    const input = part.map(
      (code, k) =>
        `#undef LZ_LIBRARY\n#undef LZ_WAITS\n#define LZ_LIBRARY ${locations[k].symbol}\nnamespace lz_source_${k} {\n${code}}\n`,
    )
    units.push({ locations, beside: besideOf(locations[0].path), input: input.join("") })
  }
  return units
}

function finishUnit({ locations, beside }: Unit, succeeded: boolean): void {
  try {
    if (!succeeded) return
    for (const { path } of locations) shareAs(beside, path)
    compilerStats.compiled += locations.length
  } finally {
    rmSync(beside, { force: true })
  }
}

/**
 * Compiles translated sources without function constants for later: those that are not on disk, many at once, on all processors. What
 * does not compile is left out without a word, because {@link compileLibrary} will say what is wrong with it.
 */
export async function compileAhead(translated: readonly string[], checked: boolean): Promise<void> {
  const units = missingUnits(translated, checked)
  if (units.length === 0) return
  const used = findCompiler()
  // Once, before several processes want it.
  prelude(used, checked)
  const work = async (): Promise<void> => {
    for (let unit = units.pop(); unit !== undefined; unit = units.pop())
      finishUnit(unit, await compileUnit(used, unit, checked))
  }
  await Promise.all(Array.from({ length: availableParallelism() }, work))
  pruneOnce(cacheFolder())
}

const compileUnit = (used: Compiler, { beside, input }: Unit, checked: boolean): Promise<boolean> =>
  new Promise((done) => {
    const child = spawn(used.command, commandFor(used, beside, checked), {
      ...RUN,
      stdio: ["pipe", "ignore", "ignore"],
    })
    child.on("error", () => done(false)).on("close", (status) => done(status === 0))
    // A compiler that stops reading says why by its status.
    child.stdin.on("error", () => {}).end(input)
  })

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`

/** Does what {@link compileAhead} does, and waits for it. */
export function compileTogether(translated: readonly string[], checked: boolean): void {
  const units = missingUnits(translated, checked)
  // One by itself is compiled when it is loaded.
  if (units.length === 0 || (units.length === 1 && units[0].locations.length === 1)) return
  const used = findCompiler()
  prelude(used, checked)
  const atOnce = availableParallelism()
  for (let i = 0; i < units.length; i += atOnce) {
    const part = units.slice(i, i + atOnce)
    const commands = part.map((unit) => {
      const words = [used.command, ...commandFor(used, unit.beside, checked)]
      return `${words.map(quoted).join(" ")} <${quoted(`${unit.beside}.cc`)} &`
    })
    try {
      for (const { beside, input } of part) writeFileSync(`${beside}.cc`, input, { mode: 0o600 })
      spawnSync("sh", ["-c", [...commands, "wait"].join("\n")], { ...RUN, stdio: "ignore" })
    } finally {
      for (const unit of part) {
        rmSync(`${unit.beside}.cc`, { force: true })
        // A compiler that fails leaves no file.
        finishUnit(unit, existsSync(unit.beside))
      }
    }
  }
  pruneOnce(cacheFolder())
}

/** Gives a file one more name, by a copy where the file system has no links. */
function shareAs(file: string, path: string): void {
  const beside = besideOf(path)
  try {
    try {
      linkSync(file, beside)
    } catch {
      copyFileSync(file, beside)
    }
    renameSync(beside, path)
  } finally {
    rmSync(beside, { force: true })
  }
}

function readFailure(output: string, file: string): CompileFailure {
  const problems: { line: number; message: string }[] = []
  for (const text of output.split("\n")) {
    const found = /^(.*?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$/.exec(text)
    if (found && found[1] === file) problems.push({ line: Number(found[2]), message: found[3] })
  }
  return { problems, output }
}
