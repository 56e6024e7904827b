/** Ctrl-C in commands. */
import { EventEmitter } from "node:events"
import { afterEach, expect, test, vi } from "vitest"
import { captured } from "../../test/terminal"
import { Interrupted, processTerminal, progressBar, watchOutput } from "./terminal"

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

test("a body is interrupted once nobody reads the output, and a command ends without one", async () => {
  const exit = vi.spyOn(process, "exit").mockReturnValue(undefined as never)
  const stdout = new EventEmitter()
  const written: string[] = []
  const err = vi.spyOn(process.stderr, "write").mockImplementation((text) => written.push(String(text)) > 0)
  vi.spyOn(process, "stdout", "get").mockReturnValue(
    Object.assign(stdout, { write: (text: string) => written.push(text) }) as never,
  )
  watchOutput()
  await processTerminal.interruptible(async (signal) => {
    processTerminal.out("heard")
    stdout.emit("error", Object.assign(new Error("write EPIPE"), { code: "EPIPE" }))
    expect(signal.reason).toMatchObject({ signal: "SIGPIPE", status: 141 })
    // Later text is not written, and another error is not a second interrupt.
    processTerminal.out("unheard")
    stdout.emit("error", Object.assign(new Error("write EPIPE"), { code: "EPIPE" }))
  })
  expect(exit).not.toHaveBeenCalled()
  expect(written).toEqual(["heard"])
  err.mockRestore()
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
