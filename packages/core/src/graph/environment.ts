/**
 * Environment variables. One with a value that it does not take is ignored with a warning, once: a program that ran without it goes on.
 * Values that a program cannot run without, such as the address of a job's first rank, are errors where they are needed.
 */

const warned = new Set<string>()

function ignored(name: string, expected: string, received: string): null {
  if (!warned.has(name)) {
    warned.add(name)
    const shown = JSON.stringify(received.length > 40 ? `${received.slice(0, 40)}…` : received)
    process.emitWarning(`${name} must be ${expected}, received ${shown}: it is ignored`, {
      type: "LazuliWarning",
      code: "LAZULI_VARIABLE",
    })
  }
  return null
}

/** An integer; null where the variable is not set or not such. */
export function integerFrom(
  name: string,
  least: number,
  most: number = Number.MAX_SAFE_INTEGER,
): number | null {
  const text = process.env[name]
  if (text === undefined || text === "") return null
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (value >= least && value <= most) return value
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`
  return ignored(name, `an integer ${range}`, text)
}

/** A number of seconds; null where the variable is not set or not such. */
export function secondsFrom(name: string): number | null {
  const text = process.env[name]
  if (text === undefined || text === "") return null
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : ignored(name, "a number of seconds", text)
}

/** One of some words; null where the variable is not set or not such. */
export function choiceFrom<const C extends string>(name: string, choices: readonly C[]): C | null {
  const text = process.env[name]
  if (text === undefined || text === "") return null
  const chosen = choices.find((choice) => choice === text)
  return chosen ?? ignored(name, `one of ${choices.join(", ")}`, text)
}

/** Those of some words that a list has, parted by commas or spaces; others are ignored. */
export function choicesFrom<const C extends string>(name: string, choices: readonly C[]): C[] {
  const words = (process.env[name] ?? "").split(/[,\s]+/).filter((word) => word !== "")
  const unknown = words.find((word) => !choices.some((choice) => choice === word))
  if (unknown !== undefined) ignored(name, `a list of some of ${choices.join(", ")}`, unknown)
  return choices.filter((choice) => words.includes(choice))
}

/** True for `1`, false for `0`; null where the variable is neither. */
export function flagFrom(name: string): boolean | null {
  const chosen = choiceFrom(name, ["0", "1"])
  return chosen === null ? null : chosen === "1"
}
