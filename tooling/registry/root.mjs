// A Debian system with nothing but Node, made by debootstrap: packages are installed there from the registry and run without apt.

import { spawnSync } from "node:child_process"
import { chmodSync, copyFileSync, cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { run } from "./folders.mjs"

const SUITE = "bookworm"
const programs = join(dirname(fileURLToPath(import.meta.url)), "programs")

/** Making one needs debootstrap, and root, who may enter it. */
export const canMakeRoot = () =>
  process.getuid?.() === 0 && spawnSync("debootstrap", ["--version"]).status === 0

/** Makes the system in `scratch`. `modules` has Node from npm; npm itself is that of this machine. */
export function makeRoot(scratch, modules) {
  const root = join(scratch, "debian")
  run(scratch, scratch, "debootstrap", ["--variant=minbase", SUITE, root])
  copyFileSync(join(modules, "node-22/bin/node"), join(root, "usr/local/bin/node"))
  chmodSync(join(root, "usr/local/bin/node"), 0o755)
  const { stdout } = spawnSync("npm", ["root", "--global"], { encoding: "utf8" })
  cpSync(join(stdout.trim(), "npm"), join(root, "usr/local/lib/node_modules/npm"), { recursive: true })
  // Not a tool in sight that could build anything, or fetch it.
  for (const tool of ["apt-get", "apt", "dpkg"]) rmSync(join(root, "usr/bin", tool), { force: true })
  const folder = join(root, "home/fresh")
  mkdirSync(folder, { recursive: true })
  cpSync(programs, folder, { recursive: true })
  writeFileSync(join(folder, "package.json"), '{ "name": "fresh", "private": true, "type": "module" }\n')
  return root
}

/** Runs a program in it, with /proc and the devices that every container has, in a namespace of its own. */
export function runInRoot(scratch, root, words) {
  const script = `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && cp /etc/resolv.conf /etc/hosts "$0/etc/" &&
    exec chroot "$0" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root sh -c 'cd /home/fresh && exec "$@"' sh "$@"`
  return run(scratch, scratch, "unshare", ["--mount", "sh", "-c", script, resolve(root), ...words])
}
