/** The check of comments: their width, their first word, and what it leaves alone. */
import { describe, expect, test } from "vitest"
import { problemsOf, wrapped } from "./check-comments.mjs"

const SCRIPT = "a.ts"
const long = Array.from({ length: 40 }, (_, i) => `word${i}`).join(" ")

describe("problems", () => {
  test("are questions at the head of a comment, in every form", () => {
    expect(problemsOf("/** What it is. */\nconst a = 1 // Whether it is.\n", SCRIPT)).toEqual([
      '1: begins with "What": say it with a noun or a verb',
      '2: begins with "Whether": say it with a noun or a verb',
    ])
    expect(problemsOf("// How it works.\n// And why.\nint a;\n", "a.cc")).toHaveLength(1)
  })

  test("are not in strings, templates or later sentences", () => {
    const text = 'const a = "// What"\nconst b = `\n// What\n`\n/** A sum. What is left is 0. */\n'
    expect(problemsOf(text, SCRIPT)).toEqual([])
  })

  test("are lines that are too wide", () => {
    expect(problemsOf(`// ${long}\n`, SCRIPT)).toEqual(["1: 272 characters, at most 140"])
  })

  test("are long files whose head does not say why", () => {
    const body = "let a\n".repeat(501)
    const wrong = ['1: 502 lines: split it, or say in its head "It is long because …"']
    expect(problemsOf(`${body}// It is long because of this.\n`, SCRIPT)).toEqual(wrong)
    expect(problemsOf(`/**\n * It is\n * long because of this.\n */\n${body}`, SCRIPT)).toEqual([])
    expect(problemsOf("let a\n".repeat(499), SCRIPT)).toEqual([])
  })
})

describe("wrapping", () => {
  test("keeps the words, and the code of examples", () => {
    const code = `mx.add("${long}")`
    const out: string = wrapped(
      `  /** ${long} */\n  const a = 1\n/**\n * @example\n * ${code}\n */\nlet b\n`,
      SCRIPT,
    )
    expect(out.split("\n").filter((line) => line.length > 140)).toEqual([` * ${code}`])
    expect(out.replace(/[\s*/]+/g, " ")).toContain(long)
    expect(wrapped(out, SCRIPT)).toBe(out)
  })
})
