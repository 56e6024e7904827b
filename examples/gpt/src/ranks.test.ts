/** The demonstration on two processes: both train, and the model is that of one. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, expect, test } from "vitest"
import { runJob } from "../../../packages/distributed/test/run-job"
import { generatedText } from "./generated-text"
import { parseOptions } from "./options"

const folder = mkdtempSync(join(tmpdir(), "lazuli-gpt-ranks-"))
afterAll(() => rmSync(folder, { recursive: true }))

test("--ranks 2 trains one model with two processes, and shows both", async () => {
  const text = join(folder, "text.txt")
  writeFileSync(text, generatedText(6000))
  const source = fileURLToPath(new URL("../../../tooling/run-source.mjs", import.meta.url))
  const program = [source, fileURLToPath(new URL("main.ts", import.meta.url))]
  const small =
    "--steps 40 --batch 4 --context 16 --layers 1 --width 32 --heads 2 --learning-rate 1e-2 --sample 0"
  const run = async (ranks: number): Promise<string[]> => {
    const args = [
      "--text",
      text,
      "--out",
      join(folder, `${ranks}`),
      "--ranks",
      `${ranks}`,
      ...small.split(" "),
    ]
    const { code, out, errors } = await runJob([...program, ...args], ranks, { timeLimit: 30 })
    expect(code, [...out, ...errors].flat().join("\n")).toBe(0)
    return out.map((lines) => lines.join("\n"))
  }
  const [[one], [two, second]] = [await run(1), await run(2)]
  for (const printed of [two, second]) expect(printed).toMatch(/^step 40\/40/m)
  const lossIn = (printed: string): number => Number(/GPT +(\d+\.\d+) nats/.exec(printed)?.[1])
  expect(lossIn(two)).toBeCloseTo(lossIn(one), 2)
  expect(() => parseOptions(["--ranks", "3", "--batch", "4"])).toThrow("is not a multiple of --ranks 3")
}, 120_000)
