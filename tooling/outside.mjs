// The plugin story as a user lives it: packed tarballs, installed in a folder outside the workspace, and there a program
// that uses a third-party primitive on every backend, a package made of that primitive's files as its README says, and packages
// that do it wrong. `node tooling/outside.mjs` packs what is
// built and runs it alone.

import { spawnSync } from "node:child_process"
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { delimiter, dirname, join, resolve } from "node:path"
import { pathToFileURL } from "node:url"

/** The packages that the program needs. */
const NEEDED = [
  ...["core", "transforms", "compile", "nn", "backend-cpu", "gpu-kernels", "backend-metal"],
  ...["conformance", "lazuli", "ext-axpby"],
]
const platform = `${process.platform}-${process.arch}`

const use = `
import assert from "node:assert/strict"
import { createRequire } from "node:module"
import { mx } from "lazuli"
import "@lazuli/backend-metal"
import { axpby } from "@lazuli/ext-axpby"

assert.ok(createRequire(import.meta.url).resolve("@lazuli/ext-axpby/package.json").startsWith(process.argv[2]))
const NAME = "@lazuli/ext-axpby/axpby"
assert.equal(mx.listPrimitives().find((p) => p.name === NAME).source, "@lazuli/ext-axpby")

const devices = process.argv[3] === "cpu" ? [mx.cpu] : [mx.cpu, mx.gpu]
for (const device of devices) {
  mx.setDefaultDevice(device)
  mx.resetBackendStats()
  const [x, y] = [mx.array([[1, 2], [3, 4]]), mx.array([10, 20])]
  const f = (a, b) => axpby(a, b, 3, 0.5)
  const want = [[8, 16], [14, 22]]
  assert.deepEqual(f(x, y).tolist(), want, "runs")
  assert.deepEqual(mx.backendStats(), {}, "by its kernel")
  assert.deepEqual(mx.grad((b) => f(x, b).sum())(y).tolist(), [1, 1], "differentiates")
  assert.deepEqual(mx.jvp((a) => f(a, y), [x], [mx.ones([2, 2])])[1][0].tolist(), [[3, 3], [3, 3]], "forward, by one argument")
  assert.deepEqual(mx.vmap(f, { inAxes: [1, null] })(x, y).tolist(), [[8, 19], [11, 22]], "vectorizes")
  const compiled = mx.compile((a, b) => [f(a, b), mx.grad((c) => f(c, b).square().sum())(a)])
  for (let i = 0; i < 2; i++)
    assert.deepEqual(compiled(x, y).map((a) => a.tolist()), [want, [[48, 96], [84, 132]]], "compiles")
}
console.log("ok")
`

const types = `
import { mx } from "lazuli"
import { axpby } from "@lazuli/ext-axpby"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"

const scale = definePrimitive({
  name: "@me/ops/scale",
  api: 0,
  params: { by: "f64", mode: ["up", "down"] },
  infer: ([x]) => x,
  scalar: (s, [x], { by, mode }) => s.multiply(x, s.constant(mode === "up" ? by : 1 / by, s.dtypeOf(x))),
})
export const out: mx.Array = scale([axpby(mx.ones([2]), 1, 2, 3)], { by: 2, mode: "up" })
provideKernels({ form: "native", package: "@me/ops", library: "x.so" })
// @ts-expect-error the factor is a number
scale([out], { by: "2", mode: "up" })
// @ts-expect-error a definition says for which plugin API it was written
definePrimitive({ name: "@me/ops/other", infer: ([x]) => x, scalar: (_s, [x]) => x })
`

const rival = `
import { definePrimitive } from "@lazuli/core/plugin"
definePrimitive({ name: "@lazuli/ext-axpby/axpby", api: 0, infer: ([x]) => x, decompose: ([x]) => x })
`
const old = `
import { definePrimitive } from "@lazuli/core/plugin"
definePrimitive({ name: "@old/ops/twice", api: 99, infer: ([x]) => x, decompose: ([x]) => x.add(x) })
`

/** Packages that are installed beside the tarballs, and what importing them must say; DIR is the folder. */
const wrong = [
  {
    name: "@rival/axpby",
    code: rival,
    program: 'import "@lazuli/ext-axpby"; import "@rival/axpby"',
    says: [
      "[@lazuli/ext-axpby/axpby] is already registered by @lazuli/ext-axpby (DIR/node_modules/@lazuli/ext-axpby/dist/index.js)",
      "and @rival/axpby (DIR/node_modules/@rival/axpby/index.js) registers it again",
    ],
  },
  {
    name: "@old/ops",
    code: old,
    program: 'import "@old/ops"',
    says: [
      "[@old/ops/twice] was written for plugin API 99, but the installed @lazuli/core has plugin API",
      "Install a version of @old/ops made for it",
    ],
  },
]

/**
 * Runs all of it. `tarballs` maps names of packages to packed files.
 *
 * @returns {{ name: string, problem: string | null }[]} one entry a check
 */
export function runOutside(tarballs) {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-outside-"))
  const results = []
  const check = (name, problem) => results.push({ name: `outside the workspace: ${name}`, problem })
  try {
    install(folder, tarballs)
    const addon = resolve("packages/backend-metal/build/lazuli_metal_host.node")
    const env = existsSync(addon) ? { LAZULI_METAL_HOST_ADDON: addon } : {}
    const used = node(folder, "use.mjs", use, [folder, existsSync(addon) ? "all" : "cpu"], env)
    check("axpby runs, differentiates, vectorizes and compiles", used.status === 0 ? null : used.output)
    check("a package made of axpby's files builds and passes its tests", ownPackage(folder, env))
    for (const { name, program, says } of wrong) {
      const { status, output } = node(folder, "wrong.mjs", program)
      const text = output.replaceAll(folder, "DIR")
      check(
        `${name} is refused`,
        status !== 0 && says.every((part) => text.includes(part))
          ? null
          : `expected ${says.join(" … ")}\n${text}`,
      )
    }
    check("types", typecheck(folder))
  } catch (error) {
    check("installs", error.message)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return results
}

/** Installs what `npm install` would: nothing here depends on anything but these packages. */
function install(folder, tarballs) {
  writeFileSync(join(folder, "package.json"), '{ "name": "outside", "private": true, "type": "module" }\n')
  const modules = join(folder, "node_modules")
  for (const short of NEEDED) {
    const name = short === "lazuli" ? short : `@lazuli/${short}`
    if (!tarballs.has(name)) throw new Error(`${name} was not packed`)
    const target = join(modules, name)
    mkdirSync(target, { recursive: true })
    run("tar", ["-xzf", tarballs.get(name), "-C", target, "--strip-components=1"])
  }
  // The platform's package, as a release fills it.
  const binary = join(modules, `@lazuli/backend-cpu-${platform}`)
  cpSync(`packages/backend-cpu/npm/${platform}`, binary, { recursive: true })
  copyFileSync("packages/backend-cpu/build/lazuli_cpu.node", join(binary, "lazuli_cpu.node"))
  for (const { name, code } of wrong) {
    const file = join(modules, name, "index.js")
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, code)
    writeFileSync(
      join(modules, name, "package.json"),
      JSON.stringify({ name, version: "1.0.0", type: "module", exports: "./index.js" }),
    )
  }
}

/** Follows the section of ext-axpby's README on a package of one's own, to the end of its tests; gives what went wrong. */
function ownPackage(folder, env) {
  const axpby = join(folder, "node_modules/@lazuli/ext-axpby")
  const own = join(folder, "own")
  mkdirSync(own)
  for (const part of ["src", "native"]) cpSync(join(axpby, part), join(own, part), { recursive: true })
  for (const file of readdirSync(own, { recursive: true, withFileTypes: true })) {
    if (!file.isFile()) continue
    const path = join(file.parentPath ?? file.path, file.name)
    writeFileSync(path, readFileSync(path, "utf8").replaceAll("@lazuli/ext-axpby", "@me/ops"))
  }
  const readme = readFileSync(join(axpby, "README.md"), "utf8")
  for (const file of ["package.json", "tsconfig.json", "tsup.config.ts"]) {
    const text = new RegExp(`^\`${file}\`:\\n\\n\`\`\`\\w+\\n(.*?)^\`\`\`$`, "ms").exec(readme)?.[1]
    if (text === undefined) return `the README does not say what ${file} holds`
    writeFileSync(join(own, file), text)
  }
  // The packages that `npm install --save-dev` would bring.
  for (const tool of ["typescript", "tsup", "vitest", "@types/node"]) {
    mkdirSync(dirname(join(folder, "node_modules", tool)), { recursive: true })
    symlinkSync(resolve("node_modules", tool), join(folder, "node_modules", tool))
  }
  const { scripts } = JSON.parse(readFileSync(join(own, "package.json"), "utf8"))
  for (const script of ["build:native", "build", "test"]) {
    const { status, stdout, stderr } = spawnSync(scripts[script], {
      shell: true,
      cwd: own,
      encoding: "utf8",
      env: {
        ...process.env,
        LAZULI_CPU_ADDON: "",
        ...env,
        PATH: resolve("node_modules/.bin") + delimiter + process.env.PATH,
      },
    })
    if (status !== 0) return `${script}: ${stdout}${stderr}`
  }
  return null
}

function node(folder, file, code, args = [], env = {}) {
  writeFileSync(join(folder, file), code)
  const { status, stdout, stderr } = spawnSync(process.execPath, [file, ...args], {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, LAZULI_CPU_ADDON: "", ...env },
  })
  return { status, output: `${stdout}${stderr}` }
}

function typecheck(folder) {
  writeFileSync(join(folder, "types.ts"), types)
  const compiler = resolve("node_modules/typescript/bin/tsc")
  const nodeTypes = ["--typeRoots", resolve("node_modules/@types"), "--types", "node"]
  const options = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,esnext.disposable"]
  const { status, stdout } = spawnSync(
    process.execPath,
    [compiler, ...options, "--module", "nodenext", ...nodeTypes, "types.ts"],
    { cwd: folder, encoding: "utf8" },
  )
  return status === 0 ? null : stdout
}

function run(program, args, cwd = ".") {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: "utf8" })
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? `${stdout}${stderr}`}`)
  return stdout
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const scratch = mkdtempSync(join(tmpdir(), "lazuli-packed-"))
  try {
    const tarballs = new Map()
    for (const short of NEEDED) {
      const output = run(
        "npx",
        ["pnpm", "pack", "--json", "--pack-destination", scratch],
        `packages/${short}`,
      )
      const { name, filename } = JSON.parse(output.slice(output.indexOf("{")))
      tarballs.set(name, resolve(scratch, filename))
    }
    for (const { name, problem } of runOutside(tarballs)) {
      console.log(`${problem === null ? "ok  " : "FAIL"}  ${name}`)
      if (problem !== null) {
        console.log(problem)
        process.exitCode = 1
      }
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}
