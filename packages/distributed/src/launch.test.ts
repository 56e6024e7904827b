import { expect, test } from "vitest"
import { bundle } from "../../../tooling/source-bundle.mjs"
import { launch } from "./launch"

/** Runs a program of test/ on ranks, and gives what each of them printed. */
async function run(
  name: string,
  ranks: number,
  options: { backend?: string; env?: Record<string, string> } = {},
) {
  const program = await bundle(new URL(`../test/${name}.ts`, import.meta.url).pathname)
  const out: string[][] = Array.from({ length: ranks }, () => [])
  const code = await launch({
    command: [program],
    ranks,
    ...options,
    print: (line, rank) => out[rank].push(line),
  })
  return { code, out }
}

test.each([2, 3])("%i processes add up an array", async (n) => {
  const { code, out } = await run("first", n, { backend: "ring", env: { LAZULI_QUIET: "1" } })
  expect(code, out.flat().join("\n")).toBe(0)
  const total = (n * (n + 1)) / 2
  for (const [rank, lines] of out.entries()) {
    const got = JSON.parse(lines[0])
    const own = [1, 2, 3].map((v) => v * (rank + 1))
    const squares = [1, 2, 3].map((v) => {
      let sum = 1
      for (let r = 1; r <= n; r++) sum += (v * r) ** 2
      return sum
    })
    expect(got).toEqual({
      size: n,
      sum: [total, 2 * total, 3 * total],
      grad: [2 * total, 4 * total, 6 * total],
      jvp: [n, n, n],
      vmap: [[total], [2 * total], [3 * total]],
      compiled: [squares, squares],
      large: [total, total],
      stats: {},
    })
    expect(own.length).toBe(3)
  }
})
