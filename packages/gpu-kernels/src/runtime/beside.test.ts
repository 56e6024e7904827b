/** Work beside a recording's other work: it is waited for before its memory is touched, and not before. */
import { expect, test } from "vitest"
import { Beside, type Range } from "./beside"
import { Command, CommandStream } from "./command-stream"

const between = (from: number, isWritten = false): Range => ({
  isBetween: true,
  from,
  to: from + 10,
  isWritten,
})
const outside = (isWritten: boolean): Range => ({ isBetween: false, from: 0, to: 1, isWritten })

const [EXCHANGE, OTHER] = [40, 41]
/** The commands of some work: `+` is beside. What touches nothing that is pending lists its ranges all the same. */
function commandsOf(...work: readonly (readonly ["+" | "-", ...Range[]])[]): string {
  const stream = new CommandStream()
  const beside = new Beside(stream)
  for (const [kind, ...ranges] of work) {
    if (kind === "+") beside.add(ranges)
    else if (beside.isPending) beside.touch(ranges)
    stream.call(kind === "+" ? EXCHANGE : OTHER, new Int32Array(1))
  }
  beside.end()
  const names: Record<number, string> = {
    [Command.Beside]: "beside",
    [Command.Rejoin]: "rejoin",
    [EXCHANGE]: "exchange",
    [OTHER]: "other",
  }
  const commands: string[] = []
  for (let at = 0; at < stream.length; at += stream.words[at] >> 8) {
    const name = names[stream.words[at] & 0xff]
    if (name) commands.push(name === "rejoin" ? `${name} ${stream.words[at + 1]}` : name)
  }
  return commands.join(" ")
}

test("other memory is worked on meanwhile, until something reads or writes that of the exchange", () => {
  const exchange = ["+", between(0), between(20, true)] as const
  const far = ["-", between(10), between(30, true), outside(true)] as const
  for (const touched of [between(25), between(25, true), between(5, true), between(5)])
    expect(commandsOf(exchange, far, ["-", touched], far)).toBe("beside exchange other rejoin 0 other other")
  expect(commandsOf(exchange, far, far)).toBe("beside exchange other other rejoin 0")
})

test("exchanges follow each other, and what reads one waits for those up to it", () => {
  const [first, second] = [
    ["+", between(0, true)],
    ["+", between(20, true)],
  ] as const
  const both = [first, ["-", between(40)], second, ["-", between(60)]] as const
  const begin = "beside exchange other beside exchange other"
  expect(commandsOf(...both, ["-", between(0)], ["-", between(20)])).toBe(
    `${begin} rejoin 0 other rejoin 1 other`,
  )
  expect(commandsOf(...both, ["-", between(20)], ["-", between(0)])).toBe(`${begin} rejoin 1 other other`)
  expect(commandsOf(...both, ["-", between(0)], ["-", between(60)])).toBe(
    `${begin} rejoin 0 other other rejoin 1`,
  )
})

test("an exchange that is read at once is no branch, and the next one runs beside its reader", () => {
  expect(
    commandsOf(["+", between(0, true)], ["+", between(20, true)], ["-", between(0)], ["-", between(60)]),
  ).toBe("exchange beside exchange other other rejoin 1")
})

test("where nothing can run meanwhile there is no branch", () => {
  expect(commandsOf(["+", between(0, true)], ["-", between(0)], ["+", between(0, true)])).toBe(
    "exchange other exchange",
  )
})

test("inputs and outputs are in the way only of what writes one, or is written to one", () => {
  const other = ["-", between(40, true)] as const
  expect(commandsOf(["+", outside(false), between(0, true)], other, ["-", outside(false)])).toBe(
    "beside exchange other other rejoin 0",
  )
  for (const [exchange, touched] of [
    [outside(false), outside(true)],
    [outside(true), outside(false)],
  ])
    expect(commandsOf(["+", exchange], other, ["-", touched])).toBe("beside exchange other rejoin 0 other")
})
