import { expect, test } from "vitest"
import { blocksOf, examplesOf, runSnippets } from "./snippets"

const run = (code: string) => runSnippets([{ code, line: 1 }], { modules: {}, names: { two: 2 } })

test("blocks and examples know their lines", () => {
  expect(blocksOf("a\n```ts\nx\n```\n```sh\ny\n```\n```ts\nz\n```\n")).toEqual([
    { code: "x\n", line: 3 },
    { code: "z\n", line: 9 },
  ])
  const source = "/**\n * Says.\n * @example\n * f(1) // => 2\n * g()\n * @throws never\n */"
  expect(examplesOf(source)).toEqual([{ code: "\nf(1) // => 2\ng()", line: 3 }])
})

test.each([
  ["two + 1 // => 3", []],
  ["two + 1 // => 4", ["line 1: gives 3, expected 4"]],
  ["const x = Math.sin(1) // => 0.84", []],
  ["const x = Math.sin(1) // => 0.85", ["line 1: gives 0.8414709848078965, expected 0.85"]],
  ["1e-7 * 2 // => 2e-7", []],
  ["[1, [2.5, NaN], \"a\"] // => [1, [2.5, NaN], 'a']", []],
  ["[1, 2] // => [1]", ["line 1: gives [ 1, 2 ], expected [1]"]],
  ["({ a: 1, b: [true, null] }) // => { a: 1, b: [true, null] }", []],
  ["({ a: { b: 1 }, c: 2 }) // => { a: { … }, c: 2 }", []],
  ["5n // => 5n", []],
  ["5n // => 5", ["line 1: gives 5n, expected 5"]],
  ['console.log("a", [1,\n 2])\n// => a [ 1,\n//        2 ]', []],
  ["console.log(1) // => 2", ["line 1: prints 1, expected 2"]],
  ["null.x // => throws TypeError: Cannot read", []],
  ["two // => throws", ["line 1: does not throw, expected "]],
  ["const y = await Promise.resolve(3)\n\ny + 1\n// => 5", ["line 3: gives 4, expected 5"]],
])("%j", async (code, problems) => {
  expect((await run(code)).problems).toEqual(problems)
})

test("an error names its line", async () => {
  await expect(run("two\nnull.x")).rejects.toThrow("line 2: TypeError")
})
