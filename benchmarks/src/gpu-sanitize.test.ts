/** The choice of cases that reach every kernel, and the verdict on them under a sanitizer that stands in for NVIDIA's. */
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { fewest, type SanitizeOptions, sanitize } from "./gpu-sanitize"

const candidate = (name: string, kernels: string, seconds = 1) => ({ name, kernels: [...kernels], seconds })
const chosen = (...candidates: ReturnType<typeof candidate>[]): string =>
  fewest(candidates, ({ name }) => Number(name === name.toUpperCase()))
    .map(({ name }) => name)
    .join("")

it("drops cases whose kernels others reach, those that take longest first", () => {
  expect(chosen(candidate("a", "xy"), candidate("b", "y"), candidate("c", "z"))).toBe("ac")
  expect(chosen(candidate("a", "x", 3), candidate("b", "x", 1), candidate("c", "x", 2))).toBe("b")
  expect(chosen(candidate("a", "xyz", 9), candidate("b", "xy"), candidate("c", "z"))).toBe("bc")
})
it("drops cases that need libraries first", () => {
  expect(chosen(candidate("A", "xy", 1), candidate("b", "x", 5), candidate("c", "y", 5))).toBe("bc")
  expect(chosen(candidate("A", "xyz"), candidate("b", "x"))).toBe("A")
})

/** A case that stands in for one: its kernels, and something that befalls it under a tool, or in the survey. */
interface Fake {
  readonly kernels?: readonly string[]
  readonly at?: string
  readonly is?: "hang" | "crash" | "slow" | "report" | "race in a library" | "skip" | "wrong"
  /** True for one that has kernels only beside libraries. */
  readonly libraries?: boolean
}

describe("under a sanitizer", () => {
  const inTest = (name: string): string => fileURLToPath(new URL(`../test/${name}`, import.meta.url))
  let folder = ""
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "lazuli-sanitize-test-"))
  })
  afterEach(() => {
    vi.unstubAllEnvs()
    rmSync(folder, { recursive: true })
  })
  const ranOf = (): string[] => {
    const log = join(folder, "log")
    return existsSync(log) ? readFileSync(log, "utf8").trimEnd().split("\n") : []
  }
  /** The verdict, and the lines that were printed. */
  async function run(
    cases: Readonly<Record<string, Fake>>,
    options: Partial<SanitizeOptions> = {},
    how = "",
  ): Promise<{ isClean: boolean; text: string }> {
    vi.stubEnv("FAKE_CASES", JSON.stringify(cases))
    vi.stubEnv("FAKE_LOG", join(folder, "log"))
    vi.stubEnv("FAKE_SANITIZER", how)
    const lines: string[] = []
    const log = vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line))
    try {
      const isClean = await sanitize({
        command: [process.execPath, inTest("fake-job.mjs")],
        sanitizer: inTest("compute-sanitizer"),
        tools: ["memcheck", "initcheck"],
        programs: 0,
        jobs: 2,
        only: "",
        seconds: 20,
        total: Number.POSITIVE_INFINITY,
        ...options,
      })
      return { isClean, text: lines.join("\n") }
    } finally {
      log.mockRestore()
    }
  }
  const GOOD: Readonly<Record<string, Fake>> = {
    "golden a": { kernels: ["add 1", "add 2"] },
    "golden b": { kernels: ["copy 1"] },
    "native c": { kernels: ["attend 1"] },
    "loop d": { kernels: ["stage of a loop d"] },
  }

  it("passes where every kernel was made ready under every tool, those of loops in parts of memory", async () => {
    const { isClean, text } = await run(GOOD)
    expect(text).toContain(
      "memcheck: passed: 5 of 5 kernels made ready in 4 cases, 0 reports, 0 failures, 0 kernels not made ready",
    )
    // A graph copies what nobody wrote.
    expect(text).toContain("initcheck: passed: 4 of 5 kernels")
    expect(text).toMatch(/initcheck: excused, since .* copy unwritten parts of memory: stage$/m)
    expect(isClean).toBe(true)
    expect(ranOf()).toContain("memcheck in parts of memory: loop d")
    expect(ranOf()).not.toContain("memcheck without libraries: loop d")
  })

  it("fails where nothing ran", async () => {
    expect(await run({})).toMatchObject({ isClean: false, text: expect.stringContaining("no case made") })
    expect(await run({ "golden a": {} }, { tools: [] })).toMatchObject({ isClean: false })
    expect(await run(GOOD, { only: "^nothing" })).toMatchObject({ isClean: false })
    expect(await run(GOOD, { tools: [] })).toMatchObject({ isClean: true })
    for (const jobs of [0, Number.NaN]) await expect(run(GOOD, { jobs })).rejects.toThrow("--jobs")
    await expect(run(GOOD, { tools: ["memchek"] })).rejects.toThrow("there is no tool memchek")
    for (const how of ["idle", "silent"]) {
      const { isClean, text } = await run(GOOD, { tools: ["memcheck"], only: "^golden" }, how)
      expect(isClean).toBe(false)
      expect(text).toContain("memcheck: FAILED, not complete: 0 of 3 kernels made ready in 0 cases")
      expect(text).toContain("without a summary of memcheck")
    }
  }, 120_000)

  it("says at once that there is no sanitizer, and where it may be", async () => {
    const sanitizer = join(folder, "nowhere")
    await expect(run(GOOD, { sanitizer })).rejects.toThrow(/ENOENT.*--sanitizer PATH/)
    await expect(run(GOOD, {}, "broken")).rejects.toThrow("--version ended with 3: no device")
    expect(ranOf()).toEqual([])
  })

  it("excuses initcheck a kernel that only libraries need, with the reason, and no other", async () => {
    const beside = await run({ ...GOOD, "golden e": { kernels: ["cast 1"], libraries: true } })
    expect(beside.isClean).toBe(true)
    expect(beside.text).toContain("initcheck: passed: 4 of 6 kernels")
    expect(beside.text).toMatch(
      /initcheck: excused, since they are only made ready beside cuBLASLt or cuDNN.*: cast, stage$|: stage, cast$/m,
    )
    expect(beside.text).toContain("memcheck: passed: 6 of 6 kernels")
    const other = await run({ ...GOOD, "golden e": { kernels: ["cast 1"], at: "initcheck", is: "skip" } })
    expect(other.isClean).toBe(false)
    expect(other.text).toContain("initcheck: not made ready: cast")
    expect(other.text).toContain("memcheck: passed")
  }, 120_000)

  it("gives initcheck another case for a kernel that a loop in parts of memory makes ready too", async () => {
    const shared = {
      "golden e": { kernels: ["add 3"] },
      "loop d": { kernels: ["stage of a loop d", "add 3"] },
    }
    const { isClean, text } = await run({ ...GOOD, ...shared })
    expect(text).toContain("initcheck: passed: 5 of 6 kernels")
    expect(isClean).toBe(true)
    expect(ranOf()).toContain("initcheck without libraries: golden e")
    expect(ranOf()).not.toContain("memcheck without libraries: golden e")
  })

  it("ends a case that takes too long, in the survey too, and goes on", async () => {
    const hangs: Fake = { kernels: ["spin 1"], at: "survey", is: "hang" }
    const { isClean, text } = await run({ "golden 0": hangs, ...GOOD }, { seconds: 8, tools: ["memcheck"] })
    expect(isClean).toBe(false)
    expect(text).toContain("FAIL survey without libraries: golden 0: took more than 8 s")
    expect(text).toContain("memcheck: passed: 5 of 5 kernels")
  }, 120_000)

  it("runs again what a process that ended early had run, but for its last case", async () => {
    const crashes: Fake = { kernels: ["bad 1"], at: "memcheck", is: "crash" }
    const { isClean, text } = await run({ ...GOOD, "native x": crashes }, { jobs: 1, tools: ["memcheck"] })
    expect(isClean).toBe(false)
    expect(text).toContain("FAIL memcheck without libraries: native x: ended with 7")
    expect(text).toContain("memcheck: FAILED: 5 of 6 kernels")
    expect(text).toContain("memcheck: not made ready: bad")
    expect(ranOf().filter((each) => each === "memcheck without libraries: golden a")).toHaveLength(2)
    expect(ranOf().filter((each) => each === "memcheck without libraries: native x")).toHaveLength(1)
  }, 120_000)

  it("fails by reports and wrong results, and names the case", async () => {
    const report = await run({ ...GOOD, "native x": { kernels: ["bad 1"], at: "memcheck", is: "report" } })
    expect(report.isClean).toBe(false)
    expect(report.text).toContain(
      "REPORT memcheck without libraries, about native x: ========= Invalid __global__ read of size 4 bytes\n=========     at there+0x10",
    )
    expect(report.text).toContain("memcheck: FAILED: 6 of 6 kernels made ready in 5 cases, 1 reports")
    for (const at of ["survey", "memcheck"]) {
      const wrong = await run({ ...GOOD, "native x": { kernels: ["bad 1"], at, is: "wrong" } })
      expect(wrong.isClean).toBe(false)
      expect(wrong.text).toContain("native x: it is wrong")
    }
  }, 120_000)

  it("counts races inside the kernels of libraries apart", async () => {
    const race: Fake = { kernels: ["bad 1"], at: "racecheck", is: "race in a library" }
    const { isClean, text } = await run({ ...GOOD, "native x": race }, { tools: ["racecheck"] })
    expect(text).toContain("racecheck: passed: 6 of 6 kernels made ready in 5 cases, 0 reports")
    expect(text).toContain("racecheck: 1 more reports are about the own kernels of CUDA's libraries")
    expect(isClean).toBe(true)
  }, 120_000)

  it("goes on where time was up", async () => {
    const state = join(folder, "state")
    const slow: Fake = { kernels: ["late 1"], at: "memcheck", is: "slow" }
    const cases = { "golden 0": slow, ...GOOD }
    const none = await run(cases, { state, total: 0 })
    expect(none).toMatchObject({ isClean: false, text: expect.stringContaining("survey is not complete") })
    expect(ranOf()).toEqual([])
    expect(await run(cases, { state, tools: [] })).toMatchObject({ isClean: true })
    const surveyed = ranOf().length
    // The slow case is under way by then.
    const ended = new AbortController()
    const poll = setInterval(() => {
      if (ranOf().some((each) => each.startsWith("memcheck") && each.includes("golden 0"))) ended.abort()
    }, 20)
    const half = await run(cases, { state, jobs: 1, signal: ended.signal })
    clearInterval(poll)
    expect(half.isClean).toBe(false)
    expect(half.text).toMatch(/memcheck: FAILED, not complete: 1 of 6 kernels/)
    expect(half.text).toContain("initcheck: FAILED, not complete: 0 of 6 kernels")
    // As of a process that ended before its first case.
    const ofInitcheck = join(state, "initcheck-without-libraries")
    appendFileSync(join(ofInitcheck, "journal.jsonl"), `${JSON.stringify({ whole: "1.jsonl" })}\n`)
    const rest = await run(cases, { state, jobs: 1 })
    expect(rest.isClean).toBe(true)
    expect(rest.text).toContain("memcheck: passed: 6 of 6 kernels made ready in 5 cases")
    expect(rest.text).toContain("initcheck: passed: 5 of 6 kernels made ready in 4 cases")
    const all = ranOf()
    expect(all.filter((each) => each.startsWith("survey"))).toHaveLength(surveyed)
    expect(new Set(all).size).toBe(all.length)
    await expect(run(cases, { state, programs: 1 })).rejects.toThrow("is of another run")
  }, 120_000)
})
