/** Files of functions as earlier versions wrote them. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { vmap } from "@lazuli/transforms"
import { expect, onTestFinished, test } from "vitest"
import { exportFunction } from "./export"
import { importFunction } from "./import"

test("calls may not tell which of their results are numbers or null", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-export-"))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, "f.lazuli")
  const x = mx.arange(6).reshape([2, 3])
  exportFunction(file, (a: mx.Array) => vmap((row: mx.Array) => row.cumsum())(a), [x])
  const text = readFileSync(file, "latin1")
  expect(text).toContain('\\"form\\":')
  writeFileSync(file, text.replaceAll('\\"form\\":', '\\"note\\":'), "latin1")
  expect(importFunction<[mx.Array], mx.Array>(file)(x).tolist()).toEqual(x.cumsum(1).tolist())
})
