/**
 * Expands the macros and conditions of a Metal source, for runtimes that have no preprocessor at hand. Lines stay where they are. Files
 * cannot be included, and are not here either.
 */
import { evaluateCondition } from "./condition"
import type { Problem } from "./lint"
import { type Token, tokenize } from "./tokens"

interface Macro {
  readonly name: string
  /** Null for those without parentheses. */
  readonly parameters: readonly string[] | null
  readonly variadic: boolean
  readonly body: readonly Token[]
}

/** Macros that Metal's compiler defines. */
const PREDEFINED = { __METAL__: "1", __METAL_VERSION__: "320", __HAVE_BFLOAT__: "1" }

/** A text without macros and conditions, or what is wrong with them. */
export function preprocess(text: string): string | readonly Problem[] {
  const preprocessor = new Preprocessor()
  const expanded = preprocessor.run(tokenize(text))
  return preprocessor.problems.length > 0 ? preprocessor.problems : expanded
}

const newlinesOf = (text: string): string => text.replace(/[^\n]/g, "")
const isSpace = (token: Token | undefined): boolean => token?.kind === "space"
const space = (line: number): Token => ({ kind: "space", text: " ", line })

class Preprocessor {
  readonly problems: Problem[] = []
  private readonly macros = new Map<string, Macro>()
  /** One for each open condition: whether its lines count, and whether any branch of it has counted. */
  private readonly conditions: { active: boolean; taken: boolean }[] = []

  constructor() {
    for (const [name, value] of Object.entries(PREDEFINED))
      this.macros.set(name, { name, parameters: null, variadic: false, body: tokenize(value) })
  }

  run(tokens: readonly Token[]): string {
    let out = ""
    for (let i = 0; i < tokens.length; ) {
      const token = tokens[i]
      if (token.kind === "directive") {
        out += this.directive(token)
        i++
      } else if (!this.active) {
        out += newlinesOf(token.text)
        i++
      } else {
        const { result, end } = this.expandAt(tokens, i, new Set())
        out += result.map((t) => t.text).join("")
        // A macro call spread over lines keeps its lines.
        if (end > i + 1)
          out += newlinesOf(
            tokens
              .slice(i, end)
              .map((t) => t.text)
              .join(""),
          )
        i = end
      }
    }
    if (this.conditions.length > 0) this.report(tokens.at(-1)?.line ?? 1, "a condition has no #endif")
    return out
  }

  private get active(): boolean {
    return this.conditions.every((c) => c.active)
  }
  private report(line: number, message: string): void {
    this.problems.push({ line, message })
  }

  /** Follows a directive; gives what stands in its place. */
  private directive({ text, line }: Token): string {
    const found = /^\s*#\s*(\w*)((?:\\\n|[\s\S])*)$/.exec(text)
    const [word, rest] = [found?.[1] ?? "", (found?.[2] ?? "").replace(/\\\n/g, " ")]
    const blank = newlinesOf(text)
    const last = this.conditions.at(-1)
    if (word === "if" || word === "ifdef" || word === "ifndef") {
      const active = this.active && this.holds(word, rest, line)
      this.conditions.push({ active, taken: active })
    } else if (word === "elif" || word === "else" || word === "endif") {
      if (!last) this.report(line, `#${word} has no #if`)
      else if (word === "endif") this.conditions.pop()
      else {
        const outer = this.conditions.slice(0, -1).every((c) => c.active)
        last.active = outer && !last.taken && (word === "else" || this.holds("if", rest, line))
        last.taken ||= last.active
      }
    } else if (this.active) {
      if (word === "define") this.define(rest, line)
      else if (word === "undef") this.macros.delete(rest.trim())
      else if (word === "error") this.report(line, rest.trim() || "#error")
      else if (word === "pragma" || word === "include" || word === "import") return text
    }
    return blank
  }

  private define(rest: string, line: number): void {
    const found = /^\s+([A-Za-z_]\w*)(\(([^)]*)\))?/.exec(rest)
    if (!found) {
      this.report(line, "#define needs a name")
      return
    }
    const names = found[3] === undefined ? null : found[3].split(",").map((n) => n.trim())
    const variadic = names?.at(-1) === "..."
    const parameters = names?.filter((n) => n !== "" && n !== "...") ?? null
    // Behind a word, so that a # at its head is no directive.
    const body = trimmed(inPlace(tokenize(`_ ${rest.slice(found[0].length)}`).slice(1), line))
    this.macros.set(found[1], { name: found[1], parameters, variadic, body })
  }

  private holds(word: string, rest: string, line: number): boolean {
    if (word !== "if") return this.macros.has(rest.trim().split(/\s/)[0]) === (word === "ifdef")
    const asked = rest.replace(/\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))/g, (_, a?: string, b?: string) =>
      this.macros.has((a ?? b) as string) ? " 1 " : " 0 ",
    )
    const expanded = this.expand(tokenize(asked), new Set())
      .map((t) => t.text)
      .join("")
    const value = evaluateCondition(expanded)
    if (value === null) this.report(line, `cannot evaluate the condition ${rest.trim()}`)
    return value !== null && value !== 0
  }

  /** Expands everything but the names in `hidden`, which are being expanded already. */
  private expand(tokens: readonly Token[], hidden: ReadonlySet<string>): Token[] {
    const out: Token[] = []
    for (let i = 0; i < tokens.length; ) {
      const { result, end } = this.expandAt(tokens, i, hidden)
      out.push(...result)
      i = end
    }
    return out
  }

  private expandAt(
    tokens: readonly Token[],
    at: number,
    hidden: ReadonlySet<string>,
  ): { result: readonly Token[]; end: number } {
    const token = tokens[at]
    const macro = token.kind === "word" && !hidden.has(token.text) ? this.macros.get(token.text) : undefined
    if (!macro) return { result: [token], end: at + 1 }
    const inner = new Set([...hidden, macro.name])
    if (macro.parameters === null)
      return { result: this.expand(pasted(inPlace(macro.body, token.line)), inner), end: at + 1 }
    let open = at + 1
    while (isSpace(tokens[open])) open++
    if (tokens[open]?.text !== "(") return { result: [token], end: at + 1 }
    const call = argumentsOf(tokens, open)
    if (!call) {
      this.report(token.line, `the call of the macro ${macro.name} has no end`)
      return { result: [], end: tokens.length }
    }
    const body = this.substitute(macro, call.list, token.line, hidden)
    return { result: this.expand(pasted(body), inner), end: call.end + 1 }
  }

  private substitute(
    macro: Macro,
    given: readonly Token[][],
    line: number,
    hidden: ReadonlySet<string>,
  ): Token[] {
    const parameters = macro.parameters as readonly string[]
    const isEmpty = given.length === 1 && given[0].length === 0
    const count = isEmpty && parameters.length === 0 ? 0 : given.length
    if (count < parameters.length || (count > parameters.length && !macro.variadic))
      this.report(line, `the macro ${macro.name} takes ${parameters.length} arguments, received ${count}`)
    const values = new Map<string, readonly Token[]>()
    parameters.forEach((name, i) => void values.set(name, given[i] ?? []))
    if (macro.variadic)
      values.set(
        "__VA_ARGS__",
        given
          .slice(parameters.length)
          .flatMap((list, i) => (i === 0 ? list : [{ kind: "sign" as const, text: ",", line }, ...list])),
      )
    const out: Token[] = []
    const { body } = macro
    for (let i = 0; i < body.length; i++) {
      const token = { ...body[i], line }
      const isPaste = body[i].text === "#" && body[i + 1]?.text === "#"
      if (isPaste) {
        out.push(token, { ...body[i + 1], line })
        i++
      } else if (token.text === "#" && values.has(body[i + 1]?.text ?? "")) {
        const text = (values.get(body[i + 1].text) as readonly Token[]).map((t) => t.text).join("")
        out.push({ kind: "string", text: JSON.stringify(text.replace(/\s+/g, " ").trim()), line })
        i++
      } else {
        const value = token.kind === "word" ? values.get(token.text) : undefined
        // Beside ## an argument is taken as it was written.
        if (!value) out.push(token)
        else out.push(...(isBesidePaste(body, i) ? value : this.expand(value, hidden)))
      }
    }
    return out
  }
}

const inPlace = (tokens: readonly Token[], line: number): Token[] => tokens.map((t) => ({ ...t, line }))

function trimmed(tokens: readonly Token[]): Token[] {
  let [begin, end] = [0, tokens.length]
  while (begin < end && isSpace(tokens[begin])) begin++
  while (end > begin && isSpace(tokens[end - 1])) end--
  return tokens.slice(begin, end)
}

function isBesidePaste(body: readonly Token[], at: number): boolean {
  let after = at + 1
  while (isSpace(body[after])) after++
  let before = at - 1
  while (isSpace(body[before])) before--
  return (
    (body[after]?.text === "#" && body[after + 1]?.text === "#") ||
    (body[before]?.text === "#" && body[before - 1]?.text === "#")
  )
}

/** The arguments between the parenthesis at `open` and the one that closes it. */
function argumentsOf(tokens: readonly Token[], open: number): { list: Token[][]; end: number } | null {
  const list: Token[][] = [[]]
  let depth = 0
  for (let i = open; i < tokens.length; i++) {
    const { text, kind, line } = tokens[i]
    if (text === "(" || text === "[" || text === "{") depth++
    if (text === ")" || text === "]" || text === "}") depth--
    if (depth === 0) return { list: list.map(trimmed), end: i }
    if (text === "," && depth === 1) list.push([])
    else if (i > open) list[list.length - 1].push(kind === "space" ? space(line) : tokens[i])
  }
  return null
}

/** Joins what stands beside `##`. */
function pasted(tokens: readonly Token[]): Token[] {
  const out: Token[] = []
  for (let i = 0; i < tokens.length; i++) {
    if (tokens[i].text !== "#" || tokens[i + 1]?.text !== "#") {
      out.push(tokens[i])
      continue
    }
    while (isSpace(out.at(-1))) out.pop()
    i += 2
    while (isSpace(tokens[i])) i++
    const left = out.pop()
    const joined = tokenize(`${left?.text ?? ""}${tokens[i]?.text ?? ""}`)
    out.push(...inPlace(joined, left?.line ?? tokens[i]?.line ?? 1))
  }
  return out
}
