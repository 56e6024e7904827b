/**
 * MLX's answers, replayed on the reference backend: every function that exists must agree in value, shape and dtype.
 */
import { readFileSync } from "node:fs"
import { afterAll, describe, expect, test } from "vitest"
import { goldenCases, Missing, replay } from "./golden-replay"

const families = (
  process.env.GOLDEN ??
  "unary,binary,promotion,reduce,argreduce,shape,creation,indexing,random,fast,sort,scan,utils,io,conv"
).split(",")
const missing = new Set<string>()
const lines: string[] = []

/** Cases on which we differ from MLX on purpose, by id, with the reason. */
const deviations: Record<string, string> = JSON.parse(
  readFileSync(new URL("./golden-deviations.json", import.meta.url), "utf8"),
)

describe("golden vectors", () => {
  for (const family of families) {
    test(family, () => {
      const failures: string[] = []
      let passed = 0
      let absent = 0
      let deviating = 0
      for (const c of goldenCases(family)) {
        let problem: string | null
        try {
          problem = replay(c)
        } catch (error) {
          if (!(error instanceof Missing)) throw error
          missing.add(error.message)
          absent++
          continue
        }
        if (c.id in deviations) {
          if (problem === null) failures.push(`${c.id}: agrees, but is listed as a deviation`)
          deviating++
        } else if (problem) failures.push(`${c.id} ${c.fn} ${(c.tags ?? []).join()}: ${problem}`)
        else passed++
      }
      lines.push(
        `${family}: ${passed} passed, ${failures.length} failed, ${absent} missing, ${deviating} deviate`,
      )
      expect(failures).toEqual([])
    })
  }

  afterAll(() => {
    console.log([...lines, `missing functions: ${[...missing].sort().join(" ") || "none"}`].join("\n"))
  })
})
