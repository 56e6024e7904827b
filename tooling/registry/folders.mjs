// Fresh folders, in which a user's tools install from the registry, and in which programs run: nothing of the repository is in reach, and
// no variable set.

import { spawnSync } from "node:child_process"
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const programs = join(dirname(fileURLToPath(import.meta.url)), "programs")

/** A folder of its own in `scratch`, with the programs in it. */
export function freshFolder(scratch, name) {
  const folder = mkdtempSync(join(scratch, `${name.replace(/\W+/g, "-")}-`))
  writeFileSync(join(folder, "package.json"), '{ "name": "fresh", "private": true, "type": "module" }\n')
  cpSync(programs, folder, { recursive: true })
  return folder
}

/** The environment of a user who set nothing. */
export function environment(scratch) {
  const kept = Object.entries(process.env).filter(
    ([key]) => !/^(lazuli_|npm_|pnpm_|yarn_|bun_|node_|ci$|init_cwd$)/i.test(key),
  )
  return {
    ...Object.fromEntries(kept),
    HOME: join(scratch, "home"),
    XDG_CACHE_HOME: join(scratch, "cache"),
    CI: "",
  }
}

/** Runs a program to its end. @throws Error with what it said */
export function run(scratch, folder, program, args, { timeout = 600_000 } = {}) {
  const options = { cwd: folder, encoding: "utf8", env: environment(scratch), timeout, maxBuffer: 1 << 26 }
  const { status, signal, stdout, stderr, error } = spawnSync(program, args, options)
  if (status !== 0)
    throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? signal ?? status}\n${stdout}${stderr}`)
  return stdout
}

/** Package managers: each installs packages into a folder, and says how a program runs there. */
export function managers(scratch, url, modules) {
  const node = process.execPath
  const yarn = join(modules ?? "", "@yarnpkg/cli-dist/bin/yarn.js")
  const withYarn = (linker) => ({
    install(folder, packages) {
      const settings = {
        nodeLinker: linker,
        npmRegistryServer: url,
        unsafeHttpWhitelist: ["localhost"],
        enableTelemetry: false,
        enableGlobalCache: false,
        enableImmutableInstalls: false,
        enableScripts: false,
        // Everything here is minutes old.
        npmMinimalAgeGate: 0,
      }
      writeFileSync(join(folder, ".yarnrc.yml"), JSON.stringify(settings))
      writeFileSync(join(folder, "yarn.lock"), "")
      run(scratch, folder, node, [yarn, "add", ...packages])
    },
    run: (folder, file, args = []) => run(scratch, folder, node, [yarn, "node", file, ...args]),
  })
  const plain = (folder, file, args = []) => run(scratch, folder, node, [file, ...args])
  return {
    npm: {
      install(folder, packages) {
        const settings = ["--no-audit", "--no-fund", "--ignore-scripts", "--cache", join(scratch, "npm")]
        run(scratch, folder, "npm", ["install", "--registry", url, ...settings, ...packages])
      },
      run: plain,
    },
    pnpm: {
      install(folder, packages) {
        const settings = ["--store-dir", join(scratch, "pnpm"), "--ignore-scripts", "--ignore-workspace"]
        const pnpm = join(modules, "pnpm/bin/pnpm.cjs")
        run(scratch, folder, node, [pnpm, "add", "--registry", url, ...settings, ...packages])
      },
      run: plain,
    },
    yarn: withYarn("node-modules"),
    "yarn pnp": withYarn("pnp"),
    bun: {
      install(folder, packages) {
        const bun = join(modules, "@oven/bun-linux-x64/bin/bun")
        run(scratch, folder, bun, ["add", "--registry", url, "--ignore-scripts", ...packages])
      },
      run: plain,
    },
  }
}

/** The bytes of an installation, and its number of packages: links are not followed, and a file with two names counts once. */
export function installed(folder) {
  const seen = new Set()
  let [bytes, packages] = [0, 0]
  const visit = (path) => {
    const stat = lstatSync(path)
    if (stat.isDirectory()) for (const name of readdirSync(path)) visit(join(path, name))
    else if (stat.isFile() && !seen.has(stat.ino)) {
      seen.add(stat.ino)
      bytes += stat.size
      if (path.endsWith(".zip")) packages++
      else if (path.endsWith("/package.json") && !path.includes("/.yarn/") && nameOf(path)) packages++
    }
  }
  // Yarn's archives are the installation where there is no node_modules, and a cache beside one.
  visit(join(folder, existsSync(join(folder, "node_modules")) ? "node_modules" : ".yarn"))
  return { bytes, packages }
}

/** The name that a manifest gives to a package with a version. */
function nameOf(file) {
  const { name, version } = JSON.parse(readFileSync(file, "utf8"))
  return version ? name : undefined
}

/** Puts a package of one file into a folder's node_modules. */
export function addPackage(folder, name, code) {
  const target = join(folder, "node_modules", name)
  mkdirSync(target, { recursive: true })
  writeFileSync(join(target, "index.js"), code)
  writeFileSync(
    join(target, "package.json"),
    JSON.stringify({ name, version: "1.0.0", type: "module", exports: "./index.js" }),
  )
}
