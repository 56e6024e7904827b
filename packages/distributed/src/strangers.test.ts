/** Rank 0 waits at its door, and strangers come first: it lets in who knows the secret, and says what is wrong with the others. */
import { type ChildProcess, spawn } from "node:child_process"
import { connect, createServer, Socket } from "node:net"
import { expect, onTestFinished, test } from "vitest"
import { programOf } from "../test/run-job"

const freePort = (): Promise<number> =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })

/** A rank that another launcher started. */
function rankOf(
  program: string,
  rank: number,
  env: Record<string, string>,
): Promise<{ out: string; child: ChildProcess }> {
  const child = spawn(process.execPath, [program, "none"], {
    env: { ...process.env, LAZULI_RANK: String(rank), LAZULI_QUIET: "1", LAZULI_TIME_LIMIT: "5", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  })
  let out = ""
  child.stdout?.on("data", (text) => {
    out += String(text)
  })
  return new Promise((resolve) => child.once("close", () => resolve({ out: out.trim(), child })))
}

/** Sends bytes to a port, and waits until the connection ends. */
const shout = (port: number, bytes: Uint8Array): Promise<void> =>
  new Promise((resolve) => {
    const again = (): void => {
      const socket = connect(port, "127.0.0.1")
      let open = false
      socket.on("connect", () => {
        open = true
        socket.resume()
        socket.write(bytes)
      })
      socket.on("error", () => {})
      socket.on("close", () => (open ? resolve() : setTimeout(again, 50)))
    }
    again()
  })

/** Connects, once somebody listens, and says nothing. */
const knock = (socket: Socket, port: number): Promise<void> =>
  new Promise((resolve) => {
    socket.on("connect", resolve)
    socket.on("error", () => setTimeout(() => socket.connect(port, "127.0.0.1"), 50))
    socket.connect(port, "127.0.0.1")
  })

test("noise, a wrong secret and a wrong size do not join; the right rank does afterwards", async () => {
  const program = await programOf("faults")
  const address = `127.0.0.1:${await freePort()}`
  const port = Number(address.split(":")[1])
  const job = { LAZULI_SIZE: "2", LAZULI_ADDRESS: address, LAZULI_SECRET: "right", LAZULI_BACKEND: "ring" }
  const first = rankOf(program, 0, job)
  await shout(port, new Uint8Array(1 << 20).fill(255))
  await shout(port, new TextEncoder().encode(`LAZULI/1${"x".repeat(200)}`))
  const stranger = await rankOf(program, 1, { ...job, LAZULI_SECRET: "wrong" })
  expect(JSON.parse(stranger.out)).toMatchObject({ name: "DistributedError", op: "init", rank: 0 })
  expect(stranger.out).toContain("does not know this job's secret")
  const second = rankOf(program, 1, job)
  expect((await Promise.all([first, second])).map(({ out }) => JSON.parse(out).name)).toEqual([
    "none",
    "none",
  ])

  const silent = { ...job, LAZULI_JOIN_LIMIT: "15" }
  const waiting = rankOf(program, 0, silent)
  const strangers = Array.from({ length: 40 }, () => new Socket())
  onTestFinished(() => {
    for (const each of strangers) each.destroy()
  })
  await Promise.all(strangers.map((each) => knock(each, port)))
  const late = await Promise.all([waiting, rankOf(program, 1, silent)])
  expect(late.map(({ out }) => JSON.parse(out).name)).toEqual(["none", "none"])

  // Of the right first words, and no more.
  const begun = Array.from({ length: 40 }, () => new Socket())
  onTestFinished(() => {
    for (const each of begun) each.destroy()
  })
  const asked = rankOf(program, 0, silent)
  await Promise.all(begun.map((each) => knock(each, port)))
  for (const each of begun) each.write(`LAZULI/1${"x".repeat(32)}`)
  const heard = await Promise.all([asked, rankOf(program, 1, silent)])
  expect(heard.map(({ out }) => JSON.parse(out).name)).toEqual(["none", "none"])

  const sizes = await Promise.all([rankOf(program, 0, job), rankOf(program, 1, { ...job, LAZULI_SIZE: "3" })])
  for (const { out } of sizes)
    expect(JSON.parse(out)).toMatchObject({ name: "DistributedError", op: "init", rank: 1 })
  expect(sizes[0].out).toContain("rank 1 says that the job has 3 ranks, but rank 0 says that it has 2")

  const missing = await rankOf(program, 0, { ...job, LAZULI_JOIN_LIMIT: "0.5" })
  expect(JSON.parse(missing.out)).toMatchObject({ rank: 1, op: "init" })
  expect(missing.out).toContain("rank 1 did not join the job in time")
}, 60_000)
