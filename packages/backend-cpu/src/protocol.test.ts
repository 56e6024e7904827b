/** An addon of another protocol is refused when it is loaded, instead of reading words that mean something else. */
import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { checkProtocol, native } from "./native"

test("the addon of this build speaks this package's protocol", () => {
  expect(() => checkProtocol(native, "x.node")).not.toThrow()
})

test("another one is refused by name", () => {
  expect(() =>
    checkProtocol({ protocol: () => 99, version: () => "0.0.9" }, "old.node"),
  ).toThrowErrorMatchingInlineSnapshot(
    `[Error: [@lazuli/backend-cpu] old.node was built for protocol 99 (package 0.0.9), but this package writes protocol 9. Build it again (npm run build in a clone of the repository), or install the same version of all @lazuli packages]`,
  )
  // An addon built before there were versions.
  expect(() => checkProtocol({}, "older.node")).toThrow(
    "older.node was built for protocol 0 (package an unknown version)",
  )
})

test("PROTOCOL.md is of this version", () => {
  const page = readFileSync(new URL("../native/PROTOCOL.md", import.meta.url), "utf8")
  expect(Number(/^Version (\d+)\./m.exec(page)?.[1])).toBe(native.protocol())
})
