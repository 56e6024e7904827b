// Puts the binary into a platform's package before it is packed: `prepack` of packages/*/npm/*, run in that folder. The binary comes from a
// build for that platform in the parent package (build/ or build-PLATFORM/), or was put there before. Fails where there is none, or one
// that would not load elsewhere.

import { spawnSync } from "node:child_process"
import { copyFileSync, existsSync, readFileSync, renameSync, rmSync } from "node:fs"
import { basename, join, resolve } from "node:path"
import { libraryProblems, processor, symbolProblems } from "./binary.mjs"

const manifest = JSON.parse(readFileSync("package.json", "utf8"))
const platform = basename(resolve("."))
const binary = manifest.main
const [os, arch] = platform.split("-")

const built = [`build-${platform}`, ...(platform === `${process.platform}-${process.arch}` ? ["build"] : [])]
  .map((folder) => join("../..", folder, binary))
  .find(existsSync)
if (built !== undefined) {
  // Under another name first: two may pack at once.
  const whole = `.${process.pid}-${binary}`
  copyFileSync(built, whole)
  // Names of local symbols are of use to a profiler alone.
  const tool = arch === "arm64" && process.arch !== "arm64" ? "aarch64-linux-gnu-strip" : "strip"
  const stripped = os !== "linux" || spawnSync(tool, ["--strip-unneeded", whole]).status === 0
  if (stripped) renameSync(whole, binary)
  else rmSync(whole)
  if (!stripped) fail(`${tool} failed`)
}
if (!existsSync(binary))
  fail(
    `there is no ${binary} for ${platform}: build it there, and put it here or into ../../build-${platform}`,
  )
if (os === "linux") {
  if (processor(binary) !== arch) fail(`${binary} is for ${processor(binary)}, not for ${arch}`)
  const problems = [...symbolProblems(binary), ...libraryProblems(binary)]
  if (problems.length > 0) fail(`${binary} would not load everywhere: ${problems.join("; ")}`)
}

function fail(reason) {
  console.error(`${manifest.name} cannot be packed: ${reason}`)
  process.exit(1)
}
