/** A short soak, and when one counts as flat. The long one is `npm run soak`. */
import { describe, expect, test } from "vitest"
import { MODES, soak, WAITS } from "./soak-steps"
import { type Sample, type Settled, verdict } from "./soak-verdict"

const MB = 2 ** 20

describe("memory of a loop of training steps", () => {
  for (const mode of MODES)
    for (const wait of WAITS) {
      // A leak is there each time; what the collector has not seen at the end, once in many runs.
      test(`is flat: ${mode}, ${wait}`, { retry: 2 }, async () => {
        const samples: Sample[] = []
        const what = { size: "tiny", mode, wait, steps: 500 } as const
        const { quarter, end } = await soak(what, 20, (sample) => samples.push(sample))
        expect(samples.length).toBe(20)
        // So few steps say nothing about the process: other tests ran in it, and V8's heap still grows.
        expect(verdict(samples, quarter, end, { ofProcess: false })).toEqual([])
      })
    }
})

describe("the verdict", () => {
  const settled: Settled = { active: MB, buffers: 50, heap: 20 * MB }
  const run = (rss: (i: number) => number): Sample[] =>
    Array.from({ length: 40 }, (_, i) => ({
      step: i,
      seconds: i,
      rss: rss(i) * MB,
      heapUsed: 10 * MB,
      heapTotal: 20 * MB,
      active: MB,
      cache: MB,
      peak: MB,
    }))

  test("lets memory go up and down", () => {
    expect(
      verdict(
        run((i) => 130 + 10 * (i % 7)),
        settled,
        settled,
      ),
    ).toEqual([])
  })

  test("names what rises", () => {
    expect(
      verdict(
        run((i) => 100 + i),
        settled,
        settled,
      ),
    ).toEqual(["rss rose from at most 119.0 MB to 139.0 MB in the last half"])
    const end = { active: 9 * MB, buffers: 1050, heap: 25 * MB }
    expect(
      verdict(
        run(() => 100),
        settled,
        end,
      ),
    ).toEqual([
      "living arrays took 1048576 bytes after a quarter and 9437184 at the end",
      "50 buffers lived after a quarter and 1050 at the end",
      "the heap kept 20.0 MB after a quarter and 25.0 MB at the end",
    ])
  })
})
