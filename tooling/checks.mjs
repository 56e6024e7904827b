// The whole test: style, types, layers, the build, the published form of each package, and every unit test, in one
// count. Each check counts as one test.

import { spawn } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { runRegistry } from "./registry/main.mjs"
import { isForeign, pack, publishedPackages, tarballProblems } from "./release/tarballs.mjs"
import { outcomeOf } from "./test-report.mjs"

const MAX_LINES_OF_A_FAILURE = 150

/** Runs everything and prints `N passed, N failed` as its last line. Returns the exit code. */
export async function runChecks({ build }) {
  const outcome = { passed: 0, failed: [], skipped: 0 }
  const scratch = mkdtempSync(join(tmpdir(), "lazuli-test-"))
  try {
    await check(outcome, "style (biome)", "biome", ["check", "--diagnostic-level=warn"])
    await check(outcome, "native style (clang-format)", "node", ["tooling/format-native.mjs", "--check"])
    await check(outcome, "comments", "node", ["tooling/check-comments.mjs"])
    await check(outcome, "types (tsc)", "tsc", ["--noEmit"])
    await check(outcome, "public types", "node", ["tooling/check-public-types.mjs"])
    await check(outcome, "layers", "node", ["tooling/check-layers.mjs", "--only", "layers"])
    await check(outcome, "import circles", "node", ["tooling/check-layers.mjs", "--only", "circles"])
    await check(outcome, "generated sources", "node", ["tooling/check-generated.mjs"])
    await check(outcome, "commit messages", "node", ["tooling/check-commits.mjs"])

    const built = build()
    count(outcome, "build", built)
    for (const folder of nativePackages()) {
      if (existsSync(join(folder, "native/CMakeLists.txt"))) continue
      console.log(`skip  native build of ${folder}: it has no native/CMakeLists.txt`)
      outcome.skipped++
    }
    await published(outcome, scratch, built)
    await unitTests(outcome, scratch)
    await fuzz(outcome)
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }

  if (outcome.failed.length) {
    console.log(`\nFailed:\n${outcome.failed.map((name) => `  ${name}`).join("\n")}`)
  }
  const skipped = outcome.skipped ? `, ${outcome.skipped} skipped` : ""
  console.log(`\n${outcome.passed} passed, ${outcome.failed.length} failed${skipped}`)
  return outcome.failed.length ? 1 : 0
}

function count(outcome, name, passed, seconds) {
  if (passed) outcome.passed++
  else outcome.failed.push(name)
  console.log(
    `${passed ? "ok  " : "FAIL"}  ${name}${seconds === undefined ? "" : ` (${seconds.toFixed(1)} s)`}`,
  )
}

async function check(outcome, name, program, args) {
  const start = performance.now()
  const { status, output } = await run(program, args)
  count(outcome, name, status === 0, (performance.now() - start) / 1000)
  if (status !== 0) show(output)
}

/** The beginning of what a failed check had to say; `npm run check` shows the rest. */
function show(output) {
  if (output === "") return
  const lines = output.trimEnd().split("\n")
  const shown = lines.slice(0, MAX_LINES_OF_A_FAILURE)
  if (shown.length < lines.length) shown.push(`… and ${lines.length - shown.length} lines more`)
  console.log(shown.map((line) => `      ${line}`).join("\n"))
}

/**
 * The published form: the packed tarballs, judged by what they hold, by publint and by are-the-types-wrong, and used in a folder of their
 * own.
 */
async function published(outcome, scratch, built) {
  const tarballs = new Map()
  for (const one of publishedPackages()) {
    if (isForeign(one)) continue
    const { folder, name } = one
    if (!built) {
      console.log(`skip  tarball, publint and attw of ${name}: the build failed`)
      outcome.skipped += 3
      continue
    }
    let tarball
    try {
      tarball = pack(folder, scratch)
    } catch (error) {
      count(outcome, `pack ${name}`, false)
      show(error.message)
      continue
    }
    tarballs.set(name, tarball)
    const problems = tarballProblems(tarball)
    count(outcome, `tarball ${name}`, problems.length === 0)
    show(problems.join("\n"))
    await check(outcome, `publint ${name}`, "publint", [tarball, "--strict"])
    // A platform's package has a binary and no types.
    if (one.manifest.os) continue
    await check(outcome, `attw ${name}`, "attw", [
      tarball,
      "--profile",
      "esm-only",
      "--no-color",
      "--no-emoji",
    ])
  }
  if (!built) return
  await runRegistry({ packed: tarballs }, ({ name, problem, seconds }) => {
    count(outcome, `from a registry: ${name}`, problem === null, seconds)
    show(problem ?? "")
  })
}

/** One run of vitest over the repository, shown as it goes and counted from its report. */
async function unitTests(outcome, scratch) {
  const [report, list] = [join(scratch, "vitest.json"), join(scratch, "files.json")]
  await run("vitest", ["list", "--filesOnly", `--json=${list}`])
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`]
  const { status } = await run("vitest", ["run", ...reporters], ".", "inherit")
  const files = (readJson(list) ?? []).map(({ file }) => file)
  const { passed, failed, skipped } = outcomeOf(readJson(report), files, resolve("."))
  outcome.passed += passed
  outcome.skipped += skipped
  outcome.failed.push(...failed)
  // An error outside any test, or a run that died before its report.
  if (status !== 0 && failed.length === 0) outcome.failed.push(`vitest (exit code ${status})`)
}

const readJson = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : null)

/** A fixed number of random attempts, whose rates may only fall. */
async function fuzz(outcome) {
  const start = performance.now()
  const { status, output } = await run("node", ["tooling/run-source.mjs", "tooling/fuzz/main.ts"])
  count(outcome, "fuzz", status === 0, (performance.now() - start) / 1000)
  show(output)
}

function nativePackages() {
  return packages()
    .filter(({ manifest }) => manifest.scripts?.["build:native"])
    .map(({ folder }) => folder)
}

function packages() {
  return readdirSync("packages")
    .map((name) => `packages/${name}`)
    .filter((folder) => existsSync(`${folder}/package.json`))
    .map((folder) => {
      const manifest = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"))
      return { folder, name: manifest.name, manifest }
    })
}

function run(program, args, cwd = ".", stdio = "pipe") {
  return new Promise((done) => {
    const child = spawn(program, args, { cwd, stdio: ["ignore", stdio, stdio] })
    let output = ""
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text) => {
        output += text
      })
    }
    child.on("error", (error) => done({ status: 1, output: error.message }))
    child.on("close", (status, signal) => done({ status: status ?? signal, output }))
  })
}
