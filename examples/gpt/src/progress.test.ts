import { PassThrough } from "node:stream"
import { expect, test } from "vitest"
import { duration, showProgress } from "./progress"

const run = (isTTY: boolean) => {
  let time = 0
  let text = ""
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 120, cursorTo() {}, clearLine() {} })
  stream.on("data", (data) => {
    text += data
  })
  const progress = showProgress({
    first: 0,
    last: 100,
    tokensPerStep: 1000,
    stream: stream as unknown as NodeJS.WriteStream,
    now: () => time,
  })
  for (let step = 1; step <= 100; step++) {
    time += 100
    progress.update({ step, loss: 3, validation: step < 50 ? null : 2.5 })
  }
  progress.stop()
  progress.stop()
  return text
}

test("a line every five seconds, and the last", () => {
  expect(run(false)).toMatchInlineSnapshot(`
    "step 50/100  loss 3.000  held out 2.500  10,000 tokens/s  0:05 left
    step 100/100  loss 3.000  held out 2.500  10,000 tokens/s  0:00 left
    "
  `)
})

test("a bar on a terminal", () => {
  expect(run(true)).toContain("100/100")
})

test("durations", () => {
  expect([0, 59.6, 61, 3600, Number.POSITIVE_INFINITY].map(duration)).toEqual([
    "0:00",
    "1:00",
    "1:01",
    "60:00",
    "?",
  ])
})
