/**
 * Takes screenshots of the chat page: `node tooling/run-source.mjs packages/lm/test/chat-pictures.ts FOLDER`. Needs Chromium.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import "@lazuli/backend-cpu"
import * as lm from "@lazuli/lm"
import { findBrowser, Page } from "./browser"
import { writeCheckpoint } from "./checkpoints"

const folder = process.argv[2]
const browser = findBrowser()
if (!folder || !browser) throw new Error("expected a folder, and a Chromium")
mkdirSync(folder, { recursive: true })
// It is the source of seeds, with some of which answers would end before their pictures.
Math.random = () => 0.1
const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-chat-"))
const model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
const server = lm.createServer(model, { maxTokens: 120 })
const page = await Page.open(browser, await server.listen(0))
const take = async (name: string): Promise<void> =>
  writeFileSync(join(folder, `${name}.png`), await page.picture())
const send = async (text: string): Promise<void> => {
  await page.type(text)
  await page.press("Enter")
}

// A page of its own for docs/pictures: its model has learned the answers by heart.
const learned = [
  { role: "user", content: "What is lazuli?" },
  { role: "assistant", content: "A blue stone." },
  { role: "user", content: "And ultramarine?" },
  { role: "assistant", content: "A blue that was once made of it." },
]
const taught = await lm.load(writeCheckpoint("llama", join(scratch, "my-model")))
const tokenizer = taught.tokenizer!
const text = tokenizer.prompt(learned, { addGenerationPrompt: false })
const example = { tokens: tokenizer.encode(text, { special: false }), from: 1 }
await lm.train(taught.network as lm.CausalNetwork, [example], {
  steps: 300,
  batchSize: 1,
  learningRate: 3e-3,
})
const documented = lm.createServer(taught)
const shown = await Page.open(browser, await documented.listen(0), 760, 380)
for (const [i, { role, content }] of learned.entries()) {
  if (role !== "user") continue
  await shown.type(content)
  await shown.press("Enter")
  await shown.until("!document.getElementById('send').hidden")
  const answers = await shown.value<string[]>(
    "Array.from(document.querySelectorAll('.assistant'), (each) => each.textContent)",
  )
  if (answers.at(-1) !== learned[i + 1].content) throw new Error(`the model says ${JSON.stringify(answers)}`)
}
writeFileSync(join(folder, "chat.png"), await shown.picture())
await shown.close()
await documented.close()

await take("empty")
await send(
  "in the beginning there was a long question, which goes on and on until it needs more than one line",
)
await page.until("document.querySelector('.assistant')?.textContent.length > 20")
await take("streaming")
await page.until("!document.getElementById('send').hidden")
await take("answered")
await send("the\n\nend")
await page.until("document.querySelectorAll('.assistant')[1]?.textContent.length > 3")
await page.value("document.getElementById('stop').click()")
await page.until("!document.getElementById('send').hidden")
await take("stopped")
await page.size(380, 640)
await take("narrow")
await page.size(900, 700)
await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] })
await take("dark")
await server.close()
await send("is anybody there?")
await page.until("document.querySelector('.error') !== null")
await take("failed")
await page.value("document.getElementById('new').click()")
await take("new")
await page.close()
rmSync(scratch, { recursive: true })
