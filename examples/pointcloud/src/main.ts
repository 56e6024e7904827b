/**
 * Runs program.ts. What the user can put right is one line and exit code 2.
 */
import { main } from "./program"
import { UserError } from "./user-error"

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof UserError)) throw error
  process.stderr.write(`error: ${error.message}\n`)
  process.exitCode = 2
}
