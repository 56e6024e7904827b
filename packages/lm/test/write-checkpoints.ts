/** Writes all tiny checkpoints: `node tooling/run-source.mjs packages/lm/test/write-checkpoints.ts FOLDER`. */
import { join } from "node:path"
import "@lazuli/backend-cpu"
import { tiny, writeCheckpoint } from "./checkpoints"
import { gptOss } from "./gpt-oss"

const folder = process.argv[2]
if (!folder) throw new Error("expected a folder")
for (const [name, made] of Object.entries({ ...tiny, "gpt-oss": gptOss }))
  console.log(writeCheckpoint(name, join(folder, name), 1, made))
