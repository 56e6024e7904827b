/**
 * `c ? a : b` where half is a class: its conversions from and to float are implicit, as Metal's are, so that C++ finds either branch's
 * type for the other and refuses to choose. Each branch is told of the other's type instead, and becomes what Metal's rules say.
 */
import type { Words } from "./tokens"

/** Positions of one conditional expression: of `?`, of `:`, and behind its second branch. */
interface Conditional {
  readonly question: number
  readonly colon: number
  readonly end: number
}

/** Branches of so many characters, of many expressions within each other, stay as they are. */
const MOST = 2000

/**
 * The location where an expression from `begin` on ends: at a bracket, comma or semicolon that is not its own, or at the colon of a `?`
 * before.
 */
function endOf(words: Words, begin: number, endsAtComma: boolean): number {
  let open = 0
  for (let i = begin; i < words.length; i++) {
    const text = words.text(i)
    if (text === "(" || text === "[" || text === "{") i = words.closing(i)
    else if (text === "<") {
      const close = words.closing(i)
      if (close < words.length && words.text(close + 1) === "(") i = close
    } else if (text === "?") open++
    else if (text === ":") {
      if (open-- === 0) return i
    } else if (/^[)\]};]$/.test(text) || (text === "," && endsAtComma)) return i
  }
  return words.length
}

function conditionals(words: Words): Conditional[] {
  const found: Conditional[] = []
  for (let question = 0; question < words.length; question++) {
    if (words.text(question) !== "?") continue
    const colon = endOf(words, question + 1, false)
    if (words.text(colon) === ":") found.push({ question, colon, end: endOf(words, colon + 1, true) })
  }
  return found
}

/** Tells the branches of all conditional expressions of each other's types. */
export function matchBranches(words: Words): void {
  // Inner ones come later in the text.
  for (const { question, colon, end } of conditionals(words).reverse()) {
    const [first, second] = [words.slice(question + 1, colon), words.slice(colon + 1, end)]
    if (first === "" || second === "" || first.length + second.length > MOST) continue
    const beside = (other: string): string => `(lz::Beside<decltype((${other}))>(), `
    words.at(question).text = `? ${beside(second)}`
    words.at(colon).text = `) : ${beside(first)}`
    words.at(end - 1).text += ")"
  }
}
