#!/usr/bin/env node
/**
 * The command `lazuli-lm`: each subcommand is a file of commands/.
 */
import { run } from "./commands/program"

// The hub's client says so what it downloads, on the output that belongs to the answer.
console.debug = () => {}
process.exitCode = await run(process.argv.slice(2))
