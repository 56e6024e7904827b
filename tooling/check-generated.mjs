// Holds generated sources to their generators: an op without its method, a method edited by hand, or an overload that its declaration does
// not make would pass every other check. What `npm run generate` makes of docs/ops.md needs the backends, and is compared by a test of
// packages/conformance. docs/distributed.md has its cost model's numbers from collective-costs.mjs.
//
//   node tooling/check-generated.mjs

import { spawnSync } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { generateSignatures } from "./signatures.mjs"

const root = join(dirname(fileURLToPath(import.meta.url)), "..")
const FILES = ["packages/core/src/fluent.ts", "packages/core/src/methods.ts"]

/** The texts that the generator makes. The files are as they were afterwards. */
function generated() {
  const before = FILES.map((file) => readFileSync(join(root, file), "utf8"))
  try {
    run(process.execPath, ["tooling/generate-methods.mjs"])
    run("biome", ["check", "--write", ...FILES])
    return FILES.map((file) => readFileSync(join(root, file), "utf8"))
  } finally {
    FILES.forEach((file, i) => writeFileSync(join(root, file), before[i]))
  }
}

function run(program, args) {
  const path = `${join(root, "node_modules/.bin")}:${process.env.PATH}`
  const { status, stderr } = spawnSync(program, args, {
    cwd: root,
    env: { ...process.env, PATH: path },
    encoding: "utf8",
  })
  if (status !== 0) throw new Error(`${program} ${args.join(" ")} failed: ${stderr}`)
}

const texts = generated()
const headers = spawnSync(
  process.execPath,
  ["tooling/run-source.mjs", "tooling/generate-params.ts", "--check"],
  {
    cwd: root,
    encoding: "utf8",
  },
)
const costs = spawnSync(process.execPath, ["tooling/collective-costs.mjs", "--check"], {
  cwd: root,
  encoding: "utf8",
})
const signatures = generateSignatures(root)
const stale = [
  ...FILES.filter((file, i) => readFileSync(join(root, file), "utf8") !== texts[i]),
  ...signatures.changed.keys(),
  ...headers.stdout.split("\n").filter((line) => line.endsWith(".h")),
  ...costs.stdout.split("\n").filter(Boolean),
]
for (const file of stale) console.error(`${file} is not what \`npm run generate\` writes`)
for (const problem of signatures.problems) console.error(problem)
const failed = [headers, costs].filter(({ status }) => status !== 0)
for (const { stderr } of failed) console.error(stderr)
const problems = stale.length + signatures.problems.length + failed.length
console.log(
  `generated sources: ${FILES.length} files, ${signatures.overloads} overloads, ${problems} problems`,
)
process.exitCode = problems ? 1 : 0
