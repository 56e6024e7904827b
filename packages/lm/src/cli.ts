#!/usr/bin/env node
/**
 * The command `lazuli-lm`; each subcommand is a file in commands/.
 */
import { run } from "./commands/program"
import { watchOutput } from "./commands/terminal"

// The Hub's client logs downloads to stdout, which is for the command's output.
console.debug = () => {}
watchOutput()
process.exitCode = await run(process.argv.slice(2))
