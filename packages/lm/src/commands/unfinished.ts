/**
 * Removal of what a command had begun to write when it was killed. Nothing of the process itself runs while it writes, so that another
 * one waits beside it.
 */
import { spawn } from "node:child_process"
import { basename, dirname } from "node:path"
import { realPlace } from "../formats/replaced-folder"

/** The other process: it reads until its parent has ended, and removes temporary files unless that said that it is done. */
const PROGRAM = `
const { readdirSync, rmSync } = require("node:fs")
const { join } = require("node:path")
const [folder, prefix] = process.argv.slice(1)
let said = ""
process.stdin.on("data", (part) => (said += part)).on("end", () => {
  if (said !== "") return
  for (const name of readdirSync(folder))
    if (name.startsWith(prefix) && name.endsWith(".tmp")) rmSync(join(folder, name), { recursive: true, force: true })
})
`

/** Runs `write`, which makes a file or folder by way of temporary ones beside it. If the process is killed, these are removed. */
export function removingUnfinished(place: string, write: () => void): void {
  const path = realPlace(place)
  const prefix = `${basename(path)}.${process.pid}.`
  // In a session of its own: Ctrl-C does not reach it.
  const keeper = spawn(process.execPath, ["-e", PROGRAM, dirname(path), prefix], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  })
  // A system that allows no processes leaves the files.
  keeper.on("error", () => {})
  keeper.stdin.on("error", () => {})
  keeper.unref()
  try {
    write()
  } finally {
    keeper.stdin.end("done")
  }
}
