// Holds comments: at most WIDTH characters a line, and no comment begins with a question ("What …", "Whether …"), because a noun or a verb
// says sooner what is commented. Native sources get their width from clang-format.
//
//   node tooling/check-comments.mjs            names what is wrong, and fails
//   node tooling/check-comments.mjs --write    wraps comments that are too wide

import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { pathToFileURL } from "node:url"
import ts from "typescript"

export const WIDTH = 140
const QUESTION = /^(What|Whatever|Whether|Which|Who|Whoever|Whose|How)\b/
/** Lines that are not prose: lists, tables, fences, directives, empty ones. */
const STRUCTURED = /^(\s|[-*|#>]|```|\d+\. |biome-ignore|@ts-|$)/

/** The comments of a TypeScript or JavaScript text, as [start, end]. What looks like one in a string is none. */
export function commentsOf(text, file = "x.ts") {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)
  const found = new Map()
  const visit = (node) => {
    for (const range of ts.getLeadingCommentRanges(text, node.pos) ?? []) found.set(range.pos, range.end)
    for (const range of ts.getTrailingCommentRanges(text, node.end) ?? []) found.set(range.pos, range.end)
    if (node.kind < ts.SyntaxKind.FirstJSDocNode || node.kind > ts.SyntaxKind.LastJSDocNode)
      for (const child of node.getChildren(source)) visit(child)
  }
  visit(source)
  return [...found].sort(([a], [b]) => a - b)
}

/** Lines of words, each at most `width` long. */
function fill(words, width) {
  const lines = []
  let line = ""
  for (const word of words) {
    if (line && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line ? `${line} ${word}` : word
  }
  return line ? [...lines, line] : lines
}

/** Prose lines with everything from the first one that is too wide on wrapped again, paragraph by paragraph. */
function wrapLines(lines, width) {
  const out = []
  let isCode = false
  for (let i = 0; i < lines.length; i++) {
    if (lines[i].startsWith("```") || /^@\w/.test(lines[i]))
      isCode = /^(```|@example)/.test(lines[i]) && !isCode
    if (isCode || lines[i].length <= width || STRUCTURED.test(lines[i])) {
      out.push(lines[i])
      continue
    }
    let end = i + 1
    while (end < lines.length && !STRUCTURED.test(lines[end]) && !/^@\w/.test(lines[end])) end++
    out.push(...fill(lines.slice(i, end).join(" ").split(" "), width))
    i = end - 1
  }
  return out
}

/** The text with comments of whole lines wrapped. */
export function wrapped(text, file, width = WIDTH) {
  let out = text
  for (const [start, end] of groups(text, file).reverse()) {
    const lineStart = text.lastIndexOf("\n", start) + 1
    const indent = text.slice(lineStart, start)
    const comment = text.slice(start, end)
    const lines = comment.split("\n")
    if (indent.trim() !== "" || lines.every((line, i) => line.length + (i ? 0 : indent.length) <= width))
      continue
    out = out.slice(0, start) + wrapOne(comment, indent, width) + out.slice(end)
  }
  return out
}

function wrapOne(comment, indent, width) {
  if (comment.startsWith("//")) {
    const lines = comment.split("\n").map((line) => line.trim().replace(/^\/\/ ?/, ""))
    return wrapLines(lines, width - indent.length - 3)
      .map((line) => `// ${line}`.trimEnd())
      .join(`\n${indent}`)
  }
  if (!comment.startsWith("/**")) return comment
  const lines = comment
    .slice(3, -2)
    .split("\n")
    .map((line, i) => (i ? line.trim().replace(/^\* ?/, "") : line.trim()))
  if (lines[0] === "") lines.shift()
  if (lines.at(-1).trim() === "") lines.pop()
  const prose = wrapLines(lines, width - indent.length - 3).map((line) => ` * ${line.trimEnd()}`.trimEnd())
  return ["/**", ...prose, " */"].join(`\n${indent}`)
}

/** Comments, with `//` lines below each other as one. */
function groups(text, file) {
  const out = []
  for (const [start, end] of commentsOf(text, file)) {
    const last = out.at(-1)
    const between = last && text.slice(last[1], start)
    if (last && text.startsWith("//", start) && text.startsWith("//", last[0]) && /^\n[ \t]*$/.test(between))
      last[1] = end
    else out.push([start, end])
  }
  return out
}

/** Problems of a file, as `line: text`. */
export function problemsOf(text, file) {
  const script = /\.(ts|mjs)$/.test(file)
  const problems = []
  const lineOf = (at) => text.slice(0, at).split("\n").length
  for (const [start, end] of script ? groups(text, file) : nativeComments(text)) {
    const words = text.slice(start, end).replace(/^(\/\/|\/\*+)[\s*]*/, "")
    const asks = QUESTION.exec(words)
    if (asks) problems.push(`${lineOf(start)}: begins with "${asks[1]}": say it with a noun or a verb`)
    if (!script) continue
    const lineStart = text.lastIndexOf("\n", start) + 1
    text
      .slice(lineStart, end)
      .split("\n")
      .forEach((line, i) => {
        if (
          line.length > WIDTH &&
          !line.includes("biome-ignore") &&
          /\s/.test(line.replace(/^\s*(\/\/|\/?\*+)\s*/, "").trim())
        )
          problems.push(`${lineOf(lineStart) + i}: ${line.length} characters, at most ${WIDTH}`)
      })
  }
  return problems
}

/** Comments that begin a line of a native source. */
function nativeComments(text) {
  return [...text.matchAll(/^[ \t]*(\/\*[\s\S]*?\*\/|\/\/[^\n]*(\n[ \t]*\/\/[^\n]*)*)/gm)].map((match) => {
    const start = match.index + match[0].indexOf("/")
    return [start, match.index + match[0].length]
  })
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { stdout } = spawnSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
    encoding: "utf8",
    maxBuffer: 1 << 26,
  })
  const files = stdout.split("\n").filter((file) => /\.(ts|mjs|cc|h|c|metal)$/.test(file) && existsSync(file))
  let count = 0
  for (const file of files) {
    let text = readFileSync(file, "utf8")
    if (process.argv.includes("--write") && /\.(ts|mjs)$/.test(file)) {
      const made = wrapped(text, file)
      if (made !== text) writeFileSync(file, made)
      text = made
    }
    for (const problem of problemsOf(text, file)) {
      console.error(`${file}:${problem}`)
      count++
    }
  }
  console.log(`comments: ${files.length} files, ${count} problems`)
  process.exitCode = count ? 1 : 0
}
