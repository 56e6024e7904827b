/** Jobs that others start: torchrun by its variables, ssh by its command; and a rank of another version. */
import { spawn } from "node:child_process"
import { createHmac, randomBytes } from "node:crypto"
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs"
import { connect } from "node:net"
import { networkInterfaces, tmpdir } from "node:os"
import { delimiter, join } from "node:path"
import { pathToFileURL } from "node:url"
import { ArgumentError } from "@lazuli/core"
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest"
import { freePort, isThere } from "../test/processes"
import { programOf, runJob } from "../test/run-job"
import { jobOf } from "./job"

let program = ""
const folder = mkdtempSync(join(tmpdir(), "lazuli-launchers-"))
beforeAll(async () => {
  program = await programOf("faults")
})
afterAll(() => rmSync(folder, { recursive: true }))
afterEach(() => vi.unstubAllEnvs())

/** The output of a rank that somebody else starts. */
function outputOf(env: Record<string, string>): Promise<string> {
  const child = spawn(process.execPath, [program, "none"], {
    env: { ...process.env, LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "10", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  })
  let out = ""
  child.stdout?.on("data", (text) => {
    out += String(text)
  })
  return new Promise((resolve) => child.once("close", () => resolve(out.trim())))
}

test("ranks that torchrun starts find each other beside its own store", async () => {
  const job = {
    WORLD_SIZE: "2",
    MASTER_ADDR: "127.0.0.1",
    MASTER_PORT: String((await freePort()) - 1),
    TORCHELASTIC_RUN_ID: "none",
  }
  const outputs = await Promise.all(
    [0, 1].map((rank) => outputOf({ ...job, RANK: String(rank), LOCAL_RANK: String(rank) })),
  )
  expect(outputs.map((out) => JSON.parse(out).name)).toEqual(["none", "none"])
}, 60_000)

test("of torchrun's ranks those of one host share a secret of their own, and others need one", () => {
  const run = mkdtempSync(join(folder, "none_"))
  mkdirSync(join(run, "attempt_0"))
  const env = {
    WORLD_SIZE: "2",
    LOCAL_WORLD_SIZE: "2",
    MASTER_ADDR: "a.host.with.a.name",
    MASTER_PORT: "29500",
    TORCHELASTIC_RUN_ID: "none",
  }
  const jobs = ["0", "1"].map((RANK) =>
    jobOf({ ...env, RANK, TORCHELASTIC_ERROR_FILE: join(run, "attempt_0", RANK, "error.json") }),
  )
  for (const job of jobs)
    expect(job).toMatchObject({
      address: "127.0.0.1",
      port: 29501,
      secret: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
  expect(jobs[0]?.secret).toBe(jobs[1]?.secret)
  const file = join(run, "attempt_0", "lazuli-secret")
  expect(statSync(file).mode & 0o777).toBe(0o600)
  for (const id of ["none", "a name that others may know", undefined]) {
    const many = { ...env, RANK: "0", LOCAL_WORLD_SIZE: "1", TORCHELASTIC_RUN_ID: id }
    expect(() => jobOf(many)).toThrow(
      "rank 0 listens at a.host.with.a.name, but LAZULI_SECRET is not set: anybody could join",
    )
    expect(jobOf({ ...many, LAZULI_SECRET: "own" })).toMatchObject({
      address: "a.host.with.a.name",
      secret: "own",
    })
  }
})

test("a rank whose launcher has ended does not join", async () => {
  const launcher = spawn(process.execPath, ["-e", ""])
  await new Promise((resolve) => launcher.once("close", resolve))
  const job = { LAZULI_RANK: "0", LAZULI_SIZE: "2", LAZULI_ADDRESS: `127.0.0.1:${await freePort()}` }
  const error = JSON.parse(await outputOf({ ...job, LAZULI_PARENT: String(launcher.pid) }))
  expect(error.message).toBe("[init] the launcher that started this process has ended")
})

test.each(["LAZULI_RANK", "LAZULI_SIZE"])("%s alone is no job", (given) => {
  const missing = given === "LAZULI_RANK" ? "LAZULI_SIZE" : "LAZULI_RANK"
  expect(() => jobOf({ [given]: "1" })).toThrow(`[init] ${given} is set, but ${missing} is not`)
})

test("a number of connections is an integer", () => {
  const job = { LAZULI_RANK: "0", LAZULI_SIZE: "2", LAZULI_ADDRESS: "127.0.0.1:1" }
  expect([{}, { LAZULI_CONNECTIONS: "4" }].map((env) => jobOf({ ...job, ...env })?.connections)).toEqual([
    1, 4,
  ])
  for (const count of ["0", "1.5", "65", "many"])
    expect(() => jobOf({ ...job, LAZULI_CONNECTIONS: count })).toThrow(ArgumentError)
})

test("limits are above 0, and ports are ports", () => {
  const job = { LAZULI_RANK: "0", LAZULI_SIZE: "2", LAZULI_ADDRESS: "127.0.0.1:1" }
  for (const name of ["LAZULI_TIME_LIMIT", "LAZULI_JOIN_LIMIT"])
    expect(() => jobOf({ ...job, [name]: "0" })).toThrow(`${name} must be above 0, received "0"`)
  for (const port of ["0", "65536"])
    expect(() => jobOf({ ...job, LAZULI_ADDRESS: `127.0.0.1:${port}` })).toThrow(`received ${port}`)
  const torch = { RANK: "0", WORLD_SIZE: "2", MASTER_ADDR: "127.0.0.1", MASTER_PORT: "65535" }
  expect(() => jobOf(torch)).toThrow("received 65536")
})

test("under mpirun ranks share a secret that its folder keeps, and its names do not tell", () => {
  const session = mkdtempSync(join(folder, "session-"))
  const env = {
    OMPI_COMM_WORLD_SIZE: "2",
    OMPI_COMM_WORLD_LOCAL_SIZE: "2",
    PMIX_NAMESPACE: "1502740481",
    PMIX_SERVER_TMPDIR: session,
  }
  const secrets = ["0", "1", "0"].map((rank) => jobOf({ ...env, OMPI_COMM_WORLD_RANK: rank })?.secret)
  expect(secrets).toEqual(new Array(3).fill(expect.stringMatching(/^[0-9a-f]{64}$/)))
  expect(new Set(secrets).size).toBe(1)
  const [file] = readdirSync(session)
  expect(statSync(join(session, file)).mode & 0o777).toBe(0o600)
  const other = { ...env, PMIX_NAMESPACE: "1502740482", OMPI_COMM_WORLD_RANK: "1", LAZULI_JOIN_LIMIT: "0.1" }
  expect(() => jobOf(other)).toThrow("rank 0 has put no secret into")
  chmodSync(session, 0o755)
  expect(() => jobOf({ ...env, OMPI_COMM_WORLD_RANK: "0" })).toThrow("may be read by others")
  const gone = { ...env, OMPI_COMM_WORLD_RANK: "0", PMIX_SERVER_TMPDIR: join(session, "none") }
  expect(() => jobOf(gone)).toThrow("is not there")
  const many = { ...env, OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_LOCAL_SIZE: "1" }
  expect(() => jobOf({ ...many, MASTER_ADDR: "other", MASTER_PORT: "1" })).toThrow("LAZULI_SECRET is not set")
})

test("an address that others reach needs a secret", () => {
  const env = { LAZULI_RANK: "0", LAZULI_SIZE: "2" }
  expect(() => jobOf({ ...env, LAZULI_ADDRESS: "0.0.0.0:1234" })).toThrow("LAZULI_SECRET is not set")
  expect(() => jobOf({ ...env, LAZULI_ADDRESS: "0.0.0.0:1234", LAZULI_SECRET: "" })).toThrow("is not set")
  expect(jobOf({ ...env, LAZULI_SIZE: "1", LAZULI_ADDRESS: "0.0.0.0:1234" })?.secret).toBe("")
  expect(jobOf({ ...env, LAZULI_ADDRESS: "[::1]:1234" })?.secret).toBe("")
  expect(jobOf({ ...env, LAZULI_ADDRESS: "127.0.0.1:1234" })?.secret).toBe("")
  expect(jobOf({ ...env, LAZULI_ADDRESS: "0.0.0.0:1234", LAZULI_SECRET: "own" })?.secret).toBe("own")
})

test("rank 0's host may have a long name", async () => {
  const job = {
    LAZULI_SIZE: "2",
    LAZULI_SECRET: "own",
    LAZULI_BACKEND: "ring",
    LAZULI_ADDRESS: `${"0".repeat(50)}177.0.0.1:${await freePort()}`,
  }
  const outputs = await Promise.all([0, 1].map((rank) => outputOf({ ...job, LAZULI_RANK: String(rank) })))
  expect(outputs.map((out) => JSON.parse(out).name)).toEqual(["none", "none"])
}, 60_000)

/** An IPv6 address by which this host is reached, in the form of an address with a port; empty where it has none. */
const own6 = Object.values(networkInterfaces())
  .flatMap((all) => all ?? [])
  .filter(({ family, internal, scopeid }) => family === "IPv6" && !internal && scopeid === 0)
  .map(({ address }) => `[${address}]`)
const has6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === "::1"))
test.runIf(has6).each(["[::1]", "::1", ...own6.slice(0, 1)])(
  "ranks meet by IPv6 at %s",
  async (host) => {
    const job = {
      LAZULI_SIZE: "2",
      LAZULI_SECRET: "own",
      LAZULI_BACKEND: "ring",
      LAZULI_ADDRESS: `${host}:${await freePort()}`,
      LAZULI_JOIN_LIMIT: "20",
    }
    const outputs = await Promise.all([0, 1].map((rank) => outputOf({ ...job, LAZULI_RANK: String(rank) })))
    expect(outputs.map((out) => JSON.parse(out).name)).toEqual(["none", "none"])
  },
  60_000,
)

/** The same for a link, whose name is part of it. */
const [link] = Object.entries(networkInterfaces()).flatMap(([name, all]) =>
  (all ?? []).filter(({ scopeid = 0 }) => scopeid > 0).map(({ address }) => `[${address}%${name}]`),
)
test.runIf(link)(
  "ranks meet by an address of one link",
  async () => {
    const job = {
      LAZULI_SIZE: "3",
      LAZULI_SECRET: "own",
      LAZULI_BACKEND: "ring",
      LAZULI_ADDRESS: `${link}:${await freePort()}`,
      LAZULI_JOIN_LIMIT: "20",
    }
    const outputs = await Promise.all(
      [0, 1, 2].map((rank) => outputOf({ ...job, LAZULI_RANK: String(rank) })),
    )
    expect(outputs.map((out) => JSON.parse(out).name)).toEqual(["none", "none", "none"])
  },
  60_000,
)

test("torchrun's address may be one of IPv6", () => {
  const env = { RANK: "0", WORLD_SIZE: "2", MASTER_PORT: "1", LAZULI_SECRET: "own" }
  const addresses = ["::1", "[fd00::2]", "localhost"].map(
    (MASTER_ADDR) => jobOf({ ...env, MASTER_ADDR })?.address,
  )
  expect(addresses).toEqual(["::1", "fd00::2", "127.0.0.1"])
})

test("a rank on another host that does not end is killed there", async () => {
  const ssh = join(folder, "ssh")
  writeFileSync(ssh, '#!/bin/sh\nexec sh -c "$5"\n')
  chmodSync(ssh, 0o755)
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`)
  const stays =
    "process.on('SIGTERM', () => console.log('asked')); setInterval(() => {}, 1000); console.log(process.pid)"
  const stop = new AbortController()
  let pid = 0
  await runJob(["-e", stays], 1, {
    hosts: ["127.0.0.2"],
    signal: stop.signal,
    print(line) {
      pid ||= Number(line)
      stop.abort()
    },
  })
  await vi.waitUntil(() => !isThere(pid), { timeout: 15_000, interval: 100 })
}, 30_000)

test("ssh starts ranks on other hosts, with the secret by its input", async () => {
  // A stand-in for ssh, which runs the command here.
  const ssh = join(folder, "ssh")
  writeFileSync(ssh, `#!/bin/sh\necho "$@" >> ${folder}/asked\nexec sh -c "$5"\n`)
  chmodSync(ssh, 0o755)
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`)
  vi.stubEnv("LAZULI_CONNECTIONS", "2")
  const { code, out, errors } = await runJob([program, "none"], 2, {
    hosts: ["me@127.0.0.2", "127.0.0.3"],
    ranks: 1,
    backend: "ring",
    timeLimit: 10,
  })
  expect(code, errors.flat().join("\n")).toBe(0)
  expect(out.map(([line]) => JSON.parse(line).name)).toEqual(["none", "none"])
  const asked = readFileSync(join(folder, "asked"), "utf8")
  expect(asked).toContain("me@127.0.0.2 echo")
  expect(asked).toMatch(/LAZULI_ADDRESS='127\.0\.0\.2:\d+'/)
  expect(asked).toContain("LAZULI_CONNECTIONS='2'")
}, 60_000)

test("ssh's program is begun behind a shell that prints without an end of line", async () => {
  const ssh = join(folder, "ssh")
  writeFileSync(ssh, '#!/bin/sh\nprintf Welcome\nexec sh -c "$5"\n')
  chmodSync(ssh, 0o755)
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`)
  // More than are started before the first has begun.
  const { code, out } = await runJob(["-e", "setTimeout(() => console.log('here'), 300)"], 9, {
    hosts: ["127.0.0.2"],
  })
  expect([code, out]).toEqual([0, new Array(9).fill(["Welcome", "here"])])
}, 30_000)

test("the exit code is that of a rank that was killed, also where ssh tells of another one before", async () => {
  const ssh = join(folder, "ssh")
  writeFileSync(ssh, '#!/bin/sh\nsh -c "$5"\ncode=$?\n[ $code = 137 ] && sleep 1\nexit $code\n')
  chmodSync(ssh, 0o755)
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`)
  const { code, out, errors } = await runJob([program, "kill"], 2, {
    hosts: ["127.0.0.2", "127.0.0.3"],
    ranks: 1,
    backend: "ring",
    timeLimit: 5,
  })
  expect(errors[0]).toEqual(["ended with code 3"])
  expect(errors[1]).toContain("ended with code 137")
  expect(JSON.parse(out[0][0])).toMatchObject({ name: "DistributedError", rank: 1 })
  expect(code).toBe(137)
}, 60_000)

test("an interrupt ends ssh at once while it connects", async () => {
  const ssh = join(folder, "ssh")
  writeFileSync(ssh, "#!/bin/sh\nexec sleep 60\n")
  chmodSync(ssh, 0o755)
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`)
  const begin = performance.now()
  const done = runJob([program], 1, { hosts: ["127.0.0.2"] })
  setTimeout(() => process.emit("SIGINT", "SIGINT"), 300)
  expect((await done).code).toBe(130)
  expect(performance.now() - begin).toBeLessThan(2000)
})

test("ranks that have not joined end with their launcher, and what they have started lives on", async () => {
  const launcher = pathToFileURL(await programOf("../src/launch")).href
  // Processes that they start inherit their environment and options, and live on.
  const program = `const { spawn } = require("node:child_process")
    const options = [...process.execArgv.slice(0, 2), "-e", "setTimeout(() => {}, 4000)"]
    const own = spawn(process.execPath, options, { stdio: "ignore", detached: true })
    console.log(process.pid, own.pid); setInterval(() => {}, 1000)`
  const script = `import { launch } from ${JSON.stringify(launcher)}
    await launch({ command: ["-e", ${JSON.stringify(program)}], ranks: 2 })`
  const child = spawn(process.execPath, ["--input-type=module", "-e", script])
  const pids = await new Promise<number[][]>((resolve) => {
    let text = ""
    child.stdout.on("data", (part) => {
      text += String(part)
      const found = [...text.matchAll(/\] (\d+) (\d+)\n/g)].map(([, ...both]) => both.map(Number))
      if (found.length === 2) resolve(found)
    })
  })
  child.kill("SIGKILL")
  await vi.waitUntil(() => !pids.some(([pid]) => isThere(pid)), { timeout: 3000, interval: 50 })
  for (const [, own] of pids) expect(isThere(own)).toBe(true)
}, 30_000)

test("of a host that cannot be reached ssh says so, and gives the exit code", async () => {
  const ssh = join(folder, "ssh")
  writeFileSync(ssh, "#!/bin/sh\necho 'no route' >&2\nexit 255\n")
  chmodSync(ssh, 0o755)
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`)
  const { code, errors } = await runJob([program], 1, { hosts: ["127.0.0.2"] })
  expect([code, errors]).toEqual([255, [["no route", "ended with code 255"]]])
})

/** A hello of version 1 by who knows the secret; gives rank 0's answer. The layout is that of native/job/handshake.cc. */
async function helloOfAnother(port: number, secret: string): Promise<string> {
  const socket = connect(port, "127.0.0.1")
  let bytes = Buffer.alloc(0)
  const read = async (count: number): Promise<Buffer> => {
    while (bytes.length < count)
      await new Promise<void>((resolve, reject) => {
        socket.once("data", (chunk) => {
          bytes = Buffer.concat([bytes, chunk])
          resolve()
        })
        socket.once("error", reject)
      })
    const head = bytes.subarray(0, count)
    bytes = bytes.subarray(count)
    return head
  }
  await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject))
  const challenge = Buffer.concat([Buffer.from("LAZULI/1"), randomBytes(32)])
  socket.write(challenge)
  const theirs = (await read(72)).subarray(0, 40)
  const hello = Buffer.alloc(96)
  hello.writeUInt32LE(1, 0)
  hello.writeInt32LE(1, 4)
  hello.writeInt32LE(2, 8)
  const proof = createHmac("sha256", secret).update("client").update(challenge).update(theirs).update(hello)
  socket.write(Buffer.concat([hello, proof.digest()]))
  const verdict = await read(256)
  socket.destroy()
  return verdict.subarray(4, verdict.indexOf(0, 4)).toString()
}

test("a rank of another version is told so, and so is rank 0", async () => {
  const port = await freePort()
  const job = { LAZULI_SIZE: "2", LAZULI_ADDRESS: `127.0.0.1:${port}`, LAZULI_SECRET: "s", LAZULI_RANK: "0" }
  const first = outputOf(job)
  let told = ""
  while (told === "")
    told = await helloOfAnother(port, "s").catch(() => new Promise((resolve) => setTimeout(resolve, 50, "")))
  const says =
    /rank 1 speaks version 1 of the protocol, but rank 0 speaks version \d+: install the same version/
  expect(told).toMatch(says)
  const error = JSON.parse(await first)
  expect(error).toMatchObject({ name: "DistributedError", op: "init", rank: 1 })
  expect(error.message).toMatch(says)
}, 60_000)
