/** The value of a preprocessor's condition: integers and operators, by precedence. */

const BINARY: readonly (readonly [string, (a: number, b: number) => number])[][] = [
  [["||", (a, b) => Number(a !== 0 || b !== 0)]],
  [["&&", (a, b) => Number(a !== 0 && b !== 0)]],
  [["|", (a, b) => a | b]],
  [["^", (a, b) => a ^ b]],
  [["&", (a, b) => a & b]],
  [
    ["==", (a, b) => Number(a === b)],
    ["!=", (a, b) => Number(a !== b)],
  ],
  [
    ["<=", (a, b) => Number(a <= b)],
    [">=", (a, b) => Number(a >= b)],
    ["<", (a, b) => Number(a < b)],
    [">", (a, b) => Number(a > b)],
  ],
  [
    ["<<", (a, b) => a << b],
    [">>", (a, b) => a >> b],
  ],
  [
    ["+", (a, b) => a + b],
    ["-", (a, b) => a - b],
  ],
  [
    ["*", (a, b) => a * b],
    ["/", (a, b) => Math.trunc(a / b)],
    ["%", (a, b) => a % b],
  ],
]
const WORDS = /\s*(0[xX][\da-fA-F]+|\d+|[A-Za-z_]\w*|\|\||&&|==|!=|<=|>=|<<|>>|[-+*/%&|^!~<>()?:])[uUlL]*/y

/** Null where the text is no such expression; unknown names are 0. */
export function evaluateCondition(text: string): number | null {
  const words: string[] = []
  WORDS.lastIndex = 0
  const source = text.trim()
  while (WORDS.lastIndex < source.length) {
    const found = WORDS.exec(source)
    if (!found) return null
    words.push(found[1])
  }
  let at = 0
  const primary = (): number => {
    const word = words[at++]
    if (word === "!") return Number(primary() === 0)
    if (word === "-") return -primary()
    if (word === "+") return primary()
    if (word === "~") return ~primary()
    if (word === "(") {
      const value = choice()
      if (words[at++] !== ")") throw MALFORMED
      return value
    }
    if (word !== undefined && /^\d/.test(word)) return Number(word)
    if (word !== undefined && /^[A-Za-z_]/.test(word)) return Number(word === "true")
    throw MALFORMED
  }
  const level = (n: number): number => {
    if (n === BINARY.length) return primary()
    let value = level(n + 1)
    for (;;) {
      const operator = BINARY[n].find(([sign]) => sign === words[at])
      if (!operator) return value
      at++
      value = operator[1](value, level(n + 1))
    }
  }
  const choice = (): number => {
    const value = level(0)
    if (words[at] !== "?") return value
    at++
    const yes = choice()
    if (words[at++] !== ":") throw MALFORMED
    const no = choice()
    return value !== 0 ? yes : no
  }
  try {
    const value = choice()
    return at === words.length ? value : null
  } catch (error) {
    if (error === MALFORMED) return null
    throw error
  }
}

const MALFORMED = new Error("malformed")
