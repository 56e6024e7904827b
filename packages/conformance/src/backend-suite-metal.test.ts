/**
 * The suite, run for Metal's host runtime: here the part that takes seconds, by `npm run conformance:ops -- --suite --backend metal` in
 * full.
 */
import { metalBackend } from "@lazuli/backend-metal"
import { beforeAll, expect, test } from "vitest"
import { QUICK } from "../test/quick-suite"
import { backendSuite } from "./backend-suite"
import { formatChecks } from "./check/op-check"

// Some nine hundred kernels, compiled together.
beforeAll(() => metalBackend.rehearse(() => backendSuite("metal", QUICK)), 600_000)

test("Metal's host runtime, every primitive, around the widths of vectors", () => {
  const reports = backendSuite("metal", QUICK)
  expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
  expect(reports.length).toBeGreaterThan(100)
}, 120_000)
