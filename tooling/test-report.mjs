// The outcome of a run of vitest, from its JSON report and the list of files that it had to run. The report says nothing of a process that
// died: its file is missing there, or passes without its tests.

import { relative } from "node:path"

/**
 * Counts and names. `report` is null where the run died before it wrote one; `files` are the paths of all test files.
 * @returns {{ passed: number, failed: string[], skipped: number }}
 */
export function outcomeOf(report, files, root) {
  const outcome = { passed: 0, failed: [], skipped: 0 }
  if (report === null) return outcome
  const reported = new Map(report.testResults.map((file) => [file.name, file]))
  for (const name of new Set([...files, ...reported.keys()])) {
    const path = relative(root, name)
    const file = reported.get(name)
    const tests = file?.assertionResults ?? []
    for (const test of tests) {
      if (test.status === "passed") outcome.passed++
      else if (test.status === "failed") outcome.failed.push(`${path} > ${test.fullName}`)
      else if (test.status !== "pending") outcome.skipped++
    }
    if (file?.status === "failed" && !tests.some(({ status }) => status === "failed"))
      outcome.failed.push(`${path} (the file itself: ${file.message.split("\n")[0]})`)
    else if (tests.length === 0 || tests.some(({ status }) => status === "pending"))
      outcome.failed.push(`${path} (its process ended before its tests did)`)
  }
  return outcome
}
