// Holds commit messages: a subject of at most 72 characters, and a body that gives the reason. Commits since this file came are looked at,
// as far as the clone has them.
//
//   node tooling/check-commits.mjs

import { spawnSync } from "node:child_process"
import { pathToFileURL } from "node:url"

export const MAX_SUBJECT = 72

/** The fault of a message; null where there is none. */
export function problemOf(message) {
  const [subject = "", blank = "", ...body] = message.trimEnd().split("\n")
  if (subject.length > MAX_SUBJECT)
    return `its subject has ${subject.length} characters, at most ${MAX_SUBJECT}`
  if (blank.trim() !== "") return "an empty line is missing below its subject"
  if (body.join("").trim() === "") return "it has no body: say the reason"
  return null
}

function git(...args) {
  const { status, stdout } = spawnSync("git", args, { encoding: "utf8" })
  return status === 0 ? stdout : ""
}

/** Hashes and messages of the commits after the one that brought this file; of HEAD alone in a clone without history. */
function commits() {
  const file = "tooling/check-commits.mjs"
  const [first] = git("log", "--diff-filter=A", "--format=%H", "--", file).trim().split("\n").slice(-1)
  if (!first) return []
  return git("log", "--no-merges", "-z", "--format=%h%n%B", `${first}..HEAD`)
    .split("\0")
    .filter((entry) => entry.trim() !== "")
    .map((entry) => ({
      hash: entry.slice(0, entry.indexOf("\n")),
      message: entry.slice(entry.indexOf("\n") + 1),
    }))
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const looked = commits()
  const problems = looked.flatMap(({ hash, message }) => {
    const problem = problemOf(message)
    return problem === null ? [] : [`${hash} ${message.split("\n")[0]}: ${problem}`]
  })
  for (const problem of problems) console.error(problem)
  console.log(`commit messages: ${looked.length} commits, ${problems.length} problems`)
  process.exitCode = problems.length ? 1 : 0
}
