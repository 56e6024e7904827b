/** A terminal that records output and types given lines. */
import type { Terminal } from "../src/commands/terminal"

export function captured(
  typed: readonly string[] = [],
): Terminal & { written: { out: string; err: string } } {
  const written = { out: "", err: "" }
  return {
    written,
    out: (text) => {
      written.out += text
    },
    err: (text) => {
      written.err += text
    },
    interactive: false,
    input: async () => typed.join("\n"),
    async *lines() {
      yield* typed
    },
    interruptible: (body) => body(new AbortController().signal),
  }
}
