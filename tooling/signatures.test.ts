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

const layer = (signature: string, types: string, note = ""): string => `
/** Options. */
export interface NormOptions {
  /** Added to the variance. */
  eps?: number
  /** Scales and shifts. */
  affine?: boolean | null
}
type Numbers = [number, number?]
abstract class Base extends Module {
  constructor(op: string, args: readonly unknown[]) {
    super()
    const [dims, eps = 1e-5, affine] = named<${types}>(op, ${signature}, args)
  }
}
/** A layer. */
export class Norm extends Base {
  constructor(old: number)
${note}  constructor(...args: unknown[]) {
    super("Norm", args)
  }
}`
const constructors = (text: string): string[] =>
  withOverloads(text)
    .text.split("\n")
    .slice(withOverloads(text).text.split("\n").indexOf("export class Norm extends Base {"))
    .map((line) => line.trim())
    .filter((line) => line.startsWith("constructor(") && !line.includes("...args"))

it("writes a constructor's overloads from the types and names that it or its base class reads", () => {
  const text = layer(
    `{ dims: "count", eps: "positive?", affine: "bool?" }`,
    "[...Numbers, (boolean | null)?]",
  )
  expect(constructors(text)).toEqual([
    "constructor(dims: number, eps?: number, affine?: boolean | null)",
    "constructor(dims: number, options: NormOptions)",
    "constructor(options: { dims: number } & NormOptions)",
  ])
})

it("finds constructors whose names, types and optional arguments differ", () => {
  const fewer = layer(`{ dims: "count", eps: "positive?" }`, "[...Numbers, (boolean | null)?]")
  expect(withOverloads(fewer).problems).toEqual([
    "source.ts: Norm has a call of `named` whose signature and types do not fit each other",
  ])
  const required = layer(`{ dims: "count", eps: "positive" }`, "Numbers")
  expect(withOverloads(required).problems).toEqual([
    "source.ts: Norm has eps optional in its signature or in its types alone",
  ])
  const byHand = layer("signatureOf(op)", "Numbers", "  // By hand: its names are computed.\n")
  expect(withOverloads(byHand).problems).toEqual([])
  expect(constructors(byHand)).toEqual(["constructor(old: number)"])
})
