/** The fuzzers by name. Each is loaded in a process of its own. */
import type { Fuzzer } from "./fuzzer"

export const parts: Readonly<Record<string, () => Promise<Fuzzer<unknown>>>> = {
  files: async () => (await import("./files")).files,
  programs: async () => (await import("./programs")).programsFuzzer,
  states: async () => (await import("./states")).states,
  workers: async () => (await import("./workers")).workers,
  cuda: async () => (await import("./cuda")).cuda as Fuzzer<unknown>,
  calls: async () => (await import("./calls")).wrongCalls as Fuzzer<unknown>,
}
