// The whole way from a registry: everything is packed, published to a registry of this machine and installed from there into fresh folders
// by each package manager; programs then run on each runtime, compiler of types and bundler. `npm run registry` does all of it and prints
// the table; further words choose checks by parts of their names, and `--write` puts the table into docs/install.md. `npm test` runs
// `bounded` alone. `serve FOLDER` only publishes, and keeps the registry. For Linux on x64.

import { spawnSync } from "node:child_process"
import {
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
import { fileURLToPath, pathToFileURL } from "node:url"
import { environment, freshFolder, installed, managers, run } from "./folders.mjs"
import { refusals } from "./refusals.mjs"
import { canMakeRoot, makeRoot, runInRoot } from "./root.mjs"
import { startRegistry, tools } from "./server.mjs"
import { writeTable } from "./table.mjs"

/** The packages for each argument of programs/first.mjs. */
const SETS = {
  core: ["@lazuli/core"],
  cpu: ["@lazuli/core", "@lazuli/backend-cpu"],
  lazuli: ["lazuli"],
  metal: ["@lazuli/core", "@lazuli/backend-metal"],
  axpby: ["lazuli", "@lazuli/ext-axpby"],
  pointcloud: ["lazuli", "@lazuli/ext-pointcloud"],
  distributed: ["@lazuli/core", "@lazuli/backend-cpu", "@lazuli/distributed"],
  lm: ["lazuli", "@lazuli/lm"],
}
const EVERYTHING = [
  ...[
    "lazuli",
    "@lazuli/core",
    "@lazuli/backend-cpu",
    "@lazuli/backend-cuda",
    "@lazuli/backend-metal",
    "@lazuli/compile",
    "@lazuli/nn",
  ],
  ...[
    "@lazuli/transforms",
    "@lazuli/conformance",
    "@lazuli/kernel-build",
    "create-lazuli-plugin",
    "@lazuli/ext-axpby",
    "@lazuli/ext-pointcloud",
    "@lazuli/distributed",
    "@lazuli/lm",
  ],
]
const TURNS = 100_000
/** Fresh programs of which the median is told. */
const PROGRAMS = 5
const median = (times) => times.sort((a, b) => a - b)[times.length >> 1]
/** The most that another runtime's memory and time may be, of those of this version of Node. */
const [USUAL, MOST] = ["Node 22", 1.5]

/** Plug'n'Play gives a package only the peers that the program itself names. */
const named = (manager, packages) =>
  manager === "yarn pnp" ? [...new Set(["@lazuli/core", ...packages])] : packages

/** The checks that `npm test` runs: one installation by npm, a plugin on every backend, CommonJS, types, packages that do it wrong. */
function* bounded({ scratch, url }) {
  const folder = freshFolder(scratch, "bounded")
  const { npm } = managers(scratch, url)
  yield { name: "npm installs", run: () => npm.install(folder, EVERYTHING) }
  yield { name: "axpby runs, differentiates, vectorizes and compiles", run: () => npm.run(folder, "use.mjs") }
  // On a Mac the kernels run on the GPU, which checks nothing.
  if (process.platform === "linux")
    yield { name: "Metal kernels, every access checked", run: () => npm.run(folder, "checked.mjs") }
  yield {
    name: "a new package with kernels in C++, Metal and CUDA passes its tests",
    run: () => scaffolded(scratch, folder, "cpp,metal,cuda"),
  }
  yield {
    name: "the package of docs/write-a-plugin.md passes its tests",
    run: () => followGuide(scratch, folder, scaffoldIn(folder, "cpp,metal,cuda")),
  }
  yield* refusals(scratch, folder)
  yield {
    name: "types",
    run: () => typecheck(scratch, folder, resolve("node_modules/typescript"), "nodenext"),
  }
  // Node 20 has require for ECMAScript modules since 20.19.
  yield { name: "CommonJS", run: () => npm.run(folder, "require.cjs") }
  yield { name: "MLX's recorded answers", run: () => npm.run(folder, "golden.mjs", ["unary,matmul"]) }
}

/** All others. */
function* whole({ scratch, url, table }) {
  const modules = tools("tools")
  const all = managers(scratch, url, modules)
  yield* installations(scratch, all, table)
  yield* thirdParties(scratch, all.npm.install)
  if (canMakeRoot())
    yield {
      name: "a Debian root with nothing but Node",
      run() {
        const root = makeRoot(scratch, modules)
        const npm = ["node", "/usr/local/lib/node_modules/npm/bin/npm-cli.js"]
        const settings = ["--no-audit", "--no-fund", "--registry", url]
        runInRoot(scratch, root, [...npm, "install", ...settings, ...EVERYTHING])
        for (const set of Object.keys(SETS))
          if (set !== "metal") runInRoot(scratch, root, ["node", "first.mjs", set])
        return runInRoot(scratch, root, ["node", "golden.mjs", "unary,matmul,linalg"]).trim()
      },
    }
  const folder = freshFolder(scratch, "runtimes")
  yield { name: "npm installs everything", run: () => all.npm.install(folder, EVERYTHING) }
  yield* runtimes(scratch, folder, modules)
  for (const compiler of readdirSync(modules).filter((entry) => entry.startsWith("typescript-")))
    for (const module of ["nodenext", "esnext"])
      yield {
        name: `${compiler}, ${module}`,
        run: () => typecheck(scratch, folder, join(modules, compiler), module),
      }
  yield* bundlers(scratch, folder, modules)
}

/** Every package manager with every set of packages; what they take goes into the table. */
function* installations(scratch, all, table) {
  const measured = []
  for (const [manager, { install, run }] of Object.entries(all))
    for (const [set, packages] of Object.entries(SETS)) {
      yield {
        name: `${manager} installs ${set}`,
        run() {
          const folder = freshFolder(scratch, `${manager}-${set}`)
          install(folder, named(manager, packages))
          run(folder, "first.mjs", [set])
          const { bytes, packages: count } = installed(folder)
          const row = { manager, set: packages.join(", "), MB: (bytes / 1e6).toFixed(1), packages: count }
          measured.push({ folder, row, times: () => JSON.parse(run(folder, "first.mjs", [set])) })
          table.add(row)
        },
      }
    }
  // Together, so that a quiet machine is needed for a minute only.
  if (measured.length > 0)
    yield {
      name: "times of what they installed",
      run() {
        // A round after the other, so that a disturbance falls on one program of each.
        const rounds = Array.from({ length: PROGRAMS }, () => measured.map(({ times }) => times()))
        for (const [i, { folder, row }] of measured.entries()) {
          const [imported, first] = ["imported", "first"].map((key) => median(rounds.map((r) => r[i][key])))
          table.add({ ...row, "import ms": imported.toFixed(0), "first ms": first.toFixed(0) })
          rmSync(folder, { recursive: true, force: true })
        }
      },
    }
}

/** Packages of third parties: new ones, and the hard sample's own tests. */
function* thirdParties(scratch, install) {
  for (const kernels of ["ts", "cpp", "metal", "cuda", "cpp,metal,cuda"])
    yield {
      name: `a new package, kernels ${kernels}`,
      run() {
        const folder = freshFolder(scratch, "scaffold")
        install(folder, ["create-lazuli-plugin"])
        scaffolded(scratch, folder, kernels, install)
        rmSync(folder, { recursive: true, force: true })
      },
    }
  yield {
    name: "ext-pointcloud's own tests, in a folder of its own",
    run: () => ownTests(scratch, install, "@lazuli/ext-pointcloud"),
  }
}

/** Other versions of Node, and other runtimes, on what is installed in a folder. */
function* runtimes(scratch, folder, modules) {
  const measured = {}
  const programs = {
    // The others are compared with 22.
    ...Object.fromEntries([22, 20, 24, 26].map((n) => [`Node ${n}`, [join(modules, `node-${n}/bin/node`)]])),
    Bun: [join(modules, "@oven/bun-linux-x64/bin/bun")],
    Deno: [join(modules, "@deno/linux-x64-glibc/deno"), "run", "--allow-all", "--quiet"],
  }
  for (const [name, [program, ...before]] of Object.entries(programs)) {
    const at = (file, ...args) => run(scratch, folder, program, [...before, file, ...args])
    yield { name: `${name}: plugin, transforms, compile`, run: () => at("use.mjs") }
    yield { name: `${name}: require`, run: () => at("require.cjs") }
    yield { name: `${name}: workers`, run: () => at("workers.mjs") }
    yield { name: `${name}: MLX's recorded answers`, run: () => at("golden.mjs").trim() }
    yield {
      name: `${name}: ${TURNS} × 1 MB, and a chain`,
      run() {
        const said = at("memory.mjs", String(TURNS)).trim()
        measured[name] = JSON.parse(said)
        for (const [key, usual] of Object.entries(measured[USUAL] ?? {}))
          if (measured[name][key] > MOST * usual)
            throw new Error(`${key} is more than ${MOST} × that of ${USUAL}, ${usual}: ${said}`)
        return said
      },
    }
  }
}

function* bundlers(scratch, folder, modules) {
  const entry = 'import { mx } from "lazuli"\nconsole.log(JSON.stringify(mx.array([1, 2]).add(1).tolist()))\n'
  const bundled = (file) => {
    const output = run(scratch, folder, process.execPath, [file])
    if (output.trim() !== "[2,3]") throw new Error(`the bundle printed ${output}`)
  }
  writeFileSync(join(folder, "entry.mjs"), entry)
  yield {
    name: "esbuild",
    run() {
      const options = ["--bundle", "--platform=node", "--format=esm", "--outfile=bundle/esbuild.mjs"]
      run(scratch, folder, join(modules, ".bin/esbuild"), ["entry.mjs", ...options])
      bundled("bundle/esbuild.mjs")
    },
  }
  yield {
    name: "vite",
    run() {
      writeFileSync(
        join(folder, "vite.config.mjs"),
        'export default { ssr: { noExternal: true }, build: { ssr: "entry.mjs", outDir: "bundle/vite" } }\n',
      )
      run(scratch, folder, process.execPath, [
        join(modules, "vite/bin/vite.js"),
        "build",
        "--logLevel",
        "error",
      ])
      bundled(`bundle/vite/${readdirSync(join(folder, "bundle/vite")).find((file) => /\.m?js$/.test(file))}`)
    },
  }
}

function typecheck(scratch, folder, compiler, module) {
  const resolution = module === "nodenext" ? "nodenext" : "bundler"
  const options = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,esnext.disposable"]
  // The packages' declarations are read too, and a user may have set these.
  const strict = ["exactOptionalPropertyTypes", "verbatimModuleSyntax", "isolatedModules"]
  const nodeTypes = ["--typeRoots", resolve("node_modules/@types"), "--types", "node"]
  const names = ["--module", module, "--moduleResolution", resolution, ...nodeTypes, "types.ts"]
  run(scratch, folder, process.execPath, [
    join(compiler, "bin/tsc"),
    ...options,
    ...strict.map((name) => `--${name}`),
    ...names,
  ])
}

/**
 * Writes a package by `create-lazuli-plugin`, gives it what `npm install` would, or asks npm for it, and runs its tests and its build.
 */
function scaffolded(scratch, folder, kernels, install) {
  const own = scaffoldIn(folder, kernels)
  const create = join(folder, "node_modules/create-lazuli-plugin/bin/create-lazuli-plugin.mjs")
  run(scratch, folder, process.execPath, [create, "@me/ops", own, "--kernels", kernels])
  if (install) install(own, [])
  // The packages of the folder above, and the tools in the versions that the repository has too.
  else linkTools(folder, ["typescript", "tsup", "vitest", "@types/node"])
  const { scripts } = JSON.parse(readFileSync(join(own, "package.json"), "utf8"))
  for (const script of ["test", "build"]) execute(scratch, folder, own, scripts[script])
}

const scaffoldIn = (folder, kernels) => join(folder, `scaffold-${kernels.replaceAll(",", "-")}`)

/** Does in a new package what the guide says, in its order: writes its files and runs its commands. */
function followGuide(scratch, folder, own) {
  const guide = readFileSync("docs/write-a-plugin.md", "utf8")
  for (const [, language, path, text] of guide.matchAll(/^```(\w+) ?([\w./-]*)\n([\s\S]*?)^```$/gm))
    if (path) writeFileSync(join(own, path), text)
    // The package was created, and its sample tested, before.
    else if (language === "sh" && !text.includes("npm create"))
      // The folder above has the programs that npx would look for.
      for (const [line] of text.matchAll(/^(?!npm publish).+$/gm))
        execute(scratch, folder, own, line.replace(/ +# .*$/, "").replace(/^npx /, ""))
}

/** The repository's own versions of tools, in a folder's node_modules. */
function linkTools(folder, tools) {
  for (const tool of tools) {
    const link = join(folder, "node_modules", tool)
    mkdirSync(dirname(link), { recursive: true })
    if (!existsSync(link)) symlinkSync(resolve("node_modules", tool), link)
  }
}

/** Installs everything and runs the tests that a package's tarball carries, on its sources and what was installed. */
function ownTests(scratch, install, name) {
  const folder = freshFolder(scratch, "own-tests")
  install(folder, EVERYTHING)
  linkTools(folder, ["vitest"])
  // Beside node_modules: vitest finds no tests in there.
  const own = join(folder, "own")
  cpSync(join(folder, "node_modules", name), own, { recursive: true })
  return execute(scratch, folder, own, "NO_COLOR=1 vitest run --testTimeout 300000")
    .split("\n")
    .filter((line) => /Tests|Test Files/.test(line))
    .map((line) => line.trim())
    .join(", ")
}

/** Runs a command in a package's folder, whose tools are there or in the folder above; gives what it printed. */
function execute(scratch, folder, own, command) {
  // Compiled kernels are kept where they always are: compiling a hundred takes minutes.
  const { HOME, XDG_CACHE_HOME } = process.env
  const { XDG_CACHE_HOME: _, ...fresh } = environment(scratch)
  const bins = [
    join(own, "node_modules/.bin"),
    join(folder, "node_modules/.bin"),
    resolve("node_modules/.bin"),
  ]
  const env = {
    ...fresh,
    HOME,
    ...(XDG_CACHE_HOME ? { XDG_CACHE_HOME } : {}),
    PATH: [...bins, process.env.PATH].join(delimiter),
  }
  const { status, stdout, stderr } = spawnSync(command, { shell: true, cwd: own, encoding: "utf8", env })
  if (status !== 0) throw new Error(`${command}: ${stdout}${stderr}`)
  return stdout
}

/**
 * Runs the bounded checks, or all.
 *
 * @param {{ only?: string[], all?: boolean, packed?: Map<string, string>, table?: { add(row: object): void } }} options
 * @param {(result: { name: string, problem: string | null, seconds: number, said?: string }) => void} tell
 */
export async function runRegistry({ only = [], all = false, packed, table }, tell) {
  const scratch = mkdtempSync(join(tmpdir(), "lazuli-registry-"))
  mkdirSync(join(scratch, "home"))
  let registry
  try {
    const start = performance.now()
    registry = await startRegistry(scratch, { packed })
    tell({ name: "everything is published", problem: null, seconds: (performance.now() - start) / 1000 })
    const context = { scratch, url: registry.url, table }
    for (const check of all ? whole(context) : bounded(context)) {
      const needed = /installs( everything)?$|^times /.test(check.name)
      if (only.length > 0 && !needed && !only.some((part) => check.name.includes(part))) continue
      // Checks wait for their programs, so that signals are heard in between alone.
      await new Promise(setImmediate)
      const start = performance.now()
      let [problem, said] = [null, undefined]
      try {
        said = await check.run()
      } catch (error) {
        problem = error.message
      }
      tell({ name: check.name, problem, said, seconds: (performance.now() - start) / 1000 })
    }
  } catch (error) {
    const { message, cause } = error
    tell({ name: "everything is published", problem: cause ? `${message}: ${cause}` : message, seconds: 0 })
  } finally {
    registry?.end()
    rmSync(scratch, { recursive: true, force: true })
  }
}

/** Publishes everything to a registry that stays until it is interrupted, with its storage in `folder`. */
async function serve(folder) {
  mkdirSync(folder, { recursive: true })
  const { url } = await startRegistry(resolve(folder), { port: 4873 })
  console.log(
    `Everything is published to ${url}; all else comes from npm's registry, and stays in ${folder}.`,
  )
  console.log(`In another shell: npm config set registry ${url} --location=project, or --registry ${url}`)
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.chdir(fileURLToPath(new URL("../..", import.meta.url)))
  const words = process.argv.slice(2)
  const only = words.filter((word) => word !== "bounded" && !word.startsWith("--"))
  const rows = new Map()
  const table = {
    add(row) {
      rows.set(`${row.manager} ${row.set}`, row)
      // Each row at once: a stop loses none.
      if (words.includes("--write")) writeTable([...rows.values()])
    },
  }
  let [passed, failed] = [0, 0]
  if (words[0] === "serve") await serve(words[1] ?? join(tmpdir(), "lazuli-registry"))
  else {
    await runRegistry(
      { only, all: !words.includes("bounded"), table },
      ({ name, problem, said, seconds }) => {
        problem === null ? passed++ : failed++
        console.log(
          `${problem === null ? "ok  " : "FAIL"}  ${name} (${seconds.toFixed(1)} s)${said ? `: ${said}` : ""}`,
        )
        if (problem !== null) console.log(problem.trimEnd().split("\n").slice(-40).join("\n"))
      },
    )
    if (rows.size > 0) console.table([...rows.values()])
    console.log(`${passed} passed, ${failed} failed`)
    process.exitCode = failed > 0 ? 1 : 0
  }
}
