/** Commit messages: the subject's length, and a reason below it. */
import { expect, test } from "vitest"
import { problemOf } from "./check-commits.mjs"

test("a message is a subject of at most 72 characters and a reason", () => {
  expect(problemOf("Sum in one order\n\nEager and compiled sums differed.\n")).toBe(null)
  expect(problemOf(`${"a".repeat(72)}\n\nb`)).toBe(null)
  expect(problemOf(`${"a".repeat(73)}\n\nb`)).toBe("its subject has 73 characters, at most 72")
  expect(problemOf("Sum in one order\n")).toBe("it has no body: say the reason")
  expect(problemOf("Sum in one order\nof all")).toBe("an empty line is missing below its subject")
})
