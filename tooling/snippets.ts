// Runs the code that documentation shows. A comment `// => value` behind or below a statement says what it gives; the
// runner compares. Used by the tests of docs/*.md and of the TSDoc examples.
//
// Expected numbers hold as far as they are written: `0.84` is met by 0.8415. `…` stands for anything. Strings, numbers, lists and
// objects are compared as values, everything else by how it is printed. `// => throws TEXT` expects an error whose
// name and message contain TEXT.

import { format, inspect } from "node:util"
import ts from "typescript"

/** A piece of code and where it stands. */
export interface Snippet {
  readonly code: string
  /** The line of the file that its first line is. */
  readonly line: number
}

/** The fenced blocks of a language in Markdown. */
export function blocksOf(markdown: string, language = "ts"): Snippet[] {
  const blocks: Snippet[] = []
  const fence = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm")
  for (const match of markdown.matchAll(fence)) {
    blocks.push({ code: match[1], line: lineAt(markdown, match.index) + 1 })
  }
  return blocks
}

/** The text behind every `@example` of the doc comments of a source file. */
export function examplesOf(source: string): Snippet[] {
  const examples: Snippet[] = []
  for (const comment of source.matchAll(/\/\*\*[\s\S]*?\*\//g)) {
    for (const match of comment[0].matchAll(/@example\b([\s\S]*?)(?=^\s*\*\s*@\w|\*\/$)/gm)) {
      const code = match[1]
        .replace(/^[ \t]*\* ?/gm, "")
        .replace(/^```\w*$/gm, "")
        .trimEnd()
      examples.push({ code, line: lineAt(source, comment.index + match.index) })
    }
  }
  return examples
}

/** The number of values that snippets promise. */
export const promises = (snippets: readonly Snippet[]): number =>
  snippets.reduce((sum, { code }) => sum + code.split("// =>").length - 1, 0)

const lineAt = (text: string, index: number): number => text.slice(0, index).split("\n").length

/** Everything a snippet may import, and names it has without importing. */
export interface Surroundings {
  readonly modules: Readonly<Record<string, unknown>>
  readonly names?: Readonly<Record<string, unknown>>
}

/**
 * Runs snippets in order, in one scope, and gives a message for each expectation that did not hold.
 * @throws what a snippet throws unexpectedly, with the line in front
 */
export async function runSnippets(
  snippets: readonly Snippet[],
  { modules, names = {} }: Surroundings,
): Promise<{ problems: string[]; checked: number }> {
  const problems: string[] = []
  const expectations: { text: string; line: number }[] = []
  const source = snippets.map((snippet) => instrument(snippet, expectations)).join("\n")
  let at = snippets[0]?.line ?? 0
  let checked = 0
  const tools = {
    $at: (line: number) => {
      at = line
    },
    $check: (index: number, value: unknown) => {
      const { text, line } = expectations[index]
      checked++
      const problem = compare(text, value)
      if (problem) problems.push(`line ${line}: ${problem}`)
      return value
    },
    $print: (index: number, ...values: unknown[]) => {
      const { text, line } = expectations[index]
      checked++
      const printed = format(...values)
      if (!samePrint(text, printed)) problems.push(`line ${line}: prints ${printed}, expected ${text}`)
    },
    $throws: async (index: number, body: () => unknown) => {
      const { text, line } = expectations[index]
      const wanted = text.replace(/^throws\s*/, "")
      checked++
      try {
        await body()
      } catch (error) {
        if (!samePrint(`…${wanted}…`, String(error)))
          problems.push(`line ${line}: throws ${error}, expected ${wanted}`)
        return
      }
      problems.push(`line ${line}: does not throw, expected ${wanted}`)
    },
    require: (name: string) => {
      if (name in modules) return modules[name]
      throw new Error(`snippets may import ${Object.keys(modules).join(", ")}, not ${name}`)
    },
    exports: {},
  }
  const { outputText } = ts.transpileModule(source, {
    compilerOptions: { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022 },
  })
  const scope = { ...names, ...tools }
  const AsyncFunction = (async () => {}).constructor as new (
    ...args: string[]
  ) => (...values: unknown[]) => unknown
  try {
    await new AsyncFunction(...Object.keys(scope), `{${outputText}\n}`)(...Object.values(scope))
  } catch (error) {
    throw new Error(`line ${at}: ${(error as Error).stack ?? error}`)
  }
  return { problems, checked }
}

/** The code with each expectation turned into a call. */
function instrument(snippet: Snippet, expectations: { text: string; line: number }[]): string {
  const file = ts.createSourceFile("snippet.ts", snippet.code, ts.ScriptTarget.Latest, true)
  let out = ""
  const copy = (statement: ts.Statement): void => {
    const text = statement.getText(file)
    const line = snippet.line + file.getLineAndCharacterOfPosition(statement.getStart(file)).line
    const expected = expectationAfter(snippet.code, statement.getEnd())
    const mark = ts.isImportDeclaration(statement) ? "" : `$at(${line});`
    if (expected === null) {
      out += `${mark}${text}\n`
      return
    }
    const index = expectations.push({ text: expected, line }) - 1
    if (expected.startsWith("throws")) out += `${mark}await $throws(${index}, async () => { ${text} });\n`
    else if (ts.isExpressionStatement(statement)) {
      const { expression } = statement
      const printed = /^console\.\w+\(/.exec(expression.getText(file))
      out += printed
        ? `${mark}$print(${index}, ${expression.getText(file).slice(printed[0].length)};\n`
        : `${mark}$check(${index}, (${expression.getText(file)}));\n`
    } else if (ts.isVariableStatement(statement)) {
      const { name } = statement.declarationList.declarations.at(-1) as ts.VariableDeclaration
      const value = ts.isIdentifier(name)
        ? name.text
        : `[${name.elements.map((e) => e.getText(file)).join(", ")}]`
      out += `${mark}${text}\n$check(${index}, ${value});\n`
    } else out += `${mark}${text}\n$check(${index}, undefined);\n`
  }
  for (const statement of file.statements) copy(statement)
  return out
}

/** The text of a `// =>` comment on the rest of the line or on the lines below. */
function expectationAfter(code: string, end: number): string | null {
  const match = /^[;,]?[ \t]*(?:\n[ \t]*)?\/\/ =>[ \t]?(.*)((?:\n[ \t]*\/\/ {2,}.*)*)/.exec(code.slice(end))
  if (!match) return null
  const more = match[2].replace(/^[ \t]*\/\/ {2,}/gm, "")
  return `${match[1]}${more}`.trim()
}

/** The fault of a value, or null. */
function compare(expected: string, value: unknown): string | null {
  const file = ts.createSourceFile("value.ts", `(${expected})`, ts.ScriptTarget.Latest, true)
  const statement = file.statements[0]
  const parsed =
    file.statements.length === 1 && ts.isExpressionStatement(statement) && !expected.includes("…")
      ? sameValue(statement.expression, value)
      : null
  if (parsed === true || (parsed === null && samePrint(expected, print(value)))) return null
  return `gives ${print(value)}, expected ${expected}`
}

const print = (value: unknown): string =>
  inspect(value, { depth: 8, breakLength: Number.POSITIVE_INFINITY, compact: true })

const squeezed = (text: string): string => text.replace(/\s+/g, "")

/** Equal but for white space, where `…` in the expectation matches anything. */
function samePrint(expected: string, printed: string): boolean {
  const parts = squeezed(expected).replaceAll("...", "…").split("…")
  const pattern = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")
  return new RegExp(`^${pattern}$`).test(squeezed(printed).replaceAll("...", "…"))
}

/** True if a value is what a literal says; null when the text is no literal. */
function sameValue(node: ts.Expression, value: unknown): boolean | null {
  if (ts.isParenthesizedExpression(node)) return sameValue(node.expression, value)
  if (ts.isNumericLiteral(node)) return typeof value === "number" && close(value, node.getText())
  if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.MinusToken) {
    if (typeof value !== "number" && typeof value !== "bigint") return false
    return sameValue(node.operand, -value)
  }
  if (ts.isBigIntLiteral(node)) return typeof value === "bigint" && value === BigInt(node.text.slice(0, -1))
  if (ts.isStringLiteralLike(node)) return value === node.text
  if (node.kind === ts.SyntaxKind.TrueKeyword) return value === true
  if (node.kind === ts.SyntaxKind.FalseKeyword) return value === false
  if (node.kind === ts.SyntaxKind.NullKeyword) return value === null
  if (ts.isIdentifier(node)) {
    const known: Record<string, unknown> = { undefined, NaN: Number.NaN, Infinity: Number.POSITIVE_INFINITY }
    return node.text in known ? Object.is(value, known[node.text]) : null
  }
  if (ts.isArrayLiteralExpression(node)) {
    if (!Array.isArray(value) || value.length !== node.elements.length) return false
    return all(node.elements.map((element, i) => sameValue(element, value[i])))
  }
  if (ts.isObjectLiteralExpression(node)) {
    if (typeof value !== "object" || value === null) return false
    const entries = node.properties.filter(ts.isPropertyAssignment)
    if (entries.length !== node.properties.length || entries.length !== Object.keys(value).length)
      return false
    return all(
      entries.map(({ name, initializer }) => {
        const key = ts.isStringLiteralLike(name) ? name.text : name.getText()
        return key in value && sameValue(initializer, (value as Record<string, unknown>)[key])
      }),
    )
  }
  return null
}

/** False when one is; null when one is no literal. */
function all(results: readonly (boolean | null)[]): boolean | null {
  return results.includes(false) ? false : results.includes(null) ? null : true
}

/** Equal to as many digits as are written; whole numbers exactly. */
function close(value: number, text: string): boolean {
  const wanted = Number(text.replaceAll("_", ""))
  if (value === wanted) return true
  const [mantissa, exponent = "0"] = text.toLowerCase().split("e")
  const digits = mantissa.split(".")[1]?.length ?? 0
  if (digits === 0 && exponent === "0") return false
  return Math.abs(value - wanted) <= 0.501 * 10 ** (Number(exponent) - digits)
}
