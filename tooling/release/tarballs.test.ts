import { execFileSync, spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { afterEach, expect, test } from "vitest"
import { BUDGETS, isForeign, pack, publishedPackages, sharedFields, tarballProblems } from "./tarballs.mjs"

const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

function tarball(files: Record<string, string | Buffer>): string {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-tarball-"))
  folders.push(folder)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, "package", path)), { recursive: true })
    writeFileSync(join(folder, "package", path), text)
  }
  execFileSync("tar", ["-czf", "x.tgz", "package"], { cwd: folder })
  return join(folder, "x.tgz")
}

const whole = {
  name: "@lazuli/x",
  description: "x",
  license: "MIT",
  repository: {},
  homepage: "x",
  bugs: {},
  engines: {},
}
const texts = { "README.md": "x", LICENSE: "x" }

test("a tarball without what its manifest promises is refused", () => {
  const manifest = {
    ...whole,
    exports: { ".": { types: "./dist/index.d.ts", default: "./dist/index.js" } },
    files: ["dist", "a/*.so"],
  }
  const files = {
    ...texts,
    "package.json": JSON.stringify(manifest),
    "dist/index.js": "1",
    "dist/index.js.map": "1",
  }
  expect(tarballProblems(tarball(files))).toEqual([
    "it lacks dist/index.d.ts, which exports names",
    'its files "a/*.so" are none',
    "nobody needs dist/index.js.map",
  ])
  expect(tarballProblems(tarball({ ...files, "dist/index.d.ts": "" }))).toContain(
    "it lacks dist/index.d.ts, which exports names",
  )
  expect(
    tarballProblems(tarball({ ...files, "dist/index.d.ts": "export const x: Uint8Array<ArrayBuffer>" })),
  ).toContain("TypeScript 5.5 does not understand the typed arrays of dist/index.d.ts")
  expect(tarballProblems(tarball({ ...files, "dist/index.js": "1;".repeat(3000) }))).toContain(
    "an error thrown in dist/index.js shows a line of more than 5000 characters",
  )
  expect(tarballProblems(tarball({ "package.json": "{}" }))).toEqual([
    "it lacks README.md",
    "it lacks LICENSE",
    ...["description", "license", "repository", "homepage", "bugs", "engines"].map(
      (key) => `its manifest has no ${key}`,
    ),
  ])
})

test("a platform's package without its binary, or with too large a one, is refused", () => {
  const manifest = { ...whole, os: ["linux"], cpu: ["x64"], main: "x.node", files: ["x.node"] }
  const files = { ...texts, "package.json": JSON.stringify(manifest) }
  expect(tarballProblems(tarball(files))).toEqual(
    expect.arrayContaining(["it lacks x.node, which main names", "it lacks NOTICE"]),
  )
  const large = { ...files, NOTICE: "x", "x.node": randomBytes(BUDGETS.platformTarball) }
  expect(tarballProblems(tarball(large))).toEqual([
    expect.stringMatching(/^its tarball has 153\d\d KB, and 15360 are the limit$/),
  ])
})

test("a package for another platform is not packed empty", () => {
  const foreign = publishedPackages().filter((one) => isForeign(one) && one.folder.includes("darwin"))
  if (process.platform === "darwin") return
  expect(() => pack(foreign[0]!.folder, tmpdir())).toThrow(
    /cannot be packed: there is no lazuli_cpu.node for darwin/,
  )
})

test("nothing is released while a platform has no binary", () => {
  const { status, stderr } = spawnSync(process.execPath, ["tooling/release/tarballs.mjs", "--all"], {
    encoding: "utf8",
  })
  const foreign = publishedPackages().filter(isForeign)
  // Nobody builds for all of them on one machine.
  expect(foreign.length).toBeGreaterThan(0)
  expect(status).toBe(1)
  for (const { name } of foreign) expect(stderr).toContain(name)
})

test("all packages name one repository, licence and author", () => {
  for (const { folder, manifest, name } of publishedPackages())
    expect(manifest, `${name}: node tooling/release/tarballs.mjs --write`).toMatchObject(sharedFields(folder))
})
