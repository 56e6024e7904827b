// Holds the order of the house, for value and type imports alike. It fails on
//   * an arrow between packages that the table below does not allow,
//   * an import circle between source files, inside a package or across packages,
//   * a deep import into another package (its `exports` are the door),
//   * a file named utils, helpers, common or misc, which says nothing of what lives in it.
//
//   node tooling/check-layers.mjs [--only layers|circles] [ROOT]

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve, sep } from "node:path"
import { pathToFileURL } from "node:url"
import ts from "typescript"

/** The packages that a package's own code may import. A family (`backend-*`) is a folder prefix. */
const ALLOWED = {
  core: [],
  transforms: ["core"],
  compile: ["core", "transforms"],
  nn: ["core", "transforms", "compile"],
  conformance: ["core", "transforms", "compile"],
  lm: ["core", "transforms", "compile", "nn", "backend-cpu"],
  "kernel-build": ["core"],
  "create-lazuli-plugin": ["kernel-build"],
  "gpu-kernels": ["core"],
  "backend-metal": ["core", "gpu-kernels"],
  "backend-cuda": ["core", "gpu-kernels"],
  "backend-*": ["core"],
  distributed: ["core", "nn"],
  "ext-pointcloud": ["core", "nn"],
  "ext-*": ["core"],
  lazuli: ["*"],
}

/** Further imports of any package's tests: the engines and the test kit, but no backend; core, transforms and nn
 * are tested on the reference. */
const ALLOWED_IN_TESTS = ["core", "transforms", "compile", "conformance"]

/** Packages whose tests may import everything: the kit tests itself on every backend and package there is. */
const FREE_TESTS = ["conformance"]
/** Further imports of the tests of some families: a package with kernels is tested on the backends that run them, and by what builds it. */
const ALSO_IN_TESTS = {
  ext: ["backend-cpu", "backend-metal", "backend-cuda", "kernel-build"],
  distributed: ["backend-cpu"],
  lm: ["backend-metal", "backend-cuda"],
}

const EMPTY_NAMES = /^(utils?|helpers?|common|misc)$/
const TEST_FILE = /\.test(-d)?\.ts$/

/**
 * Reads every import of `packages/*\/src` under `root`.
 *
 * @returns {{ layers: string[], circles: string[], files: number }} messages, empty where all is well
 */
export function checkLayers(root) {
  const packages = readPackages(root)
  const layers = []
  const graph = new Map()

  for (const pkg of packages.values()) {
    for (const file of sourceFiles(pkg.src)) {
      const here = display(root, file)
      const stem = file.split(sep).pop().split(".")[0]
      const folders = relative(pkg.src, dirname(file)).split(sep)
      for (const name of [stem, ...folders]) {
        if (EMPTY_NAMES.test(name))
          layers.push(`${here}: "${name}" does not say what lives in it; name the thing`)
      }
      const targets = []
      graph.set(file, targets)
      for (const { specifier, line } of importsOf(file)) {
        const at = `${here}:${line}`
        const found = specifier.startsWith(".")
          ? resolveRelative(root, packages, pkg, file, specifier)
          : resolvePackage(packages, pkg, specifier, TEST_FILE.test(file))
        if (found.problem) layers.push(`${at}: ${found.problem}`)
        if (found.target) targets.push({ file: found.target, line })
      }
    }
  }

  const circles = findCircles(graph).map(
    (circle) => `import circle: ${[...circle, circle[0]].map((file) => display(root, file)).join(" → ")}`,
  )
  return { layers, circles, files: graph.size }
}

/** Folder name → its package, with the source file behind each entry of `exports`. */
function readPackages(root) {
  const packages = new Map()
  const base = join(root, "packages")
  for (const folder of readdirSync(base)) {
    const manifestFile = join(base, folder, "package.json")
    const src = join(base, folder, "src")
    if (!existsSync(manifestFile) || !existsSync(src)) continue
    const manifest = JSON.parse(readFileSync(manifestFile, "utf8"))
    const entries = new Map()
    for (const [subpath, target] of Object.entries(manifest.exports ?? { ".": "./dist/index.js" })) {
      const file = typeof target === "string" ? target : target.default
      const stem = /^\.\/dist\/(.+)\.js$/.exec(file ?? "")?.[1]
      const source = stem && asFile(join(src, stem))
      entries.set(manifest.name + subpath.slice(1), source)
    }
    packages.set(folder, { folder, name: manifest.name, src, entries })
  }
  return packages
}

function* sourceFiles(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) =>
    a.name < b.name ? -1 : 1,
  )) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) yield* sourceFiles(path)
    else if (/\.[mc]?tsx?$/.test(entry.name)) yield path
  }
}

/** Every module that a file names: import, export … from, import type, import('x') as a call or a type, import = require. */
function importsOf(file) {
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true)
  const found = []
  const add = (node) => {
    if (node && ts.isStringLiteralLike(node)) {
      found.push({
        specifier: node.text,
        line: source.getLineAndCharacterOfPosition(node.getStart()).line + 1,
      })
    }
  }
  const visit = (node) => {
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) add(node.moduleSpecifier)
    else if (ts.isImportTypeNode(node))
      add(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined)
    else if (ts.isExternalModuleReference(node)) add(node.expression)
    else if (ts.isModuleDeclaration(node) && ts.isStringLiteral(node.name)) add(node.name)
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(node.arguments[0])
    ts.forEachChild(node, visit)
  }
  visit(source)
  return found
}

function resolveRelative(root, packages, pkg, file, specifier) {
  const target = asFile(resolve(dirname(file), specifier))
  if (!target) return {} // a missing module is the type checker's to report
  const owner = [...packages.values()].find((other) => target.startsWith(other.src + sep))
  if (owner && owner !== pkg) {
    return {
      target,
      problem: `"${specifier}" reaches into ${display(root, target)}; import "${owner.name}" instead`,
    }
  }
  return { target }
}

function resolvePackage(packages, pkg, specifier, isTest) {
  const other = [...packages.values()].find(
    ({ name }) => specifier === name || specifier.startsWith(`${name}/`),
  )
  if (!other) return {}
  const target = other.entries.get(specifier)
  if (!other.entries.has(specifier)) {
    return {
      problem: `"${specifier}" is a deep import: ${other.name} exports ${[...other.entries.keys()].join(", ")}`,
    }
  }
  if (other === pkg) {
    return isTest
      ? { target }
      : { target, problem: `"${specifier}" names its own package; import the file instead` }
  }
  const allowed = allowedFor(pkg.folder)
  const granted = isTest
    ? FREE_TESTS.includes(pkg.folder)
      ? ["*"]
      : [...allowed, ...ALLOWED_IN_TESTS, ...(ALSO_IN_TESTS[pkg.folder.split("-")[0]] ?? [])]
    : allowed
  if (granted.includes("*") || granted.includes(other.folder)) return { target }
  const may = granted.length
    ? `may import ${[...new Set(granted)].join(", ")} only`
    : "imports no other package"
  return {
    target,
    problem: `${pkg.folder} → ${other.folder} ("${specifier}"): ${pkg.folder} ${may}${isTest ? " in tests" : ""}`,
  }
}

function allowedFor(folder) {
  const row = Object.keys(ALLOWED).find((key) =>
    key.endsWith("*") ? folder.startsWith(key.slice(0, -1)) : key === folder,
  )
  if (!row)
    throw new Error(`packages/${folder} has no row in the table of allowed arrows (tooling/check-layers.mjs)`)
  return ALLOWED[row]
}

function asFile(path) {
  const bare = path.replace(/\.js$/, "")
  return [path, `${bare}.ts`, `${bare}.tsx`, join(bare, "index.ts")].find(
    (file) => /\.tsx?$/.test(file) && existsSync(file),
  )
}

/** One shortest circle through each group of files that import each other (Tarjan's strongly connected components). */
function findCircles(graph) {
  const index = new Map()
  const low = new Map()
  const open = []
  const circles = []
  const targetsOf = (file) => (graph.get(file) ?? []).map((target) => target.file)

  const visit = (file) => {
    index.set(file, index.size)
    low.set(file, index.get(file))
    open.push(file)
    for (const target of targetsOf(file)) {
      if (!index.has(target)) {
        visit(target)
        low.set(file, Math.min(low.get(file), low.get(target)))
      } else if (open.includes(target)) low.set(file, Math.min(low.get(file), index.get(target)))
    }
    if (low.get(file) !== index.get(file)) return
    const group = new Set(open.splice(open.indexOf(file)))
    if (group.size > 1 || targetsOf(file).includes(file)) circles.push(shortestCircle(group, targetsOf))
  }
  for (const file of graph.keys()) if (!index.has(file)) visit(file)
  return circles
}

function shortestCircle(group, targetsOf) {
  let best
  for (const start of group) {
    const cameFrom = new Map()
    const queue = [start]
    for (const file of queue) {
      if (targetsOf(file).includes(start)) {
        const path = [file]
        while (path[0] !== start) path.unshift(cameFrom.get(path[0]))
        if (!best || path.length < best.length) best = path
        break
      }
      for (const target of targetsOf(file)) {
        if (!group.has(target) || cameFrom.has(target) || target === start) continue
        cameFrom.set(target, file)
        queue.push(target)
      }
    }
  }
  return best
}

function display(root, file) {
  return relative(root, file).split(sep).join("/")
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const args = process.argv.slice(2)
  const only = args[0] === "--only" ? args.splice(0, 2)[1] : undefined
  const result = checkLayers(resolve(args[0] ?? "."))
  const problems = [
    ...(only === "circles" ? [] : result.layers),
    ...(only === "layers" ? [] : result.circles),
  ]
  for (const problem of problems) console.error(problem)
  console.log(`${only ?? "layers and circles"}: ${result.files} files, ${problems.length} problems`)
  process.exitCode = problems.length ? 1 : 0
}
