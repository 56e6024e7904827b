/** The chat page in a headless Chromium, where there is one: `apt-get install chromium-headless-shell`. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest"
import "@lazuli/backend-cpu"
import { findBrowser, Page } from "../../test/browser"
import { writeCheckpoint } from "../../test/checkpoints"

const browser = findBrowser()

describe.skipIf(browser === null)("the chat page (without a Chromium it is not tested)", () => {
  const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-page-"))
  let model: lm.LoadedModel
  let server: lm.LanguageServer
  let page: Page
  beforeAll(async () => {
    // It is the source of seeds, with some of which answers would end before the test has read them.
    vi.spyOn(Math, "random").mockReturnValue(0.1)
    model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
    server = lm.createServer(model, { maxTokens: 400, maxBodyBytes: 10_000, exact: true })
    page = await Page.open(browser!, await server.listen(0))
  }, 60_000)
  afterAll(async () => {
    vi.restoreAllMocks()
    await page.close()
    await server.close()
    rmSync(scratch, { recursive: true })
  })

  const texts = (role: string): Promise<string[]> =>
    page.value(`[...document.querySelectorAll(".${role}")].map((p) => p.textContent)`)
  const idle = (): Promise<void> => page.until("!document.getElementById('send').hidden")
  const send = async (text: string): Promise<void> => {
    await page.type(text)
    await page.press("Enter")
  }

  test("sends a message, and streams the answer", async () => {
    await send("in the beginning")
    await page.until("document.querySelector('.assistant')?.textContent.length > 5")
    expect(await page.value("document.getElementById('stop').hidden")).toBe(false)
    expect(await texts("user")).toEqual(["in the beginning"])
    const [early] = await texts("assistant")
    await page.until(`document.querySelector(".assistant").textContent.length > ${early.length + 5}`)
    expect((await texts("assistant"))[0].startsWith(early)).toBe(true)
    expect(await page.value("document.documentElement.scrollWidth <= window.innerWidth")).toBe(true)
  })

  test("stops an answer, and frees the model", async () => {
    await page.value("document.getElementById('stop').click()")
    await idle()
    const [answer] = await texts("assistant")
    for (let i = 0; i < 100 && (server.batch?.stats().active ?? 0) > 0; i++)
      await new Promise((resolve) => setTimeout(resolve, 20))
    expect(server.batch?.stats()).toMatchObject({ active: 0, cacheBytes: 0 })
    expect(await texts("assistant")).toEqual([answer])
    expect(await page.value("messages.map(({ role }) => role)")).toEqual(["user", "assistant"])
  })

  test("continues the conversation, with lines and escaped HTML", async () => {
    await page.type("<b>the</b>")
    await page.press("Enter", true)
    await send("end")
    await page.until("document.querySelectorAll('.assistant')[1]?.textContent.length > 3")
    await page.value("document.getElementById('stop').click()")
    await idle()
    expect((await texts("user"))[1]).toBe("<b>the</b>\nend")
    expect(await page.value("document.querySelector('#log b')")).toBe(null)
  })

  test("shows errors, and keeps the question", async () => {
    const question = "x".repeat(20_000)
    await page.value(`document.getElementById("text").value = ${JSON.stringify(question)}`)
    await page.press("Enter")
    await page.until("document.querySelector('.error') !== null")
    expect(await texts("error")).toEqual(["the request body is larger than 10000 bytes"])
    expect(await page.value("document.getElementById('text').value.length")).toBe(20_000)
    expect((await texts("user")).length).toBe(2)
    expect(await page.value("messages.length")).toBe(4)
  })

  test("starts a new conversation", async () => {
    const isHidden = (): Promise<boolean> => page.value("document.getElementById('new').hidden")
    expect(await isHidden()).toBe(false)
    await page.value("document.getElementById('new').click()")
    expect([await isHidden(), await texts("user"), await texts("error")]).toEqual([true, [], []])
    expect(await page.value("messages.length")).toBe(0)
    await page.value("document.getElementById('text').value = ''")
  })

  test("does not send when Enter ends the input of a word", async () => {
    await page.type("東京")
    await page.value(`text.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", isComposing: true }))`)
    await page.value(`text.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 229 }))`)
    expect([await texts("user"), await page.value("text.value")]).toEqual([[], "東京"])
    await page.value("text.value = ''")
  })

  test("asks for the key and goes on, and says that an answer is cut off", async () => {
    const own = lm.createServer(model, { apiKey: "secret", maxTokens: 5 })
    const other = await Page.open(browser!, await own.listen(0))
    await other.value("void (window.prompt = () => 'secret')")
    await other.type("in the beginning")
    await other.press("Enter")
    await other.until("document.querySelector('.note, .error') !== null")
    expect(await other.value("document.querySelector('.error')")).toBe(null)
    expect(await other.value("document.querySelector('.note').textContent")).toMatch(/cut off at the maximum/)
    expect(await other.value("document.querySelector('.assistant').ariaBusy")).toBe("false")
    await other.close()
    await own.close()
  }, 60_000)

  test("says that a server does not answer", async () => {
    await server.close()
    await send("is anybody there?")
    await page.until("document.querySelector('.error') !== null")
    expect(await texts("error")).toEqual(["The server does not answer."])
  })
})
