import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { isKept, kernelFolder } from "./kernel-cache"
import { privateFolder, temporaryFolder } from "./private-folder"

let scratch = ""
beforeEach(() => {
  scratch = mkdtempSync(join(tmpdir(), "lazuli-private-"))
})
afterEach(() => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
  rmSync(scratch, { recursive: true, force: true })
})
const modeOf = (path: string): number => statSync(path).mode & 0o777
const problemOf = (path: string): string => {
  const given = privateFolder(path)
  if ("path" in given) throw new Error(`${given.path} was taken`)
  return given.problem
}

describe("a folder for code", () => {
  it("is made for the user alone", () => {
    const path = join(scratch, "a/b")
    expect(privateFolder(path)).toEqual({ path })
    expect([modeOf(path), modeOf(dirname(path))]).toEqual([0o700, 0o700])
  })
  it("is closed to readers where it was open to them", () => {
    const path = join(scratch, "open")
    mkdirSync(path)
    chmodSync(path, 0o755)
    expect(privateFolder(path)).toEqual({ path })
    expect(modeOf(path)).toBe(0o700)
  })
  it("is refused where others may write, to it or above it", () => {
    const path = join(scratch, "above/within")
    mkdirSync(path, { recursive: true })
    chmodSync(path, 0o770)
    expect(problemOf(path)).toBe(`others may write to ${path}`)
    chmodSync(path, 0o700)
    chmodSync(dirname(path), 0o777)
    expect(problemOf(path)).toBe(`others may write to ${dirname(path)}`)
    // As the system's temporary folder is.
    chmodSync(dirname(path), 0o1777)
    expect(privateFolder(path)).toEqual({ path })
  })
  it("is refused where it is another user's, or a link, or no folder", () => {
    const path = join(scratch, "own")
    mkdirSync(path, { mode: 0o700 })
    symlinkSync(path, join(scratch, "link"))
    expect(problemOf(join(scratch, "link"))).toMatch(/link is a link$/)
    writeFileSync(join(scratch, "file"), "")
    expect(problemOf(join(scratch, "file"))).toMatch(/EEXIST/)
    vi.spyOn(process, "geteuid").mockReturnValue(4711)
    expect(problemOf(path)).toBe(`${path} is another user's`)
  })
  it("is taken by its path without links, which nobody can turn elsewhere", () => {
    mkdirSync(join(scratch, "real"))
    symlinkSync(join(scratch, "real"), join(scratch, "turned"))
    expect(privateFolder(join(scratch, "turned/x"))).toEqual({ path: join(scratch, "real/x") })
  })
})

it("a temporary folder has a name that nobody can know", () => {
  const [a, b] = [temporaryFolder(), temporaryFolder()]
  if (!("path" in a && "path" in b)) throw new Error("none was made")
  expect(a.path).not.toBe(b.path)
  expect(modeOf(a.path)).toBe(0o700)
  for (const { path } of [a, b]) rmSync(path, { recursive: true })
})

it("a library that another user owns is not loaded", () => {
  const path = join(scratch, "k.so")
  writeFileSync(path, "")
  expect(isKept(path)).toBe(true)
  chmodSync(path, 0o666)
  expect(isKept(path)).toBe(false)
  chmodSync(path, 0o644)
  vi.spyOn(process, "geteuid").mockReturnValue(4711)
  expect(isKept(path)).toBe(false)
})

describe("with a home that cannot be used", () => {
  const cacheFolder = (): string => kernelFolder("metal-host")
  beforeEach(() => {
    vi.stubEnv("LAZULI_CACHE_DIR", undefined)
    vi.stubEnv("XDG_CACHE_HOME", undefined)
    vi.stubEnv("HOME", "/dev/null")
    vi.stubEnv("TMPDIR", scratch)
  })
  it("kernels go to a new folder of this process, and it is said why", () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    const folder = cacheFolder()
    expect(folder).toMatch(new RegExp(`^${scratch}/lazuli-\\w{6}$`))
    expect(existsSync(folder)).toBe(true)
    expect(cacheFolder()).toBe(folder)
    expect(warn.mock.calls.map(([text]) => text)).toEqual([
      expect.stringMatching(/^compiled kernels are not kept for other processes: ENOTDIR/),
    ])
  })
  it("and temporary files that others may move, it is refused", () => {
    chmodSync(scratch, 0o777)
    vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    vi.stubEnv("HOME", "/dev/null/other")
    expect(cacheFolder).toThrow(
      /no folder for compiled kernels that is yours alone: others may write to .*LAZULI_CACHE_DIR/,
    )
  })
})
