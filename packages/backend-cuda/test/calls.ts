/**
 * Counts the commands of one of CUDA's libraries.
 */
import { onTestFinished, vi } from "vitest"
import { cudaRuntime } from "../src/index"

/** The number of commands of a code from now on, until the test ends. */
export function callsOf(code: number): () => number {
  let calls = 0
  const { commit } = cudaRuntime
  const spy = vi.spyOn(cudaRuntime, "commit").mockImplementation(function (
    this: typeof cudaRuntime,
    commands,
  ) {
    const { words, length } = commands
    for (let at = 0; at < length; at += words[at] >>> 8) if ((words[at] & 0xff) === code) calls++
    return commit.call(this, commands)
  })
  onTestFinished(() => spy.mockRestore())
  return () => calls
}
