/**
 * Why a function is traced again: told to the listener, and warned of where one argument, or one part of the state, makes it so again and
 * again.
 */
import { currentStream } from "@lazuli/core/engine"
import type { CachedProgram } from "./cached-program"
import type { CompileOptions } from "./options"
import type { Wanted } from "./program-key"
import { difference } from "./signature"

/** After this many traces a warning names the argument that keeps changing. */
const TRACES_BEFORE_WARNING = 8

export class Recompilation {
  private readonly changes = new Map<string, number>()

  constructor(
    private readonly name: string,
    private readonly options: CompileOptions,
  ) {}

  /**
   * Says why a call is traced after the last program did not serve it; null before the first. `reads` are the lines where a shapeless
   * function looks at sizes.
   */
  announce(
    { signature, stateSignature }: Wanted,
    last: CachedProgram | null,
    reads: readonly string[] = [],
  ): void {
    const { onRecompile } = this.options
    if (last === null) {
      onRecompile?.("first call")
      return
    }
    const change = difference(last.signature, signature) ?? difference(last.stateSignature, stateSignature)
    const dropped = "its program was dropped for others"
    const isElsewhere = last.stream !== null && last.stream !== currentStream()
    onRecompile?.(change?.reason ?? (isElsewhere ? "the current stream changed" : dropped))
    if (change === null) return
    const count = (this.changes.get(change.path) ?? 0) + 1
    this.changes.set(change.path, count)
    if (count !== TRACES_BEFORE_WARNING) return
    const advice =
      reads.length > 0
        ? `let operations infer sizes (-1 in reshape, flatten, unflatten). It looked at them here:${reads.map((line) => `\n    at ${line}`).join("")}`
        : `pass numbers as arrays${this.options.shapeless ? "" : ", or compile with { shapeless: true } for sizes that vary"}.`
    process.emitWarning(
      `${this.name || "a compiled function"} was traced ${count + 1} times because ${change.path} kept changing (last ` +
        `${change.reason}). Each trace costs as much as many calls: ${advice}`,
      { type: "LazuliWarning", code: "LAZULI_RECOMPILE" },
    )
  }
}
