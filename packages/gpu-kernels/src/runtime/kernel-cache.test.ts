import {
  existsSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { isKept, prune } from "./kernel-cache"

const DAY = 24 * 3600
let folder = ""
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lazuli-cache-"))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** A file of 1,000 bytes that was last used so many days ago. */
function file(name: string, days: number): string {
  const path = join(folder, name)
  writeFileSync(path, Buffer.alloc(1000))
  const then = Date.now() / 1000 - days * DAY
  utimesSync(path, then, then)
  return path
}

test("what was not used for longest goes, until the rest fits", () => {
  for (const [name, days] of [
    ["a.so", 9],
    ["b.ii", 7],
    ["c.so", 5],
    ["d.so", 3],
  ] as const)
    file(name, days)
  expect(prune(folder, 4000)).toBe(0)
  expect(prune(folder, 2500)).toBe(2)
  expect(readdirSync(folder).sort()).toEqual(["c.so", "d.so"])
})

test("what was used within a day stays, whatever the bound", () => {
  const path = file("a.so", 30)
  file("b.so", 30)
  expect(isKept(path)).toBe(true)
  expect(prune(folder, 0)).toBe(1)
  expect(readdirSync(folder)).toEqual(["a.so"])
  expect(Date.now() - statSync(path).mtimeMs).toBeLessThan(60_000)
  expect(isKept(join(folder, "b.so"))).toBe(false)
})

test("names of one file count once", () => {
  const path = file("a.so", 4)
  for (const name of ["b.so", "c.so", "d.so"]) linkSync(path, join(folder, name))
  expect(prune(folder, 1000)).toBe(0)
})

test("what a process left that did not finish goes after a day", () => {
  const old = file("a.so.1-0-1.tmp", 2)
  const fresh = file("b.so.2-0-1.tmp", 0)
  expect(prune(folder, 1e6)).toBe(1)
  expect([existsSync(old), existsSync(fresh)]).toEqual([false, true])
})
