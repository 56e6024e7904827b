/** A relay through which ranks reach each other (`LAZULI_PROXY`), and which harms one connection: for tests. */
import { connect, createServer, type Socket } from "node:net"

/** The harm done to what travels. */
export type Harm = "none" | "cut" | "corrupt" | "delay" | "lag" | "silence" | "reorder"

/** Milliseconds by which all that comes back over a connection with `lag` is late. */
const LAG = 400

/** A relay that listens at `port`; after `bytes` bytes of what a connection carries, harm comes to it. */
export interface Relay {
  readonly port: number
  close(): void
}

/** Bytes as they go on, or null to end the connection. */
function harmed(harm: Harm, data: Buffer, at: number): Buffer[] | null {
  const copy = Buffer.from(data)
  if (harm === "corrupt") {
    copy[at] ^= 1 << (at % 8)
    return [copy]
  }
  // The halves of what follows the position.
  if (harm === "reorder") {
    const half = at + Math.ceil((copy.length - at) / 2)
    return [copy.subarray(0, at), copy.subarray(half), copy.subarray(at, half)]
  }
  return harm === "cut" ? null : [copy]
}

/** Starts a relay. Of the connections through it, harm comes to the one numbered `which`, once (`lag`: always). */
export function startRelay(harm: Harm, which: number, bytes: number): Promise<Relay> {
  const sockets = new Set<Socket>()
  let opened = 0
  const server = createServer((near) => {
    const number = opened++
    let head = Buffer.alloc(0)
    const keep = (socket: Socket): void => {
      sockets.add(socket)
      socket.on("error", () => socket.destroy())
      socket.on("close", () => sockets.delete(socket))
    }
    keep(near)
    const begin = (data: Buffer): void => {
      head = Buffer.concat([head, data])
      const end = head.indexOf(10)
      if (end < 0) return
      near.off("data", begin)
      const [host, port] = head.subarray(0, end).toString().split(":")
      const far = connect(Number(port), host)
      keep(far)
      near.on("close", () => far.destroy())
      const lag = harm === "lag" && number === which ? LAG : 0
      const back = (pass: () => void): void => {
        if (lag) setTimeout(pass, lag)
        else pass()
      }
      far.on("close", () => back(() => near.destroy()))
      let carried = 0
      let due = harm !== "none" && harm !== "lag" && number === which
      let silent = false
      const pass = (chunk: Buffer): void => {
        carried += chunk.length
        if (silent) return
        if (!due || carried <= bytes) {
          far.write(chunk)
          return
        }
        due = false
        if (harm === "silence") {
          silent = true
          return
        }
        if (harm === "delay") {
          near.pause()
          setTimeout(() => {
            far.write(chunk)
            near.resume()
          }, 100)
          return
        }
        const parts = harmed(harm, chunk, Math.max(0, chunk.length - (carried - bytes)))
        if (parts === null) near.destroy()
        else for (const part of parts) far.write(part)
      }
      near.on("data", pass)
      far.on("data", (chunk) => back(() => near.write(chunk)))
      if (head.length > end + 1) pass(head.subarray(end + 1))
    }
    near.on("data", begin)
  })
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number }
      resolve({
        port,
        close() {
          server.close()
          for (const socket of sockets) socket.destroy()
        },
      })
    })
  })
}
