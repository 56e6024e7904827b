// A release in a copy of the manifests: every package gets the same version, and minor changes do not make it 1.0.0. Changesets raises the
// major version of a package whose peer dependency leaves its range, and the versions of all others are fixed to it.

import { spawnSync } from "node:child_process"
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { expect, test } from "vitest"

function git(folder: string, ...args: string[]): string {
  const user = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
  const { status, stdout, stderr } = spawnSync("git", [...user, ...args], { cwd: folder, encoding: "utf8" })
  if (status !== 0) throw new Error(stderr)
  return stdout
}

function publishedVersions(folder: string, manifests: string[]): string[] {
  const all = manifests.map((file) => JSON.parse(readFileSync(join(folder, file), "utf8")))
  return [...new Set(all.filter((m) => !m.private).map((m) => m.version as string))]
}

test("a release gives every package the next minor version", () => {
  const root = resolve(".")
  const files = git(root, "ls-files", "package.json", "*/package.json", ".changeset", "pnpm-*.yaml")
  const copied = files
    .trim()
    .split("\n")
    .filter((file) => existsSync(join(root, file)))
  const folder = mkdtempSync(join(tmpdir(), "lazuli-release-"))
  try {
    for (const file of copied) cpSync(join(root, file), join(folder, file), { recursive: true })
    writeFileSync(join(folder, ".changeset/one-more.md"), '---\n"lazuli": minor\n---\n\nMore.\n')
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"))
    git(folder, "init", "--quiet")
    git(folder, "add", ...copied)
    git(folder, "commit", "--quiet", "--no-verify", "-m", "before")
    const manifests = copied.filter((file) => file.endsWith("package.json") && dirname(file) !== ".")
    const before = publishedVersions(folder, manifests)
    expect(before).toHaveLength(1)

    const changeset = join(root, "node_modules/@changesets/cli/bin.js")
    const { status, stderr } = spawnSync(process.execPath, [changeset, "version"], {
      cwd: folder,
      encoding: "utf8",
    })
    expect(status, stderr).toBe(0)
    const [major, minor] = before[0]!.split(".").map(Number)
    expect(publishedVersions(folder, manifests)).toEqual([`${major}.${minor! + 1}.0`])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
