// `npm run demo`, `npm run demo:pointcloud` and `npm test`: from a fresh clone, with only Node and npm, to a running program. Plain Node,
// because nothing is installed yet when it starts.

import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { delimiter, join, resolve } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))
process.chdir(root)

const manifest = JSON.parse(readFileSync("package.json", "utf8"))
const pnpmVersion = manifest.devEngines.packageManager.version

const [command, ...args] = process.argv.slice(2)
const commands = {
  demo: () => demo("examples/gpt/dist/main.js"),
  "demo:pointcloud": () => demo("examples/pointcloud/dist/main.js"),
  test,
}
if (!Object.hasOwn(commands, command ?? "")) {
  console.error(`usage: node tooling/bootstrap.mjs ${Object.keys(commands).join("|")} [arguments]`)
  process.exit(2)
}
requireNode(Number(/\d+/.exec(manifest.engines.node)[0]))
process.env.PATH = join(root, "node_modules/.bin") + delimiter + process.env.PATH
process.env.TURBO_TELEMETRY_DISABLED ??= "1"
await commands[command]()

/** @param {string} program */
async function demo(program) {
  if (!(await prepare())) process.exit(1)
  if (!build()) process.exit(1)
  if (!existsSync(program)) {
    console.error(`${program} is missing although the build succeeded`)
    process.exit(1)
  }
  // In this very process, so that signals, the terminal and the exit code are the program's own.
  process.argv = [process.argv[0], resolve(program), ...args.filter((arg, i) => i > 0 || arg !== "--")]
  await import(pathToFileURL(program).href)
}

async function test() {
  if (!(await prepare())) {
    console.log("0 passed, 1 failed")
    process.exit(1)
  }
  const { ensureTestTools } = await import("./system-tools.mjs")
  ensureTestTools()
  const { runChecks } = await import("./checks.mjs")
  process.exitCode = await runChecks({ build })
}

function requireNode(major) {
  if (Number(process.versions.node.split(".")[0]) >= major) return
  console.error(`Lazuli needs Node.js ${major} or newer; this is ${process.version}. See https://nodejs.org/`)
  process.exit(1)
}

/** The system's tools and the npm packages. */
async function prepare() {
  const { ensureSystemTools } = await import("./system-tools.mjs")
  return ensureSystemTools() && install()
}

/** `pnpm install`, unless nothing that it reads has changed since the last time. */
function install() {
  const stamp = "node_modules/.lazuli-installed"
  const digest = digestOf(installInputs())
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === digest) return true
  console.log("Installing npm packages …")
  const { status, stdout } = spawnSync("npx", ["-y", `pnpm@${pnpmVersion}`, "install", "--frozen-lockfile"], {
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8",
    env: { ...process.env, CI: "true" },
  })
  if (status === 0) writeFileSync(stamp, digest)
  else console.error(`${stdout}\npnpm install failed`)
  return status === 0
}

function installInputs() {
  const folders = ["packages", "examples"].flatMap((parent) =>
    readdirSync(parent).map((name) => `${parent}/${name}`),
  )
  const manifests = [".", "benchmarks", ...folders].map((folder) => `${folder}/package.json`)
  return ["pnpm-lock.yaml", "pnpm-workspace.yaml", ...manifests].filter(existsSync)
}

function digestOf(files) {
  const hash = createHash("sha256")
  for (const file of files) hash.update(file).update("\0").update(readFileSync(file)).update("\0")
  return hash.digest("hex")
}

/** Builds every package, the native parts included. What has not changed comes from turbo's cache. */
function build() {
  console.log("Building …")
  const { status } = spawnSync(
    "turbo",
    ["run", "build", "--output-logs=errors-only", "--log-order=grouped"],
    {
      stdio: ["ignore", "inherit", "inherit"],
    },
  )
  return status === 0
}
