// A build's needs of the system: a C++20 compiler, CMake, BLAS, LAPACK and Highway; and asmjit, which it does
// without where that cannot be had. Installs what is missing where it may (root on Debian or Ubuntu) and otherwise says exactly
// what to install.

import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { delimiter, join } from "node:path"

const MIN_CMAKE = [3, 22]

/** Each requirement with its test and its name in the package managers. */
const REQUIREMENTS = [
  {
    what: "a C++ compiler",
    present: () =>
      process.env.CXX ? onPath(process.env.CXX.split(" ")[0]) : ["g++", "clang++", "c++"].some(onPath),
    apt: "g++",
    dnf: "gcc-c++",
    brew: null, // xcode-select --install
  },
  {
    what: `CMake ${MIN_CMAKE.join(".")} or newer`,
    present: hasCMake,
    apt: "cmake",
    dnf: "cmake",
    brew: "cmake",
  },
  {
    what: "make or ninja",
    present: () => ["ninja", "make"].some(onPath),
    apt: "ninja-build",
    dnf: "ninja-build",
    brew: "ninja",
  },
  {
    what: "OpenBLAS",
    present: () => process.platform === "darwin" || hasHeader("cblas.h"),
    apt: "libopenblas-dev",
    dnf: "openblas-devel",
    brew: null, // macOS has Accelerate
  },
  {
    what: "Highway",
    present: () => hasHeader("hwy/highway.h"),
    apt: "libhwy-dev",
    dnf: "highway-devel",
    brew: "highway",
  },
]

/** Machine code at run time: for x64 alone, where Debian's static library is what the addon links. */
const ASMJIT = "libasmjit-dev"

/** Makes sure that the native code can be built. Returns false, having said what to do, where that cannot be. */
export function ensureSystemTools() {
  if (process.platform === "win32") {
    console.error("Lazuli builds on Linux and macOS. On Windows, use the Windows Subsystem for Linux.")
    return false
  }
  const mayInstall = onPath("apt-get") && process.getuid?.() === 0
  // By itself, because a distribution without it must not stop the others.
  if (mayInstall && process.arch === "x64" && !hasDebianPackage(ASMJIT)) aptInstall([ASMJIT])
  let missing = REQUIREMENTS.filter((requirement) => !isPresent(requirement))
  if (missing.length === 0) return true

  if (mayInstall) {
    aptInstall(missing.map((requirement) => requirement.apt))
    missing = REQUIREMENTS.filter((requirement) => !isPresent(requirement))
    if (missing.length === 0) return true
  }
  console.error(
    `The native code needs ${missing.map(({ what }) => what).join(", ")}, which this system lacks.`,
  )
  console.error(`Install with:\n\n  ${installCommand(missing)}\n\nand run the same command again.`)
  return false
}

/** The compilers with which tests read kernels; they say so where there is none. */
export function ensureTestTools() {
  const isThere = [20, 19, 18, 17].some((version) => onPath(`clang++-${version}`)) || onPath("clang++")
  if (!isThere && onPath("apt-get") && process.getuid?.() === 0) aptInstall(["clang-19"])
}

/** On Debian the package manager knows best: another package's cblas.h is not OpenBLAS's. */
function isPresent({ present, apt }) {
  return apt.startsWith("lib") && onPath("dpkg-query") ? hasDebianPackage(apt) : present()
}

function aptInstall(packages) {
  console.log(`Installing ${packages.join(" ")} with apt-get …`)
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" }
  const apt = (...args) =>
    spawnSync("apt-get", ["-o", "DPkg::Lock::Timeout=300", "-qq", ...args], {
      stdio: ["ignore", "ignore", "inherit"],
      env,
    })
  const install = () => apt("install", "-y", "--no-install-recommends", ...packages).status === 0
  apt("update")
  // Another apt-get may hold the lists' lock, for which there is no time-out of its own: once more after a while.
  if (install()) return
  spawnSync("sleep", ["10"])
  apt("update")
  install()
}

function installCommand(missing) {
  const names = (manager) => missing.map((requirement) => requirement[manager]).filter(Boolean)
  if (process.platform === "darwin") {
    const compiler = missing.some(({ apt }) => apt === "g++") ? ["xcode-select --install"] : []
    return [...compiler, ...(names("brew").length ? [`brew install ${names("brew").join(" ")}`] : [])].join(
      "\n  ",
    )
  }
  if (onPath("dnf")) return `sudo dnf install ${names("dnf").join(" ")}`
  return `sudo apt-get update && sudo apt-get install --no-install-recommends ${names("apt").join(" ")}`
}

function hasDebianPackage(name) {
  const { stdout } = spawnSync("dpkg-query", ["--status", name], { encoding: "utf8" })
  return /^Status: .* installed$/m.test(stdout)
}

function hasCMake() {
  const { stdout } = spawnSync("cmake", ["--version"], { encoding: "utf8" })
  const [, major, minor] = /version (\d+)\.(\d+)/.exec(stdout ?? "") ?? []
  return Number(major) > MIN_CMAKE[0] || (Number(major) === MIN_CMAKE[0] && Number(minor) >= MIN_CMAKE[1])
}

function hasHeader(name) {
  const roots = [
    "/usr/include",
    "/usr/local/include",
    "/opt/homebrew/include",
    ...(process.env.CPATH ?? "").split(delimiter),
  ]
  return roots.filter(existsSync).some((root) => {
    if (existsSync(join(root, name))) return true
    const folders = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    return folders.some((folder) => existsSync(join(root, folder.name, name)))
  })
}

function onPath(program) {
  if (program.includes("/")) return existsSync(program)
  return (process.env.PATH ?? "").split(delimiter).some((folder) => existsSync(join(folder, program)))
}
