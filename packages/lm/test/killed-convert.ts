/** Converts a model, and kills itself as Ctrl-C does while it writes: `node tooling/run-source.mjs …/killed-convert.ts FOLDER OUT`. */
import { run } from "../src/commands/program"
import { captured } from "./terminal"

const [folder, out] = process.argv.slice(2)
const err = (text: string): void => {
  if (/writing \[.*[1-9]\d?%$/.test(text)) process.kill(process.pid, "SIGINT")
}
const shards = out.endsWith(".gguf") ? [] : ["--max-shard-bytes", "10000"]
await run(["convert", "-m", folder, "-o", out, ...shards], { ...captured(), interactive: true, err })
