import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, expect, test, vi } from "vitest"
import { parseOptions } from "./options"
import { main } from "./program"
import { accuracy, meanIoU } from "./train"
import { UserError } from "./user-error"

const folder = mkdtempSync(join(tmpdir(), "lazuli-pointcloud-"))
afterEach(() => {
  vi.restoreAllMocks()
  rmSync(folder, { recursive: true, force: true })
})

test("a few steps, a verdict and two pictures", async () => {
  const said: string[] = []
  vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    said.push(String(text))
    return true
  })
  expect(await main(["--steps", "2", "--batch", "8", "--unseen", "12", "--out", folder])).toBe(0)
  expect(said.join("")).toMatch(
    /step 2\/2 {2}loss \d\.\d{3}[\s\S]*Verdict: [\d.]+ % of 16 unseen clouds are right\.\n$/,
  )
  for (const name of ["shapes-clouds.png", "shapes-confusion.png"])
    expect(readFileSync(join(folder, name)).subarray(1, 4).toString()).toBe("PNG")
})

test.each([
  [["--task", "songs"], /Allowed choices are shapes, parts/],
  [["--steps", "0"], /whole number from 1/],
  [["--batch", "12"], /multiple of 8/],
  [["--learning-rate", "-1"], /above 0/],
  [["--speed"], /unknown option.*--help/],
])("refuses %j", (args, message) => {
  expect(() => parseOptions(args)).toThrow(UserError)
  expect(() => parseOptions(args)).toThrow(message)
})

test("judges by the table of confusions", () => {
  const table = [
    [8, 2],
    [0, 10],
  ]
  expect(accuracy(table)).toBeCloseTo(0.9)
  expect(meanIoU(table)).toBeCloseTo((8 / 10 + 10 / 12) / 2)
})
