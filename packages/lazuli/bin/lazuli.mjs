#!/usr/bin/env node
// `npx lazuli launch -n 4 program.js`: the command of this package.

import { runCommand } from "@lazuli/distributed/launch"

try {
  process.exitCode = await runCommand(process.argv.slice(2))
} catch (error) {
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 2
}
