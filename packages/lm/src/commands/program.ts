/**
 * The subcommands of `lazuli-lm`, and its error handling.
 */
import { createRequire } from "node:module"
import "@lazuli/backend-cpu"
import { LazuliError } from "@lazuli/core/engine"
import { Command, CommanderError } from "commander"
import { factOf } from "../arguments"
import { addBench } from "./bench"
import { addChat } from "./chat"
import { addConvert } from "./convert"
import { withFlags } from "./flags"
import { addGenerate } from "./generate"
import { addLora } from "./lora"
import { refuseRepeats } from "./options"
import { addServe } from "./serve"
import { Interrupted, processTerminal, type Terminal } from "./terminal"

/** True for errors of files and addresses, which a user can fix and which are shown without a stack trace, as ours are. */
const isOfSystem = (error: Error): boolean => "code" in error && "syscall" in error

/**
 * Runs a command. Resolves to its exit status.
 * @param args - arguments after `lazuli-lm`
 */
export async function run(args: readonly string[], terminal: Terminal = processTerminal): Promise<number> {
  const program = new Command("lazuli-lm")
    .description("Language models: generate, serve, convert and fine-tune")
    .version((createRequire(import.meta.url)("@lazuli/lm/package.json") as { version: string }).version)
    .exitOverride()
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: (text) => terminal.err(text) })
  let command = program
  program.hook("preAction", (_, action) => {
    command = action
  })
  for (const add of [addGenerate, addChat, addServe, addConvert, addLora, addBench]) add(program, terminal)
  for (const command of program.commands) refuseRepeats(command)
  try {
    await program.parseAsync([...args], { from: "user" })
    return 0
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode
    if (error instanceof Interrupted) return error.status
    const text = !(error instanceof Error)
      ? String(error)
      : error instanceof LazuliError
        ? withFlags(factOf(error), command, args)
        : isOfSystem(error)
          ? error.message.replace(/^\[[\w.]+\] /, "")
          : error.stack
    terminal.err(`${text}\n`)
    return 1
  }
}
