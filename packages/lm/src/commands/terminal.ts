/**
 * Input, output and interrupts of commands: those of the process, or of a test.
 */
import { text } from "node:stream/consumers"
import * as mx from "@lazuli/core"

export interface Terminal {
  out(text: string): void
  err(text: string): void
  /** True if progress bars can be shown. */
  readonly interactive: boolean
  /** All of standard input. */
  input(): Promise<string>
  /** Lines of input, with a prompt before each. */
  lines(prompt: string): AsyncIterable<string>
  /** Runs `body` with a signal that Ctrl-C or SIGTERM aborts. A second one exits the process. */
  interruptible<T>(body: (signal: AbortSignal) => Promise<T>): Promise<T>
}

export const processTerminal: Terminal = {
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  get interactive() {
    return process.stderr.isTTY === true
  },
  input: () => text(process.stdin),
  async *lines(prompt) {
    const { createInterface } = await import("node:readline")
    const reader = createInterface({ input: process.stdin, output: process.stderr, prompt })
    // In raw mode the reader gets Ctrl-C instead of the process.
    reader.on("SIGINT", () => {
      if (!process.emit("SIGINT")) reader.close()
    })
    reader.prompt()
    for await (const line of reader) {
      yield line
      reader.prompt()
    }
  },
  async interruptible(body) {
    const controller = new AbortController()
    const stop = (): void => {
      if (controller.signal.aborted) process.exit(130)
      controller.abort(new Interrupted())
    }
    const signals = ["SIGINT", "SIGTERM"] as const
    for (const name of signals) process.on(name, stop)
    try {
      return await body(controller.signal)
    } finally {
      for (const name of signals) process.removeListener(name, stop)
    }
  },
}

/** The abort reason after Ctrl-C. */
export class Interrupted extends Error {
  override readonly name = "Interrupted"
  constructor() {
    super("interrupted")
  }
}

const UNITS = ["bytes", "KB", "MB", "GB", "TB"]

/** 1234567 → "1.2 MB". */
export function bytesText(n: number): string {
  let [value, unit] = [n, 0]
  while (value >= 1000 && unit < UNITS.length - 1) [value, unit] = [value / 1000, unit + 1]
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`
}

/** A progress bar that redraws itself; none if the terminal is not interactive. */
export function progressBar(terminal: Terminal, title: string): (done: number, total: number) => void {
  return (done, total) => {
    if (!terminal.interactive) return
    const share = total > 0 ? done / total : 1
    const bar = "#".repeat(Math.round(share * 24)).padEnd(24, ".")
    terminal.err(`\r${title} [${bar}] ${Math.round(share * 100)}%${share >= 1 ? "\n" : ""}`)
  }
}

/** Measures a generation's speed. */
export class Meter {
  private readonly begin = performance.now()
  private first: number | null = null
  private tokens = 0
  constructor(private readonly prompt: number) {}

  /** Counts a token. */
  count(): void {
    this.first ??= performance.now()
    this.tokens++
  }

  /** Tokens per second of prompt processing and generation, and peak memory. */
  summary(): string {
    const now = performance.now()
    const first = this.first ?? now
    const rate = (n: number, ms: number): string => (ms > 0 ? (n / (ms / 1000)).toFixed(1) : "–")
    return [
      `prompt ${this.prompt} tokens, ${rate(this.prompt, first - this.begin)} tokens/s`,
      `generated ${this.tokens} tokens, ${rate(Math.max(0, this.tokens - 1), now - first)} tokens/s`,
      `peak memory ${bytesText(mx.getPeakMemory())}`,
    ].join("; ")
  }
}
