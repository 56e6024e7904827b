/** GGUF models in several files. */
import { mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { partName, splitGguf } from "../../test/gguf-split"
import { ggufModels } from "./gguf-parts"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-parts-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const one = join(scratch, "one.gguf")
let answer = ""
beforeAll(async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
  lm.save(model, one)
  answer = await lm.generate(model, "the", { maxTokens: 5 })
})
/** A folder with three parts. */
function parts(name: string, changed?: Parameters<typeof splitGguf>[3]): string[] {
  const folder = join(scratch, name)
  mkdirSync(folder)
  return splitGguf(one, folder, 3, changed)
}
const u16 = (value: number): mx.Array => mx.array(value, mx.uint16)

test("parts are loaded as one model, by the name of any and by that of their folder", async () => {
  const files = parts("whole")
  for (const source of [files[0], files[2], join(scratch, "whole")]) {
    const seen: [number, number][] = []
    const model = await lm.load(source, { onProgress: (done, total) => void seen.push([done, total]) })
    expect(await lm.generate(model, "the", { maxTokens: 5 })).toBe(answer)
    const [total] = new Set(seen.map(([, all]) => all))
    expect(seen.every(([done, all], i) => all === total && done >= (seen[i - 1]?.[0] ?? 0))).toBe(true)
    expect(seen[0][0]).toBe(0)
    expect(seen.at(-1)).toEqual([total, total])
    expect(seen.length).toBeGreaterThan(3)
  }
})

test("a part that is missing is named", async () => {
  const files = parts("missing")
  rmSync(files[1])
  const reason = `model-00002-of-00003.gguf, another of the 3 parts of the model, is missing`
  await expect(lm.load(files[0])).rejects.toThrow(reason)
  await expect(lm.load(join(scratch, "missing"))).rejects.toThrow(reason)
})

test("parts that are not what their names say are refused", async () => {
  const renamed = parts("renamed")
  renameSync(renamed[0], join(scratch, "renamed.gguf"))
  await expect(lm.load(join(scratch, "renamed.gguf"))).rejects.toThrow(
    "the file is one of 3 parts of a model, which its name does not say. Name the parts as NAME-00001-of-00003.gguf",
  )
  renameSync(renamed[1], renamed[0])
  renameSync(renamed[2], renamed[1])
  renameSync(join(scratch, "renamed.gguf"), renamed[2])
  await expect(lm.load(renamed[0])).rejects.toThrow("the file is part 2 of 3, not 1 of 3 as its name says")
  const [other] = parts("other", { 1: { "split.count": u16(2) } })
  await expect(lm.load(other)).rejects.toThrow("the file is part 2 of 2, not 2 of 3 as its name says")
  const [fewer] = parts("fewer", { 0: { "split.tensors.count": mx.array(99, mx.int32) } })
  await expect(lm.load(fewer)).rejects.toThrow(/the parts have \d+ tensors in all, not 99/)
  const [twice, second] = parts("twice")
  const arrays = mx.load(twice as "x.gguf")
  mx.saveGguf(second, arrays, { "split.no": u16(1), "split.count": u16(3) })
  await expect(lm.load(twice)).rejects.toThrow(/tensors in all|two parts have the tensor/)
})

test("a file with the name of a part that is none is a model", async () => {
  const file = join(scratch, partName("alone", 1, 2))
  lm.save(await lm.load(one), file)
  expect(await lm.generate(await lm.load(file), "the", { maxTokens: 5 })).toBe(answer)
})

test("a folder of several GGUF models asks for one of them", async () => {
  const folder = join(scratch, "several")
  mkdirSync(folder)
  const model = await lm.load(one)
  for (const name of ["a.gguf", "b.gguf"]) lm.save(model, join(folder, name))
  await expect(lm.load(folder)).rejects.toThrow("has several GGUF files: a.gguf, b.gguf")
})

test("models of a listing have all their parts' names", () => {
  const listed = [
    "a.gguf",
    partName("b", 2, 2),
    "mmproj-a.gguf",
    partName("b", 1, 2),
    "x.json",
    partName("c", 1, 1),
  ]
  expect(ggufModels(listed)).toEqual([
    ["a.gguf"],
    [partName("b", 1, 2), partName("b", 2, 2)],
    [partName("c", 1, 1)],
  ])
})
