/**
 * The words of a Metal source text, with their lines. Comments become blanks; nothing is dropped, so that the joined texts of the
 * tokens have the same lines as the source.
 */

/** `<`, `>`, `[` and `]` are always tokens of their own. */
export interface Token {
  readonly kind: "word" | "number" | "string" | "sign" | "directive" | "space"
  /** The text emitted for it: rewriting means changing this. */
  text: string
  readonly line: number
}

const patterns: readonly [Token["kind"], RegExp][] = [
  ["space", /(?:\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/)+/y],
  ["word", /[A-Za-z_]\w*/y],
  // With exponents, suffixes and separators; hexadecimal first, because its `e` is a digit.
  ["number", /0[xX](?:[pP][+-]|[\w.'])*|(?:\d|\.\d)(?:[eE][+-]|[\w.'])*/y],
  ["string", /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/y],
  ["sign", /::|->|\+\+|--|[-+*/%&|^!=]=|&&|\|\||[^\w\s]/y],
]

/** Splits a text. Line markers of a preprocessor (`# 12 "file"`) set the line. */
export function tokenize(source: string): Token[] {
  const tokens: Token[] = []
  let line = 1
  let at = 0
  let lineStart = true
  while (at < source.length) {
    if (lineStart && /[ \t]*#/y.test(source.slice(at, at + 80))) {
      const text = /(?:\\\n|[^\n])*/y.exec(source.slice(at))?.[0] as string
      tokens.push({ kind: "directive", text, line })
      const marker = /^\s*#\s*(?:line\s+)?(\d+)/.exec(text)
      // The newline that follows makes it the line that the marker names.
      line = marker ? Number(marker[1]) - 1 : line + newlines(text)
      at += text.length
      lineStart = false
      continue
    }
    lineStart = false
    const [kind, text] = next(source, at)
    at += text.length
    const count = newlines(text)
    if (kind === "space") {
      tokens.push({ kind, text: /\/[/*]/.test(text) ? blank(text) : text, line })
      lineStart = text.endsWith("\n") || /\n[ \t]*$/.test(text)
      // A directive may be indented: let it see its indentation.
      if (lineStart && source[at] === "#") {
        const indent = /[ \t]*$/.exec(text)?.[0].length ?? 0
        tokens[tokens.length - 1].text = tokens[tokens.length - 1].text.slice(0, -indent || undefined)
        at -= indent
      }
    } else tokens.push({ kind, text, line })
    line += count
  }
  return tokens
}

function next(source: string, at: number): [Token["kind"], string] {
  for (const [kind, pattern] of patterns) {
    pattern.lastIndex = at
    const found = pattern.exec(source)
    if (found) return [kind, found[0]]
  }
  return ["sign", source[at]]
}

const newlines = (text: string): number => text.split("\n").length - 1
/** Spaces and the newlines of a text, at least one. */
const blank = (text: string): string => text.replace(/[^\n]/g, "").replace(/^$/, " ")

/** The tokens that are not white space or directives, each knowing its location among all. */
export class Words {
  private readonly locations: number[] = []
  constructor(readonly tokens: readonly Token[]) {
    for (let i = 0; i < tokens.length; i++)
      if (tokens[i].kind !== "space" && tokens[i].kind !== "directive") this.locations.push(i)
  }
  get length(): number {
    return this.locations.length
  }
  /** The token at a position; an empty one outside. */
  at(i: number): Token {
    return this.tokens[this.locations[i] ?? -1] ?? NOTHING
  }
  text(i: number): string {
    return this.at(i).text
  }
  /** The texts of a range with the white space between them. */
  slice(begin: number, end: number): string {
    if (begin >= end) return ""
    return this.tokens
      .slice(this.locations[begin], this.locations[end - 1] + 1)
      .map((t) => t.text)
      .join("")
      .replace(/\s+/g, " ")
      .trim()
  }
  /** Empties a range; lines stay. */
  erase(begin: number, end: number): void {
    for (let i = begin; i < end; i++) this.at(i).text = ""
  }
  /** The position of the bracket that closes the one at `open`; `length` when there is none. Angles nest only among themselves. */
  closing(open: number): number {
    const [left, right] = [this.text(open), pairs[this.text(open)]]
    let depth = 0
    for (let i = open; i < this.length; i++) {
      const text = this.text(i)
      if (text === left) depth++
      else if (text === right && --depth === 0) return i
      else if (left === "<" && (text === "(" || text === "[" || text === "{")) i = this.closing(i)
      else if (left === "<" && (text === ";" || text === ")")) return this.length
    }
    return this.length
  }
  /** True if an attribute `[[…]]` begins here. */
  isAttribute(i: number): boolean {
    return this.text(i) === "[" && this.text(i + 1) === "["
  }
  /** Splits a range at its commas outside brackets. */
  split(begin: number, end: number): [number, number][] {
    const parts: [number, number][] = []
    let from = begin
    for (let i = begin; i < end; i++) {
      const text = this.text(i)
      if (text === "(" || text === "[" || text === "{") i = this.closing(i)
      else if (text === "<") {
        const close = this.closing(i)
        if (close < end) i = close
      } else if (text === ",") {
        parts.push([from, i])
        from = i + 1
      }
    }
    if (end > from) parts.push([from, end])
    return parts
  }
}

const NOTHING: Token = { kind: "space", text: "", line: 0 }
const pairs: Record<string, string> = { "(": ")", "[": "]", "{": "}", "<": ">" }
