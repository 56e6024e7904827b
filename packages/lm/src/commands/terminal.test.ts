/** Ctrl-C in commands. */
import { afterEach, expect, test, vi } from "vitest"
import { Interrupted, processTerminal } from "./terminal"

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

test("SIGTERM aborts a body as Ctrl-C does", async () => {
  const before = process.listenerCount("SIGTERM")
  await processTerminal.interruptible(async (signal) => {
    process.emit("SIGTERM")
    expect(signal.reason).toBeInstanceOf(Interrupted)
  })
  expect(process.listenerCount("SIGTERM")).toBe(before)
})
