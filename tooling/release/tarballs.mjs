// The published form: packs every package, and says what is wrong with a tarball before anybody installs it: files that the manifest
// promises and that are not there, a platform's package without its binary, fields that a registry shows, and sizes. `node
// tooling/release/tarballs.mjs` packs what is built and prints it; with `--all`, as before a release, it fails where a platform's binary is
// not there. `--write` copies the fields that all packages share from the root's manifest.

import { spawnSync } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { basename, join, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { gunzipSync, gzipSync } from "node:zlib"

const KB = 1024
/** Largest sizes, in bytes. */
export const BUDGETS = {
  coreTarball: 300 * KB,
  coreJavaScript: 140 * KB,
  platformTarball: 15 * KB * KB,
  cudaTarball: 8 * KB * KB,
}

/** Node prints the line of an error that nobody caught, whole. */
const LONGEST_LINE = 5000

/** Every package that is published: its folder and its manifest. */
export function publishedPackages() {
  return readdirSync("packages")
    .map((name) => `packages/${name}`)
    .flatMap((folder) => [folder, ...(existsSync(`${folder}/npm`) ? platformFolders(`${folder}/npm`) : [])])
    .filter((folder) => existsSync(`${folder}/package.json`))
    .map((folder) => ({ folder, manifest: JSON.parse(readFileSync(`${folder}/package.json`, "utf8")) }))
    .filter(({ manifest }) => !manifest.private)
    .map(({ folder, manifest }) => ({ folder, manifest, name: manifest.name }))
}

const platformFolders = (folder) => readdirSync(folder).map((platform) => `${folder}/${platform}`)

/** True for a package with a binary for another platform that was not built for it here. */
export const isForeign = ({ folder, manifest }) =>
  manifest.os !== undefined &&
  !(manifest.os.includes(process.platform) && manifest.cpu.includes(process.arch)) &&
  !existsSync(join(folder, "../..", `build-${basename(folder)}`, manifest.main))

/** Packages whose binary was not built: others name them, so that a release without them could not be installed whole. */
const missing = () =>
  publishedPackages()
    .filter(isForeign)
    .map(({ name }) => name)

/** Packs one package into a folder; returns the tarball. @throws Error with what pnpm said */
export function pack(folder, target) {
  const args = ["pack", "--json", "--pack-destination", resolve(target)]
  const pnpm = resolve("node_modules/pnpm/bin/pnpm.cjs")
  const { status, stdout, stderr } = spawnSync(process.execPath, [pnpm, ...args], {
    cwd: folder,
    encoding: "utf8",
  })
  if (status !== 0) throw new Error(`${folder} cannot be packed: ${stderr || stdout}`)
  return resolve(target, JSON.parse(stdout.slice(stdout.indexOf("{"))).filename)
}

/** The files of a tarball, by their paths in the package. */
export function contents(tarball) {
  const tar = gunzipSync(readFileSync(tarball))
  const files = new Map()
  for (let at = 0; at + 512 <= tar.length && tar[at] !== 0; ) {
    const text = (from, length) => tar.toString("utf8", at + from, at + from + length).replace(/\0.*$/s, "")
    const size = Number.parseInt(text(124, 12), 8)
    const prefix = text(345, 155)
    const path = (prefix ? `${prefix}/` : "") + text(0, 100)
    const type = text(156, 1)
    if (type === "0" || type === "")
      files.set(path.replace(/^package\//, ""), tar.subarray(at + 512, at + 512 + size))
    at += 512 + Math.ceil(size / 512) * 512
  }
  return files
}

/** Faults of a tarball, in words. */
export function tarballProblems(tarball) {
  const files = contents(tarball)
  if (!files.has("package.json")) return ["it has no package.json"]
  const manifest = JSON.parse(files.get("package.json").toString())
  const problems = []
  const want = (path, from) => {
    if (!files.get(path)?.length) problems.push(`it lacks ${path}${from ? `, which ${from} names` : ""}`)
  }
  for (const path of ["README.md", "LICENSE"]) want(path)
  for (const path of named(manifest.exports)) want(path, "exports")
  for (const key of ["main", "types"]) if (manifest[key]) want(manifest[key].replace(/^\.\//, ""), key)
  for (const path of Object.values(manifest.bin ?? {})) want(path.replace(/^\.\//, ""), "bin")
  for (const entry of manifest.files ?? [])
    if (![...files.keys()].some((path) => matches(path, entry)))
      problems.push(`its files "${entry}" are none`)
  for (const key of ["description", "license", "repository", "homepage", "bugs", "engines"])
    if (!manifest[key]) problems.push(`its manifest has no ${key}`)
  // Two copies of core are two worlds of arrays; the umbrella alone brings it.
  if (manifest.name !== "lazuli" && manifest.dependencies?.["@lazuli/core"])
    problems.push("it depends on @lazuli/core, which must be among its peerDependencies")
  if (/workspace:|link:|file:/.test(JSON.stringify(manifest)))
    problems.push("its manifest names a path of this workspace")
  for (const [path, bytes] of files)
    if (
      /\.[cm]?js$/.test(path) &&
      bytes
        .toString()
        .split("\n")
        .some((line) => line.length > LONGEST_LINE)
    )
      problems.push(`an error thrown in ${path} shows a line of more than ${LONGEST_LINE} characters`)
  for (const path of files.keys())
    if (/\.(map|tsbuildinfo)$|\.test\.\w+$/.test(path) && !/^(src|template)\//.test(path))
      problems.push(`nobody needs ${path}`)
  // TypeScript has had typed arrays of a kind of buffer since 5.7 alone, and some types of Node's come with them.
  for (const [path, bytes] of files)
    if (
      path.endsWith(".d.ts") &&
      /\b(?:Uint8|Int8|Uint16|Int16|Uint32|Int32|Float32|Float64|BigInt64|BigUint64)Array</.test(bytes)
    )
      problems.push(`TypeScript 5.5 does not understand the typed arrays of ${path}`)
  if (manifest.os) {
    want(manifest.main, "main")
    if (manifest.os.includes("linux")) want("NOTICE")
    limit("its tarball", statSync(tarball).size, BUDGETS.platformTarball)
  }
  if (manifest.name === "@lazuli/backend-cuda")
    limit("its tarball", statSync(tarball).size, BUDGETS.cudaTarball)
  if (manifest.name === "@lazuli/core") {
    const scripts = [...files].filter(([path]) => path.endsWith(".js"))
    limit("its tarball", statSync(tarball).size, BUDGETS.coreTarball)
    limit(
      "its JavaScript, gzipped,",
      scripts.reduce((sum, [, bytes]) => sum + gzipSync(bytes, { level: 9 }).length, 0),
      BUDGETS.coreJavaScript,
    )
  }
  return problems

  function limit(what, bytes, most) {
    if (bytes > most) problems.push(`${what} has ${Math.ceil(bytes / KB)} KB, and ${most / KB} are the limit`)
  }
}

/** Paths that `exports` names, to files. */
function named(exports) {
  if (typeof exports === "string") return [exports.replace(/^\.\//, "")]
  return Object.values(exports ?? {}).flatMap(named)
}

/** True if an entry of `files` (a file, a folder, or a name with *) stands for a path. */
function matches(path, entry) {
  if (!entry.includes("*")) return path === entry || path.startsWith(`${entry}/`)
  const pattern = entry.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", "[^/]*")
  return new RegExp(`^${pattern}$`).test(path)
}

/** Fields that a package's manifest must share with the root's, and its own value for them. */
export function sharedFields(folder) {
  const { repository, homepage, bugs, license, author } = JSON.parse(readFileSync("package.json", "utf8"))
  return { license, author, homepage, repository: { ...repository, directory: folder }, bugs }
}

function writeSharedFields() {
  for (const { folder, manifest } of publishedPackages()) {
    const { license, author, ...others } = sharedFields(folder)
    const entries = Object.entries({ ...manifest, license, author }).filter(([key]) => !(key in others))
    const at = entries.findIndex(([key]) => key === "author") + 1
    entries.splice(at, 0, ...Object.entries(others))
    writeFileSync(`${folder}/package.json`, `${JSON.stringify(Object.fromEntries(entries), null, 2)}\n`)
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  if (process.argv.includes("--write")) writeSharedFields()
  else if (process.argv.includes("--all") && missing().length > 0) {
    console.error(`Nothing is published, because these have no binary:\n  ${missing().join("\n  ")}`)
    process.exitCode = 1
  } else {
    const scratch = mkdtempSync(join(tmpdir(), "lazuli-packed-"))
    try {
      for (const published of publishedPackages()) {
        if (isForeign(published)) continue
        const tarball = pack(published.folder, scratch)
        const problems = tarballProblems(tarball)
        console.log(`${(statSync(tarball).size / KB).toFixed(0).padStart(6)} KB  ${basename(tarball)}`)
        for (const problem of problems) console.log(`           ${problem}`)
        if (problems.length > 0) process.exitCode = 1
      }
    } finally {
      rmSync(scratch, { recursive: true, force: true })
    }
  }
}
