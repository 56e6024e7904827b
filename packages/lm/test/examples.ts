/** Examples for training, one of each kind. */
import { writeFileSync } from "node:fs"

const EXAMPLES = [
  {
    messages: [
      { role: "user", content: "the" },
      { role: "assistant", content: "the end" },
    ],
  },
  { prompt: "in the", completion: "beginning" },
  { text: "the beginning in the end" },
  { text: "in" },
]

/** Writes the examples to a file, a line each. Returns its name. */
export function writeExamples(file: string): string {
  writeFileSync(file, EXAMPLES.map((line) => JSON.stringify(line)).join("\n"))
  return file
}
