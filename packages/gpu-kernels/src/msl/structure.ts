/**
 * The declarations of a Metal source: namespaces, functions with their parameters, statements outside functions. Just enough of a parser
 * to rewrite and to judge; types stay text.
 */
import type { Words } from "./tokens"

/** A parameter of a function. */
export interface Parameter {
  readonly begin: number
  readonly end: number
  readonly name: string
  /** `buffer(0)`, `thread_position_in_grid`, … */
  readonly attributes: readonly { readonly name: string; readonly argument: string }[]
}

/** A function with a body. */
export interface FunctionDefinition {
  readonly name: string
  /** With namespaces. */
  readonly qualified: string
  readonly isKernel: boolean
  readonly isTemplate: boolean
  readonly parameters: readonly Parameter[]
  /** From the first word of the declaration to the closing brace. */
  readonly begin: number
  readonly open: number
  readonly end: number
  readonly line: number
  /** Of the declaration. */
  readonly attributes: readonly { readonly name: string; readonly argument: string }[]
}

/** A statement outside functions that ends with a semicolon. */
export interface Statement {
  readonly begin: number
  readonly end: number
  readonly namespace: string
  /** True if it stands in a struct or class. */
  readonly inType: boolean
}

export interface Structure {
  readonly functions: readonly FunctionDefinition[]
  readonly statements: readonly Statement[]
}

/** Reads the structure of a whole source. */
export function readStructure(words: Words): Structure {
  const functions: FunctionDefinition[] = []
  const statements: Statement[] = []
  const scopes: { kind: "namespace" | "type"; name: string }[] = []
  let begin = 0
  for (let i = 0; i < words.length; i++) {
    const text = words.text(i)
    const path = scopes.map((s) => `${s.name}::`).join("")
    if (text === "}") {
      scopes.pop()
      // `};` belongs to the type; variables after it are not Metal's habit.
      if (words.text(i + 1) === ";") i++
      begin = i + 1
    } else if (text === ";") {
      if (i > begin)
        statements.push({ begin, end: i, namespace: path, inType: scopes.some((s) => s.kind === "type") })
      begin = i + 1
    } else if (text === "(" || words.isAttribute(i)) {
      i = words.closing(i)
    } else if (text === "{") {
      const opened = classify(words, begin, i)
      if (opened.kind === "function") {
        const end = words.closing(i)
        functions.push(readFunction(words, begin, i, end, path))
        i = end
        begin = i + 1
      } else if (opened.kind === "braces") {
        i = words.closing(i)
      } else {
        scopes.push({ kind: opened.kind, name: opened.name })
        begin = i + 1
      }
    } else if (
      (text === "public" || text === "private" || text === "protected") &&
      words.text(i + 1) === ":"
    ) {
      i++
      begin = i + 1
    }
  }
  return { functions, statements }
}

function classify(
  words: Words,
  begin: number,
  open: number,
): { kind: "namespace" | "type"; name: string } | { kind: "function" } | { kind: "braces" } {
  const start = skipTemplate(words, begin)
  const first = words.text(start)
  if (first === "namespace" || (first === "inline" && words.text(start + 1) === "namespace"))
    return { kind: "namespace", name: words.text(open - 1) === "namespace" ? "" : words.text(open - 1) }
  for (let i = start; i < open; i++) {
    if (words.isAttribute(i)) i = words.closing(i)
    else if (words.text(i) === "operator") return { kind: "function" }
    else if (words.text(i) === "<") i = Math.min(words.closing(i), open)
    else if (words.text(i) === "(") return { kind: "function" }
    else if (words.text(i) === "=") return { kind: "braces" }
    else if (words.text(i) === "enum") return { kind: "braces" }
    else if (/^(struct|class|union)$/.test(words.text(i))) return { kind: "type", name: words.text(i + 1) }
  }
  return { kind: "braces" }
}

/** The position after `template <…>`, any number of times. */
export function skipTemplate(words: Words, begin: number): number {
  let i = begin
  while (words.text(i) === "template" && words.text(i + 1) === "<") i = words.closing(i + 1) + 1
  return i
}

function readFunction(
  words: Words,
  begin: number,
  open: number,
  end: number,
  path: string,
): FunctionDefinition {
  const start = skipTemplate(words, begin)
  const attributes: { name: string; argument: string }[] = []
  let isKernel = false
  let list = open
  for (let i = start; i < open; i++) {
    const text = words.text(i)
    if (words.isAttribute(i)) {
      const close = words.closing(i)
      attributes.push(...readAttributes(words, i + 2, close - 1))
      i = close
    } else if (text === "operator") {
      // Its name may be made of any signs.
      list = words.text(i + 1) === "(" ? words.closing(i + 1) + 1 : i + 1
      while (words.text(list) !== "(") list++
      break
    } else if (text === "kernel") isKernel = true
    else if (text === "<") i = Math.min(words.closing(i), open)
    else if (text === "(") {
      list = i
      break
    }
  }
  const name = words.at(list - 1).kind === "word" ? words.text(list - 1) : "operator"
  return {
    name,
    qualified: path + name,
    isKernel: isKernel || attributes.some((a) => a.name === "kernel"),
    isTemplate: start > begin,
    parameters: readParameters(words, list + 1, words.closing(list)),
    begin,
    open,
    end,
    line: words.at(list - 1).line,
    attributes,
  }
}

/** The attributes between `[[` and `]]`. */
export function readAttributes(
  words: Words,
  begin: number,
  end: number,
): { name: string; argument: string }[] {
  return words.split(begin, end).map(([from, to]) => {
    const bracket = words.text(from + 1) === "(" ? from + 1 : to
    return { name: words.text(from), argument: words.slice(bracket + 1, to - 1) }
  })
}

/** The parameters between the parentheses of a list. */
export function readParameters(words: Words, begin: number, end: number): Parameter[] {
  const parameters: Parameter[] = []
  for (const [from, to] of words.split(begin, end)) {
    if (to === from + 1 && words.text(from) === "void") continue
    const attributes: { name: string; argument: string }[] = []
    let name = ""
    for (let i = from; i < to; i++) {
      if (words.isAttribute(i)) {
        const close = words.closing(i)
        attributes.push(...readAttributes(words, i + 2, close - 1))
        i = close
      } else if (words.text(i) === "=") break
      else if (words.text(i) === "<") i = Math.min(words.closing(i), to)
      else if (words.text(i) === "[") i = words.closing(i)
      else if (words.at(i).kind === "word") name = words.text(i)
    }
    parameters.push({ begin: from, end: to, name, attributes })
  }
  return parameters
}
