// `npm run sanitize -- address|undefined|thread [vitest paths]`: builds the CPU backend's addon with a sanitizer, into
// packages/backend-cpu/build-SANITIZER, and runs the engine's tests with it. `npm run sanitize -- kernels [part of a test's name …]` runs
// the kernels' own tests, their vector loops included, with checks of addresses and of undefined behaviour. Their loops are built for this
// machine's instruction set, or for LAZULI_SIMD, alone. For Linux with GCC.

import { spawnSync } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { availableParallelism, tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const libraries = { address: "libasan.so", undefined: "libubsan.so", thread: "libtsan.so" }
const [kind, ...paths] = process.argv.slice(2)
if (kind !== "kernels" && !(kind in libraries)) {
  console.error(
    "usage: npm run sanitize -- address|undefined|thread [vitest paths], or kernels [parts of names]",
  )
  process.exit(2)
}
const chosen =
  paths.length > 0
    ? paths
    : [
        ...[
          "async",
          "bounds",
          "evaluate",
          "growth",
          ...["native", "map", "command-buffer", "plans"],
          "raw-commands",
          "streams",
          "stress",
          "workers",
        ],
        ...["prologue", "epilogue", "fusion", "long-rows", "softmax"],
      ].map((name) => `packages/backend-cpu/src/${name}.test.ts`)

const root = fileURLToPath(new URL("..", import.meta.url))
const backend = `${root}packages/backend-cpu`
const folder = `${backend}/build-${kind}`
const headers = createRequire(`${backend}/package.json`)("node-api-headers").include_dir
const generator = spawnSync("ninja", ["--version"]).status === 0 ? "Ninja" : "Unix Makefiles"
const threads = process.env.CMAKE_BUILD_PARALLEL_LEVEL ?? String(availableParallelism())
const reports = mkdtempSync(join(tmpdir(), "lazuli-sanitize-"))

/** Runs a program, and says whether it succeeded. */
function run(command, args, env = {}) {
  const options = { stdio: "inherit", cwd: root, env: { ...process.env, ...env } }
  const { status, error } = spawnSync(command, args, options)
  if (error) console.error(`cannot run ${command}: ${error.message}`)
  return status === 0
}

/** The instruction set of this processor: others would only be compiled. LAZULI_SIMD chooses another one. */
function instructionSet() {
  if (process.env.LAZULI_SIMD) return process.env.LAZULI_SIMD
  if (process.arch === "arm64") return "neon"
  const [, line] = /^flags\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))
  const has = (...flags) => flags.every((flag) => line.split(" ").includes(flag))
  if (!has("avx2", "fma", "bmi1", "bmi2")) return "sse4"
  return has("avx512f", "avx512bw", "avx512dq", "avx512vl") ? "avx512" : "avx2"
}

function fail(what) {
  console.error(`sanitize ${kind}: ${what}`)
  rmSync(reports, { recursive: true, force: true })
  process.exit(1)
}

// vitest runs the files that are there and does not mention the others.
const absent = kind === "kernels" ? [] : chosen.filter((path) => !existsSync(join(root, path)))
if (absent.length > 0) fail(`there is no ${absent.join(", ")}`)

if (kind === "kernels") {
  const configure = [
    ...["-S", `${backend}/native/tests`, "-B", folder, "-G", generator],
    ...["-DLAZULI_SANITIZE=ON", `-DLAZULI_SIMD_ONLY=${instructionSet()}`],
  ]
  if (!run("cmake", configure) || !run("cmake", ["--build", folder, "--parallel", threads]))
    fail("the tests do not build")
  // Memory leaked on purpose, such as the thread pool, is no finding.
  const env = { ASAN_OPTIONS: "detect_leaks=0", UBSAN_OPTIONS: "print_stacktrace=1" }
  if (!run(`${folder}/kernel_tests`, paths, env)) fail("tests failed")
  rmSync(reports, { recursive: true, force: true })
  console.log("sanitize kernels: nothing found")
  process.exit(0)
}

const configure = [
  "-S",
  `${backend}/native`,
  "-B",
  folder,
  "-G",
  generator,
  `-DLAZULI_SANITIZE=${kind}`,
  `-DNODE_API_HEADERS=${headers}`,
]
if (!run("cmake", configure) || !run("cmake", ["--build", folder, "--parallel", threads]))
  fail("the addon does not build")

const library = spawnSync("g++", [`-print-file-name=${libraries[kind]}`], { encoding: "utf8" }).stdout.trim()
if (!existsSync(library)) fail(`${libraries[kind]} is not there; install GCC's sanitizers`)

// Node itself is not built with a sanitizer, so nothing stops at a report, and those that do not touch the addon are not ours.
const log = `log_path=${reports}/report`
const found = {
  ASAN_OPTIONS: `detect_leaks=0:${log}`,
  UBSAN_OPTIONS: `print_stacktrace=1:${log}`,
  TSAN_OPTIONS: `exitcode=0:report_signal_unsafe=0:${log}`,
}
// ThreadSanitizer needs addresses where it expects them.
const start = kind === "thread" ? ["setarch", "-R", process.execPath] : [process.execPath]
const vitest = [
  `${root}node_modules/vitest/vitest.mjs`,
  "run",
  "--reporter=dot",
  "--testTimeout=300000",
  "--hookTimeout=300000",
  ...chosen,
]
const passed = run(start[0], [...start.slice(1), ...vitest], {
  ...found,
  LD_PRELOAD: library,
  LAZULI_CPU_ADDON: `${folder}/lazuli_cpu.node`,
})
const separator = /^=+$/m
/** The innermost frame of a stack that is not one of a library's function, such as `memmove`. */
const innermost = (stack) =>
  stack
    .split("\n")
    .find((line) => /^\s+#\d/.test(line) && !/\(lib(tsan|stdc\+\+|c|gcc_s)\b[^(]*\)$/.test(line))
/** A race within Node, which our code may have called: it frees messages in one thread and reads them in another. */
function isWithinNode(report) {
  const accesses = report
    .split(/\n\s*\n/)
    .filter((part) => /^\s+(Previous )?(atomic )?(read|write) of size/im.test(part))
  return accesses.length > 1 && accesses.every((stack) => /\(node\+/.test(innermost(stack) ?? ""))
}
const ours = readdirSync(reports)
  .flatMap((file) => readFileSync(join(reports, file), "utf8").split(separator))
  .filter((report) => /lazuli_cpu\.node|packages\/backend-cpu\/native/.test(report) && !isWithinNode(report))
for (const report of ours) console.error(report)
if (ours.length > 0) fail(`${ours.length} reports`)
if (!passed) fail("tests failed")
rmSync(reports, { recursive: true, force: true })
console.log(`sanitize ${kind}: nothing found`)
