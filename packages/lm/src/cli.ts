#!/usr/bin/env node
/**
 * The command `lazuli-lm`: each subcommand is a file of commands/.
 */
import { run } from "./commands/program"

process.exitCode = await run(process.argv.slice(2))
