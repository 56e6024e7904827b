import { expect, test, vi } from "vitest"
import { configOf, parseOptions } from "./options"

const parse = (line: string) => parseOptions(line.split(" ").filter(Boolean))

test("nothing said", () => {
  expect(configOf(parse("")!)).toMatchInlineSnapshot(`
    {
      "batch": 16,
      "context": 64,
      "dropout": 0,
      "heads": 4,
      "layers": 4,
      "learningRate": 0.002,
      "seed": 0,
      "width": 128,
    }
  `)
  expect(parse("")).toMatchObject({ text: null, steps: null, seconds: 120, resume: false, sample: 2 })
})

test("everything said", () => {
  const line =
    "--text a.txt --steps 5 --seconds 9 --batch 2 --context 8 --layers 1 --width 8 --heads 2 --learning-rate 1e-2 --dropout 0.1 --seed 3 --out o --save-every 2 --resume --sample 0 --length 4 --prompt x --temperature 0.5 --top-k 9"
  const options = parse(line)!
  expect(options).toMatchObject({
    steps: 5,
    learningRate: 0.01,
    dropout: 0.1,
    resume: true,
    prompt: "x",
    temperature: 0.5,
    topK: 9,
  })
  expect(options.text).toMatch(/^\/.*a\.txt$/)
  expect(options.given.has("learningRate")).toBe(true)
  expect(parse("")!.given.size).toBe(0)
})

test.each([
  [
    "--steps 1.5",
    "option '--steps <n>' argument '1.5' is invalid. It must be a whole number from 1 to 1000000000.",
  ],
  ["--dropout 1", "option '--dropout <p>' argument '1' is invalid. It must be a number from 0 to 0.99."],
  ["--stps 5", "unknown option '--stps'\n(Did you mean --steps?)"],
  ["--text", "option '--text <file>' argument missing"],
  ["--width 100 --heads 3", "--width 100 is not a multiple of --heads 3"],
  ["extra", "too many arguments. Expected 0 arguments but got 1."],
])("%s", (line, message) => {
  expect(() => parse(line)).toThrow(message.split("\n")[0])
  try {
    parse(line)
  } catch (error) {
    expect((error as Error).message).not.toContain("\n")
    expect((error as Error).name).toBe("UserError")
  }
})

test("--help prints and asks for nothing more", () => {
  const write = vi.spyOn(process.stdout, "write").mockReturnValue(true)
  expect(parse("--help")).toBeNull()
  expect(write.mock.calls.join("")).toContain("--learning-rate")
  write.mockRestore()
})
