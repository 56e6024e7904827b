/** The parameters that C++ reads are those of the schemas: a change without its header would give kernels other numbers. */
import { readFileSync } from "node:fs"
import { paramsHeader } from "@lazuli/kernel-build"
import { expect, test } from "vitest"
import "./index"
import { PACKAGE } from "./libraries"

test("native/params.h is what `npm run params` writes", () => {
  const header = readFileSync(new URL("../native/params.h", import.meta.url), "utf8")
  expect(header).toBe(paramsHeader({ source: PACKAGE }))
})
