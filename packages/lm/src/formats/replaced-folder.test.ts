/** Models that are saved over links, and after processes that were killed while they saved. */
import { spawnSync } from "node:child_process"
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-replaced-"))
afterAll(() => rmSync(scratch, { recursive: true }))
/** The process id of one that has ended. */
const { pid } = spawnSync(process.execPath, ["-e", ""])
let [first, second] = [] as lm.LoadedModel[]
let folder = ""
beforeAll(async () => {
  first = await lm.load(writeCheckpoint("llama", join(scratch, "first")))
  second = await lm.load(writeCheckpoint("qwen3", join(scratch, "second")))
})
beforeEach(() => {
  folder = mkdtempSync(join(scratch, "in-"))
})
const typeOf = async (path: string): Promise<string> => (await lm.load(path)).config.string("model_type")

test.each(["model.gguf", "model"])("a link is kept, and what it leads to is replaced: %s", async (name) => {
  const [there, link] = [join(folder, "there"), join(folder, name)]
  mkdirSync(there)
  lm.save(first, join(there, name))
  symlinkSync(join(there, name), link)
  lm.save(second, link)
  expect(lstatSync(link).isSymbolicLink()).toBe(true)
  expect(await typeOf(join(there, name))).toBe("qwen3")
  expect([readdirSync(folder).sort(), readdirSync(there)]).toEqual([[name, "there"].sort(), [name]])
})

test("another folder whose name begins the same and ends in old is never touched", () => {
  const path = join(folder, "model")
  lm.save(first, path)
  renameSync(path, `${path}.${pid}.old`)
  lm.save(second, path)
  expect(readdirSync(folder).sort()).toEqual(["model", `model.${pid}.old`].sort())
})

test("a process killed between the two renames loses no model", async () => {
  const path = join(folder, "model")
  const killed = (): void => {
    lm.save(first, path)
    renameSync(path, `${path}.${pid}.lazuli-old`)
  }
  killed()
  lm.save(second, `${path}.${pid}.tmp`)
  // The new one was complete.
  expect(await typeOf(path)).toBe("qwen3")
  expect(readdirSync(folder)).toEqual(["model"])
  rmSync(path, { recursive: true })
  killed()
  expect(await typeOf(path)).toBe("llama")
  rmSync(path, { recursive: true })
  killed()
  // A save that fails leaves the old one too.
  const full = (): never => {
    throw new Error("full")
  }
  expect(() => lm.save(second, path, { onProgress: full })).toThrow("full")
  expect(await typeOf(path)).toBe("llama")
  expect(readdirSync(folder)).toEqual(["model"])
})

test("old folders of processes that have ended are removed, and others are not", () => {
  const path = join(folder, "model")
  for (const place of [
    path,
    `${path}.${pid}.lazuli-old`,
    `${path}.${process.ppid}.lazuli-old`,
    `${path}.x.lazuli-old`,
  ])
    lm.save(first, place)
  lm.save(second, path)
  expect(readdirSync(folder).sort()).toEqual(
    ["model", `model.${process.ppid}.lazuli-old`, "model.x.lazuli-old"].sort(),
  )
})
