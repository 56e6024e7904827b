// A registry of this machine with everything that would be published: verdaccio, which asks npm's registry for all other packages.

import { spawn, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { constants } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { contents, isForeign, pack, publishedPackages } from "../release/tarballs.mjs"

const here = dirname(fileURLToPath(import.meta.url))

/** Installs the programs that a folder's package.json names, once. @throws Error with what npm said */
export function tools(folder) {
  const path = join(here, folder)
  if (!existsSync(join(path, "node_modules"))) {
    const args = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    const { status, stderr } = spawnSync("npm", args, { cwd: path, encoding: "utf8" })
    if (status !== 0) throw new Error(`npm install in tooling/registry/${folder}: ${stderr}`)
  }
  return join(path, "node_modules")
}

/**
 * Starts it in a folder, and publishes what is built. Returns its address, and a function that ends it.
 *
 * @param {string} scratch
 * @param {{ packed?: Map<string, string>, port?: number }} options `packed` maps names to tarballs that are there already
 */
export async function startRegistry(scratch, options = {}) {
  const { packed = new Map(), port = await freePort() } = options
  if (options.port && !(await isFree(options.port)))
    throw new Error(`port ${options.port} is taken: perhaps by a registry that was started before`)
  const modules = tools("server")
  const published = publishedPackages().map((one) => ({
    one,
    tarball: isForeign(one)
      ? manifestAlone(one, scratch)
      : (packed.get(one.name) ?? pack(one.folder, scratch)),
  }))
  const url = `http://localhost:${port}`
  const above = spawnSync("npm", ["config", "get", "registry"], { encoding: "utf8" }).stdout.trim()
  const own = { access: "$all", publish: "$all", unpublish: "$all" }
  const config = {
    storage: join(scratch, "storage"),
    uplinks: { npm: { url: above, maxage: "1h", timeout: "60s" } },
    packages: {
      lazuli: own,
      "create-lazuli-plugin": own,
      "@lazuli/*": own,
      "**": { ...own, proxy: "npm" },
    },
    // A package of one's own can be published without the network too.
    publish: { allow_offline: true },
    max_body_size: "100mb",
    web: { enable: false },
    log: { type: "stdout", format: "pretty", level: "error" },
  }
  mkdirSync(config.storage, { recursive: true })
  // Versions that an earlier start published would be refused.
  for (const { one } of published) rmSync(join(config.storage, one.name), { recursive: true, force: true })
  // JSON is YAML.
  writeFileSync(join(scratch, "verdaccio.yaml"), JSON.stringify(config))
  const args = [
    join(modules, "verdaccio/bin/verdaccio"),
    "--config",
    join(scratch, "verdaccio.yaml"),
    "--listen",
    url,
  ]
  const server = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] })
  let said = ""
  for (const stream of [server.stdout, server.stderr])
    stream.on("data", (text) => {
      said += text
    })
  const kill = () => server.kill()
  const exit = (signal) => process.exit(128 + constants.signals[signal])
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"]
  // It does not outlive this process, however that is ended.
  process.once("exit", kill)
  for (const signal of signals) process.on(signal, exit)
  const end = () => {
    for (const signal of signals) process.off(signal, exit)
    kill()
  }
  try {
    await answers(url, () => server.exitCode !== null && `verdaccio ended: ${said}`)
    for (const { tarball } of published) await publish(url, tarball)
  } catch (error) {
    end()
    throw error
  }
  return { url, end, packages: published.map(({ one }) => one.name) }
}

/** A package for another platform, without its binary: only its manifest is looked at here. */
function manifestAlone({ name, folder }, scratch) {
  const inside = join(scratch, name, "package")
  mkdirSync(inside, { recursive: true })
  copyFileSync(join(folder, "package.json"), join(inside, "package.json"))
  const tarball = join(scratch, name, "manifest.tgz")
  spawnSync("tar", ["-czf", tarball, "-C", dirname(inside), "package"])
  return tarball
}

/** Publishes as npm does. */
async function publish(url, tarball) {
  const bytes = readFileSync(tarball)
  const manifest = JSON.parse(contents(tarball).get("package.json").toString())
  const { name, version } = manifest
  const file = `${name}-${version}.tgz`
  const dist = {
    integrity: `sha512-${createHash("sha512").update(bytes).digest("base64")}`,
    shasum: createHash("sha1").update(bytes).digest("hex"),
    tarball: `${url}/${name}/-/${file.split("/").pop()}`,
  }
  const document = {
    _id: name,
    name,
    "dist-tags": { latest: version },
    versions: { [version]: { ...manifest, _id: `${name}@${version}`, dist } },
    _attachments: {
      [file]: {
        content_type: "application/octet-stream",
        data: bytes.toString("base64"),
        length: bytes.length,
      },
    },
  }
  const answer = await fetch(`${url}/${name.replace("/", "%2f")}`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(document),
  })
  if (!answer.ok) throw new Error(`${name} was not published: ${answer.status} ${await answer.text()}`)
}

/** Waits until the server answers, at most three minutes: a machine may have much else to do. */
async function answers(url, ended) {
  for (const end = Date.now() + 180_000; Date.now() < end; ) {
    const reason = ended()
    if (reason) throw new Error(reason)
    try {
      await fetch(`${url}/-/ping`)
      return
    } catch {
      await new Promise((done) => setTimeout(done, 100))
    }
  }
  throw new Error("verdaccio does not answer")
}

function isFree(port) {
  return new Promise((done) => {
    const probe = createServer()
      .once("error", () => done(false))
      .listen(port, "localhost", () => probe.close(() => done(true)))
  })
}

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, "localhost", () => {
      const { port } = probe.address()
      probe.close(() => done(port))
    })
  })
}
