/** Jobs by the real ssh, to a server of this test's own, and by the real torchrun; where these are not installed, the tests say so. */
import { execFileSync, spawn } from "node:child_process"
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { delimiter, dirname, join } from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest"
import { freePort, isThere } from "../test/processes"
import { programOf } from "../test/run-job"

const folder = mkdtempSync(join(tmpdir(), "lazuli-real-"))
afterAll(() => rmSync(folder, { recursive: true }))
let program = ""
let launcher = ""
beforeAll(async () => {
  program = await programOf("faults")
  launcher = pathToFileURL(await programOf("../src/launch")).href
}, 60_000)

interface Ended {
  readonly code: number | null
  readonly out: string[]
  readonly errors: string[]
}

/** Runs a command to its end; `heard` is called with each line, and may end it. */
function outcomeOf(
  command: string,
  args: readonly string[],
  env: Record<string, string | undefined> = {},
  heard: (line: string, interrupt: () => void) => void = () => {},
): Promise<Ended> {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] })
  const texts = { out: "", errors: "" }
  const listen = (stream: NodeJS.ReadableStream, to: keyof typeof texts): void => {
    stream.on("data", (part) => {
      const [last, ...before] = (texts[to] + String(part)).split("\n").reverse()
      const known = texts[to].split("\n").length - 1
      texts[to] = [...before.reverse(), last].join("\n")
      for (const line of before.slice(known)) heard(line, () => child.kill("SIGINT"))
    })
  }
  listen(child.stdout, "out")
  listen(child.stderr, "errors")
  const linesOf = (text: string): string[] => text.split("\n").filter(Boolean)
  return new Promise((resolve) =>
    child.once("close", (code) => resolve({ code, out: linesOf(texts.out), errors: linesOf(texts.errors) })),
  )
}

const SSHD = "/usr/sbin/sshd"
const SSH = "/usr/bin/ssh"
/** Two addresses of this machine, which count as others. */
const HOSTS = "127.0.0.2,127.0.0.3"

describe("by ssh", () => {
  const isInstalled = process.platform === "linux" && existsSync(SSHD) && existsSync(SSH)
  const path = `${folder}${delimiter}${process.env.PATH}`
  const server: { end: () => void } = { end: () => {} }
  afterAll(() => server.end())
  beforeAll(async () => {
    if (!isInstalled) return
    // Where root's sshd wants to keep its processes without rights.
    if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true })
    for (const name of ["host", "user"])
      execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", join(folder, name)])
    copyFileSync(join(folder, "user.pub"), join(folder, "authorized"))
    const port = await freePort()
    const config = [
      ...HOSTS.split(",").map((host) => `ListenAddress ${host}:${port}`),
      `HostKey ${folder}/host`,
      `AuthorizedKeysFile ${folder}/authorized`,
      `PidFile none`,
      `StrictModes no`,
      `UsePAM no`,
      `PermitRootLogin yes`,
      `SetEnv PATH=${dirname(process.execPath)}:/usr/bin:/bin`,
    ]
    writeFileSync(join(folder, "server"), `${config.join("\n")}\n`)
    const files = `UserKnownHostsFile /dev/null\nIdentityFile ${folder}/user\nIdentitiesOnly yes`
    writeFileSync(
      join(folder, "client"),
      `Port ${port}\n${files}\nStrictHostKeyChecking no\nLogLevel ERROR\nControlPath none\n`,
    )
    writeFileSync(join(folder, "ssh"), `#!/bin/sh\nexec ${SSH} -F ${folder}/client "$@"\n`)
    chmodSync(join(folder, "ssh"), 0o755)
    const sshd = spawn(SSHD, ["-D", "-f", join(folder, "server")], { stdio: "ignore" })
    server.end = () => sshd.kill()
    await vi.waitUntil(() => answers(port), { timeout: 10_000, interval: 50 })
  }, 30_000)
  const answers = (port: number): Promise<boolean> =>
    new Promise((resolve) => {
      const socket = connect(port, HOSTS.split(",")[0])
      const tell = (open: boolean) => () => {
        socket.destroy()
        resolve(open)
      }
      socket.once("connect", tell(true)).once("error", tell(false))
    })

  /** Runs `lazuli launch` on these hosts, with two ranks on each. */
  function launched(
    args: readonly string[],
    heard?: (line: string, interrupt: () => void) => void,
  ): Promise<Ended> {
    const script = `import { runCommand } from ${JSON.stringify(launcher)}
      process.exitCode = await runCommand(process.argv.slice(1))`
    const own = ["--input-type=module", "-e", script, "--", "launch", "-n", "2", "--hosts", HOSTS]
    const limits = ["--backend", "ring", "--time-limit", "5"]
    return outcomeOf(process.execPath, [...own, ...limits, ...args], { PATH: path, LAZULI_QUIET: "1" }, heard)
  }
  const sshTest = (name: string, run: () => Promise<void>): void =>
    test(name, { timeout: 60_000 }, async ({ skip }) => {
      if (!isInstalled) skip(`there is no ${SSHD}: install openssh-server`)
      await run()
    })

  sshTest("ranks add up arrays, and print with their ranks", async () => {
    const { code, out, errors } = await launched([program, "none"])
    expect(code, errors.join("\n")).toBe(0)
    expect(out.sort()).toEqual([0, 1, 2, 3].map((rank) => `[${rank}] {"name":"none"}`))
  })

  sshTest("more ranks than a server lets in at once are started", async () => {
    const many = ["-n", "16", "--hosts", HOSTS.split(",")[0]]
    const { code, out, errors } = await launched([...many, "--", "-e", "console.log('here')"])
    expect(errors).toEqual([])
    expect([code, out.length]).toEqual([0, 16])
  })

  sshTest("a rank that is killed is named by the others, and gives its exit code", async () => {
    const { code, out, errors } = await launched([program, "kill"])
    expect(code, errors.join("\n")).toBe(137)
    expect(errors).toContain("[1] ended with code 137")
    expect(out).toHaveLength(3)
    for (const line of out) expect(line).toMatch(/^\[[023]\] .*rank 1 was lost/)
  })

  sshTest("one Ctrl-C ends all, and lets them save", async () => {
    const stays =
      "process.on('SIGTERM', () => { console.log('saved'); process.exit(0) }); setInterval(() => {}, 1000); console.log(process.pid)"
    const pids: number[] = []
    let at = 0
    const { code, out } = await launched(["--", "-e", stays], (line, interrupt) => {
      const pid = Number(/\] (\d+)$/.exec(line)?.[1])
      if (pid > 0 && pids.push(pid) === 4) {
        at = performance.now()
        interrupt()
      }
    })
    expect(code).toBe(130)
    expect(performance.now() - at).toBeLessThan(5000)
    expect(out.filter((line) => line.endsWith("saved"))).toHaveLength(4)
    expect(pids.filter(isThere)).toEqual([])
  })

  sshTest("a job that failed is started again", async () => {
    const once = "const r = process.env.LAZULI_RESTART; console.log(r); process.exit(r === '0' ? 7 : 0)"
    const { code, out, errors } = await launched(["--restarts", "1", "--", "-e", once])
    expect(code, errors.join("\n")).toBe(0)
    expect(out.filter((line) => line.endsWith("] 1"))).toHaveLength(4)
    expect(errors).toContain("lazuli: a rank failed; restart 1 of 1")
  })
})

const TORCHRUN = "/usr/bin/torchrun"
test.for(["none", "kill"])(
  "torchrun starts ranks, which end well or name who failed: %s",
  { timeout: 60_000 },
  async (fault, { skip }) => {
    if (!existsSync(TORCHRUN)) skip(`there is no ${TORCHRUN}: install python3-torch`)
    const port = String((await freePort()) - 1)
    // With Python 3.11 version 1.13 runs nothing by its own defaults of these.
    const streams = ["--redirects", "2", "--tee", "2", "--log_dir", folder]
    const { code, out, errors } = await outcomeOf(
      TORCHRUN,
      [
        "--nproc_per_node",
        "2",
        "--master_port",
        port,
        ...streams,
        "--no_python",
        process.execPath,
        program,
        fault,
      ],
      { LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "5" },
    )
    const told = out.map((line) => JSON.parse(line) as { name: string; message: string })
    if (fault === "none")
      expect(
        told.map(({ name }) => name),
        errors.join("\n"),
      ).toEqual(["none", "none"])
    else expect(told[0]?.message ?? "", errors.join("\n")).toMatch(/rank 1 was lost/)
    expect(code === 0).toBe(fault === "none")
  },
)
