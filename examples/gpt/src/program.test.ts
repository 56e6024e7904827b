import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { mx } from "lazuli"
import { afterAll, beforeAll, expect, test, vi } from "vitest"
import { generatedText } from "./generated-text"
import { main } from "./program"

const folder = mkdtempSync(join(tmpdir(), "lazuli-gpt-"))
const text = join(folder, "text.txt")
beforeAll(() => writeFileSync(text, generatedText(6000)))
afterAll(() => rmSync(folder, { recursive: true }))

const SMALL =
  "--batch 4 --context 16 --layers 1 --width 32 --heads 2 --learning-rate 1e-2 --sample 1 --length 20"

/** Runs the program; its exit code and what it printed. */
async function run(
  line: string,
  during?: (printed: string) => void,
): Promise<{ code: number; printed: string }> {
  let printed = ""
  const write = vi.spyOn(process.stdout, "write").mockImplementation((chunk) => {
    printed += chunk
    during?.(printed)
    return true
  })
  try {
    return { code: await main(line.split(" ")), printed }
  } finally {
    write.mockRestore()
  }
}

test("a run trains, judges, draws, saves and writes", async () => {
  const out = join(folder, "whole")
  const { code, printed } = await run(`--text ${text} --out ${out} --steps 200 ${SMALL}`)
  expect(code).toBe(0)
  expect(printed).toMatch(/Verdict: the GPT beats the bigram baseline by \d+\.\d %\./)
  expect(printed).toMatch(/"\\n" goes on:\n/)
  expect(readdirSync(out).sort()).toEqual(["checkpoint.safetensors", "loss.png", "loss.svg"])
})

test("Ctrl-C saves, says how to go on and exits with 130; --resume finishes", async () => {
  const out = join(folder, "stopped")
  const stopped = run(`--text ${text} --out ${out} --steps 400 ${SMALL}`, (printed) => {
    if (printed.endsWith("bytes\n")) setTimeout(() => process.emit("SIGINT"), 100)
  })
  const { code, printed } = await stopped
  expect(code).toBe(130)
  expect(printed).toMatch(/Saved step \d+ of 400 to .*checkpoint\.safetensors/)
  expect(printed).toContain(`npm run demo -- --resume --out ${out} --text ${text}`)
  expect(process.listenerCount("SIGINT")).toBe(0)

  const resumed = await run(`--text ${text} --out ${out} --resume --sample 0`)
  expect(resumed.code).toBe(0)
  expect(resumed.printed).toMatch(/Resuming after step \d+ of 400/)
  expect(resumed.printed).toContain("Verdict: the GPT beats")
}, 60_000)

test("a finished run can be resumed for its samples alone", async () => {
  const { code, printed } = await run(
    `--text ${text} --out ${join(folder, "whole")} --resume --sample 2 --prompt the`,
  )
  expect(code).toBe(0)
  expect(printed.match(/"the" goes on/g)?.length).toBe(2)
  expect(printed).not.toContain("Trained")
})

test.each([
  ["--text /nowhere", "cannot read the text /nowhere: there is no such file"],
  [`--text ${text} --context 4096`, "too few for a context of 4096"],
  [`--text ${text} --out ${join(folder, "none")} --resume`, "there is no checkpoint to resume"],
])("%s is the user’s to put right", async (line, message) => {
  await expect(run(line)).rejects.toMatchObject({
    name: "UserError",
    message: expect.stringContaining(message),
  })
})

test.each([[""], ["--ranks 2"]])("without native kernels it refuses to train %s", async (ranks) => {
  mx.setBackend("reference")
  try {
    await expect(run(`--text ${text} --out ${join(folder, "slow")} ${ranks}`.trim())).rejects.toThrow(
      /native addon of @lazuli\/backend-cpu is missing.*npm run build/,
    )
  } finally {
    mx.setBackend(null)
  }
})
