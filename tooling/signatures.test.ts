import { expect, it } from "vitest"
import { withOverloads } from "./signatures.mjs"

const source = (documentation: string, overloads = "", note = ""): string => `
import { type Axes, operation, type StreamOptions } from "../graph/args"
const sumArgs = operation(
  "sum",
  { a: "array", axis: "axes?", keepdims: "bool?", precise: "bool?" },
  (x: Array, axis: Axes = null, keepdims: boolean = false, precise = false): Array => x,
)
/** ${documentation} */
${overloads}${note}export function sum(...args: unknown[]): Array {
  return sumArgs(args)
}
`
/** The overloads that a source gets. */
const overloads = (text: string): string[] =>
  withOverloads(text)
    .text.split("\n")
    .filter((line) => line.startsWith("export function") && !line.includes("unknown[]"))

it("writes arguments by position, and by name after the required ones and after one more", () => {
  expect(overloads(source("Sums."))).toEqual([
    "export function sum(a: Array, axis?: Axes, keepdims?: boolean, precise?: boolean, options?: StreamOptions): Array",
    "export function sum(a: Array, axis: Axes, options: { keepdims?: boolean; precise?: boolean } & StreamOptions): Array",
    "export function sum(a: Array, options: { axis?: Axes; keepdims?: boolean; precise?: boolean } & StreamOptions): Array",
  ])
})

it("puts what is @named into the options alone", () => {
  expect(overloads(source("Sums.\n * @named keepdims precise\n"))).toEqual([
    "export function sum(a: Array, axis?: Axes, options?: { keepdims?: boolean; precise?: boolean } & StreamOptions): Array",
    "export function sum(a: Array, options: { axis?: Axes; keepdims?: boolean; precise?: boolean } & StreamOptions): Array",
  ])
})

it("uses an interface whose members are the options", () => {
  const options = `
/** Options. */
export interface SumOptions extends StreamOptions {
  /** Keeps the axes. */
  keepdims?: boolean
  /** Sums more exactly. */
  precise?: boolean
}`
  expect(overloads(source("Sums.\n * @named keepdims precise\n") + options)).toEqual([
    "export function sum(a: Array, axis?: Axes, options?: SumOptions): Array",
    "export function sum(a: Array, options: { axis?: Axes } & SumOptions): Array",
  ])
})

it("leaves a source alone that has them, whatever its layout", () => {
  const { text } = withOverloads(source("Sums."))
  const spread = text.replace(/; /g, "\n  ").replace("(a: Array,", "(\n  a: Array,\n ")
  expect(withOverloads(spread).text).toBe(spread)
})

it("keeps overloads by hand, but not under other names", () => {
  const one = "export function sum(a: Array, axes?: Axes): Array\n"
  const text = source("Sums.", one, "// By hand: a reason.\n")
  const result = withOverloads(text)
  expect(result.text).toBe(text)
  expect(result.problems).toEqual(["source.ts: sum has no parameter axes"])
})

it("finds bodies without types and tags without parameters", () => {
  const text = source("Sums.\n * @named keepdim\n").replace("x: Array", "x: unknown")
  expect(withOverloads(text).problems).toEqual([
    "source.ts: sum has no parameter keepdim to be @named",
    "source.ts: sum does not type a in its body",
  ])
})

it("writes the call signatures of a type that several functions have", () => {
  const text = `
export interface Reduction {
  (a: Array): number
}
function reduction(name: string): Reduction {
  const args = operation(name, { a: "array", axis: "axes?" }, (a: Array, axis?: Axes) => a)
  return (...rest: unknown[]) => args(rest)
}`
  expect(withOverloads(text).text).toContain(
    "(a: Array, axis?: Axes, options?: mx.StreamOptions): number\n(a: Array, options: { axis?: Axes } & mx.StreamOptions): number\n}",
  )
})
