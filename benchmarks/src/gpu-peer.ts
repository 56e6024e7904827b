/** PyTorch in a process of its own, which runs a row when it is asked to, so that rounds of both take turns. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface, type Interface } from "node:readline"
import { fileURLToPath } from "node:url"

export class GpuPeer {
  private readonly child: ChildProcess
  private readonly lines: AsyncIterator<string>
  private readonly reader: Interface

  constructor() {
    const script = fileURLToPath(new URL("../peers/gpu_pytorch.py", import.meta.url))
    this.child = spawn("python3", [script], { stdio: ["pipe", "pipe", "ignore"] })
    this.child.on("error", () => {})
    this.child.stdin?.on("error", () => {})
    this.reader = createInterface({ input: this.child.stdout as NodeJS.ReadableStream })
    this.lines = this.reader[Symbol.asyncIterator]()
  }

  /** The answer to a request; undefined where there is no PyTorch. */
  private async ask(...request: (string | number)[]): Promise<number[] | string[] | undefined> {
    this.child.stdin?.write(`${request.join("\t")}\n`)
    const { value, done } = await this.lines.next()
    return done ? undefined : (JSON.parse(value) as number[])
  }

  /** Makes a row's inputs, and warms up. Returns the forms that it has: eager, compiled. */
  async make(row: string, compiled: boolean): Promise<string[]> {
    return ((await this.ask("make", row, Number(compiled))) as string[] | undefined) ?? []
  }
  /** The times of some calls, in ms, after at least three that do not count, for so many ms. */
  async run(form: string, rounds: number, warmUp: number): Promise<number[]> {
    return ((await this.ask("run", form, rounds, warmUp)) as number[] | undefined) ?? []
  }
  end(): void {
    this.child.stdin?.end()
    this.reader.close()
  }
}
