/** The claims by which processes share cases. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect, it } from "vitest"
import { isMine } from "./gpu-work"

it("gives a case to one process, and fails where it cannot know", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-claims-"))
  expect(isMine(folder, "golden a", "1")).toBe(true)
  expect(isMine(folder, "golden a", "2")).toBe(false)
  expect(isMine(folder, "golden b", "2")).toBe(true)
  rmSync(folder, { recursive: true })
  expect(() => isMine(folder, "golden a", "1")).toThrow("ENOENT")
})
