/** Ctrl-C in commands. */
import { EventEmitter } from "node:events"
import { afterEach, expect, test, vi } from "vitest"
import { captured } from "../../test/terminal"
import { Interrupted, processTerminal, progressBar } from "./terminal"

afterEach(() => vi.restoreAllMocks())

test("Ctrl-C aborts each body once, and exits only if pressed twice during one", async () => {
  const exit = vi.spyOn(process, "exit").mockReturnValue(undefined as never)
  const before = process.listenerCount("SIGINT")
  for (let i = 0; i < 3; i++)
    await processTerminal.interruptible(async (signal) => {
      process.emit("SIGINT")
      expect(signal.reason).toBeInstanceOf(Interrupted)
    })
  expect(exit).not.toHaveBeenCalled()
  await processTerminal.interruptible(async () => {
    process.emit("SIGINT")
    process.emit("SIGINT")
  })
  expect(exit).toHaveBeenCalledWith(130)
  expect(process.listenerCount("SIGINT")).toBe(before)
})

test.each([
  ["EPIPE", 141, ""],
  ["ENOSPC", 1, "the output cannot be written: ENOSPC\n"],
])("a body is interrupted once its output has no reader: %s", async (code, status, said) => {
  vi.resetModules()
  const { processTerminal: terminal, watchOutput: watch } = await import("./terminal")
  const exit = vi.spyOn(process, "exit").mockReturnValue(undefined as never)
  const [out, err] = ["stdout", "stderr"].map((name) => {
    const stream = Object.assign(new EventEmitter(), {
      written: "",
      write: (text: string) => void (stream.written += text),
    })
    vi.spyOn(process, name as "stdout", "get").mockReturnValue(stream as never)
    return stream
  })
  watch()
  const fail = (): boolean => out.emit("error", Object.assign(new Error(code), { code }))
  await terminal.interruptible(async (signal) => {
    terminal.out("heard")
    fail()
    expect(signal.reason).toMatchObject({ status })
    // Later text is not written, and another error is not a second interrupt.
    terminal.out("unheard")
    fail()
  })
  expect(exit).not.toHaveBeenCalled()
  expect([out.written, err.written]).toEqual(["heard", said])
})

test("the end of the terminal aborts a body, too", async () => {
  await processTerminal.interruptible(async (signal) => {
    process.emit("SIGHUP")
    expect(signal.reason).toMatchObject({ status: 129 })
  })
})

test("a progress bar is full once", () => {
  const terminal = { ...captured(), interactive: true }
  const show = progressBar(terminal, "loading")
  for (const done of [1, 2, 2]) show(done, 2)
  expect(terminal.written.err.split("\n").length).toBe(2)
})

test("SIGTERM aborts a body as Ctrl-C does", async () => {
  const before = process.listenerCount("SIGTERM")
  await processTerminal.interruptible(async (signal) => {
    process.emit("SIGTERM")
    expect(signal.reason).toBeInstanceOf(Interrupted)
  })
  expect(process.listenerCount("SIGTERM")).toBe(before)
})
