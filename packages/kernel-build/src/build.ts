/**
 * One build of a package's kernels, and builds again whenever a source changes.
 */
import { watch } from "node:fs"
import { join } from "node:path"
import { OWN_PLATFORM } from "./compilers"
import { buildLibrary, isFresh, libraryPath } from "./cpp"
import { buildCuda, buildMetal } from "./gpu"
import { loadCodePath, writeLoadCode } from "./load-code"
import { readPackage } from "./manifest"

/** The choice of what is built. */
export interface BuildOptions {
  /** The package's folder, the current one by default. */
  readonly folder?: string
  /** For this machine alone, and only what changed since. */
  readonly inPlace?: boolean
  /** Platforms by `process.platform` and `process.arch`; this one by default. */
  readonly platforms?: readonly string[]
  /** Is told of each step; prints by default. */
  readonly tell?: (line: string) => void
}

/**
 * Builds the kernels of a package: `native/*.cc` into one shared library a platform, `native/*.metal` and `native/*.cu` as far as there are
 * tools for them, and the load code by which the package finds them.
 *
 * @throws Error with what a compiler said, or with what is missing and the cure
 */
export async function buildKernels({
  folder = ".",
  inPlace = false,
  platforms = [OWN_PLATFORM],
  tell = console.log,
}: BuildOptions = {}): Promise<void> {
  for (const platform of platforms)
    if (!/^(linux|darwin|win32)-(x64|arm64)$/.test(platform))
      throw new Error(
        `"${platform}" is not a platform; expected one such as linux-x64, linux-arm64 or darwin-arm64`,
      )
  const of = readPackage(folder)
  if (writeLoadCode(of)) tell(`${loadCodePath(of)}: written`)
  if (of.cpp.length > 0)
    for (const platform of inPlace ? [OWN_PLATFORM] : platforms) {
      if (inPlace && isFresh(of, platform)) tell(`${libraryPath(of, platform)}: unchanged`)
      else buildLibrary(of, platform, tell)
    }
  for (const { source, said } of [...(await buildMetal(of)), ...buildCuda(of)]) tell(`${source}: ${said}`)
}

/** Milliseconds in which an editor writes its files. */
const QUIET = 100

/** Builds in place, then again after each change in native/, until `signal` ends it. A build that fails is told, and waited over. */
export async function watchKernels(options: BuildOptions = {}, signal?: AbortSignal): Promise<void> {
  const { folder = ".", tell = console.log } = options
  const build = async (): Promise<void> => {
    try {
      await buildKernels({ ...options, inPlace: true })
    } catch (error) {
      tell((error as Error).message)
    }
  }
  await build()
  let timer: ReturnType<typeof setTimeout> | undefined
  let last = Promise.resolve()
  const watcher = watch(join(folder, "native"), { recursive: true, signal }, () => {
    clearTimeout(timer)
    timer = setTimeout(() => {
      last = last.then(build)
    }, QUIET)
  })
  await new Promise<void>((done) => watcher.once("close", done))
  clearTimeout(timer)
  await last
}
