/**
 * A headless Chromium, controlled through pipes by its debugging protocol: https://chromedevtools.github.io/devtools-protocol
 */
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { delimiter, join } from "node:path"
import type { Readable, Writable } from "node:stream"

const NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]

/** The path of a Chromium, from CHROMIUM or PATH; null if there is none. */
export function findBrowser(): string | null {
  if (process.env.CHROMIUM) return process.env.CHROMIUM
  const folders = (process.env.PATH ?? "").split(delimiter)
  for (const name of NAMES)
    for (const folder of folders) if (existsSync(join(folder, name))) return join(folder, name)
  return null
}

interface Reply {
  readonly id?: number
  readonly result?: Record<string, unknown>
  readonly error?: { readonly message: string }
}

/** A page in its own browser. */
export class Page {
  private readonly waiting = new Map<number, { resolve(value: never): void; reject(error: Error): void }>()
  private held = ""
  private next = 1
  private session: string | undefined

  private constructor(
    private readonly child: ChildProcess,
    private readonly folder: string,
  ) {
    const output = child.stdio[4] as Readable
    output.setEncoding("utf8")
    output.on("data", (text: string) => this.read(text))
    child.on("exit", (code) => {
      for (const { reject } of this.waiting.values()) reject(new Error(`the browser ended with ${code}`))
    })
  }

  static async open(browser: string, url: string, width = 900, height = 700): Promise<Page> {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-browser-"))
    const flags = [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--hide-scrollbars",
      "--remote-debugging-pipe",
    ]
    const child = spawn(browser, [...flags, `--user-data-dir=${folder}`, "about:blank"], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    })
    const page = new Page(child, folder)
    const { targetId } = await page.send<{ targetId: string }>("Target.createTarget", { url: "about:blank" })
    const attached = await page.send<{ sessionId: string }>("Target.attachToTarget", {
      targetId,
      flatten: true,
    })
    page.session = attached.sessionId
    await page.size(width, height)
    await page.send("Page.enable")
    await page.send("Page.navigate", { url })
    await page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
    return page
  }

  /** Sends a protocol command. */
  send<T = unknown>(method: string, params: object = {}): Promise<T> {
    const id = this.next++
    const message = { id, method, params, ...(this.session ? { sessionId: this.session } : {}) }
    const input = this.child.stdio[3] as Writable
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: never) => void, reject })
      input.write(`${JSON.stringify(message)}\0`)
    })
  }

  private read(text: string): void {
    this.held += text
    const messages = this.held.split("\0")
    this.held = messages.pop() ?? ""
    for (const message of messages) {
      const { id, result, error } = JSON.parse(message) as Reply
      const waits = id === undefined ? undefined : this.waiting.get(id)
      if (id === undefined || !waits) continue
      this.waiting.delete(id)
      if (error) waits.reject(new Error(error.message))
      else waits.resolve(result as never)
    }
  }

  /** The value of an expression in the page. */
  async value<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = await this.send<{
      result: { value: T }
      exceptionDetails?: { text: string }
    }>("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true })
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.text}`)
    return result.value
  }

  /** Waits until an expression is true. */
  async until(expression: string, ms = 20_000): Promise<void> {
    const end = performance.now() + ms
    while (!(await this.value<boolean>(expression))) {
      if (performance.now() > end) throw new Error(`${expression} did not become true`)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  /** Types text at the cursor. */
  async type(text: string): Promise<void> {
    await this.send("Input.insertText", { text })
  }

  /** Presses a key. */
  async press(key: "Enter", shift = false): Promise<void> {
    const event = { key, code: key, windowsVirtualKeyCode: 13, text: "\r", modifiers: shift ? 8 : 0 }
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...event })
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event })
  }

  async size(width: number, height: number): Promise<void> {
    await this.send("Emulation.setDeviceMetricsOverride", {
      width,
      height,
      deviceScaleFactor: 1,
      mobile: false,
    })
  }

  /** A screenshot as PNG. */
  async picture(): Promise<Buffer> {
    const { data } = await this.send<{ data: string }>("Page.captureScreenshot", { format: "png" })
    return Buffer.from(data, "base64")
  }

  async close(): Promise<void> {
    const gone = new Promise((resolve) => this.child.once("exit", resolve))
    // Debian's command is a script: a signal would end only that, and the browser would hold the pipes of this process open.
    this.session = undefined
    this.send("Browser.close").catch(() => {})
    await gone
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }
}
