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
  /**
   * Runs `body` with a signal that aborts, with {@link Interrupted}, at Ctrl-C, SIGTERM, the end of the terminal, and when nobody reads the
   * output. A second one exits the process.
   */
  interruptible<T>(body: (signal: AbortSignal) => Promise<T>): Promise<T>
}

/** Exit statuses of shells for commands that a signal ends, and of ours when the output cannot be written. */
const STATUS = { SIGHUP: 129, SIGINT: 130, SIGPIPE: 141, SIGTERM: 143, output: 1 } as const

/** The abort reason after Ctrl-C and its like. */
export class Interrupted extends Error {
  override readonly name = "Interrupted"
  readonly status: number
  constructor(readonly signal: keyof typeof STATUS = "SIGINT") {
    super("interrupted")
    this.status = STATUS[signal]
  }
}

/** Interrupts the body that runs, if one does. */
let interrupt: ((reason: Interrupted) => void) | null = null
let hasReader = true

/** Ends the command, or interrupts its body, when its output can no longer be written, and says why unless the reader has left. */
export function watchOutput(): void {
  process.stderr.on("error", () => {})
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (!hasReader) return
    hasReader = false
    const hasLeft = error.code === "EPIPE"
    if (!hasLeft) process.stderr.write(`the output cannot be written: ${error.message}\n`)
    const reason = new Interrupted(hasLeft ? "SIGPIPE" : "output")
    if (interrupt) interrupt(reason)
    else process.exit(reason.status)
  })
}

export const processTerminal: Terminal = {
  out: (text) => {
    if (hasReader) process.stdout.write(text)
  },
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
      if (process.emit("SIGINT")) return
      const isEmpty = reader.line === ""
      process.stderr.write("\n")
      if (isEmpty) return reader.close()
      reader.write(null, { ctrl: true, name: "e" })
      reader.write(null, { ctrl: true, name: "u" })
      reader.prompt()
    })
    reader.prompt()
    for await (const line of reader) {
      yield line
      reader.prompt()
    }
  },
  async interruptible(body) {
    const controller = new AbortController()
    const stop = (reason: Interrupted): void => {
      if (controller.signal.aborted) process.exit(reason.status)
      controller.abort(reason)
    }
    const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const
    const listeners = signals.map((name) => [name, () => stop(new Interrupted(name))] as const)
    for (const [name, listener] of listeners) process.on(name, listener)
    interrupt = stop
    try {
      return await body(controller.signal)
    } finally {
      interrupt = null
      for (const [name, listener] of listeners) process.removeListener(name, listener)
    }
  },
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
  let isFull = false
  return (done, total) => {
    if (!terminal.interactive || isFull) return
    const share = total > 0 ? done / total : 1
    isFull = share >= 1
    const bar = "#".repeat(Math.round(share * 24)).padEnd(24, ".")
    terminal.err(`\r${title} [${bar}] ${Math.round(share * 100)}%${isFull ? "\n" : ""}`)
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
