/** A process that measures a workload when asked; serve.ts is its side of the conversation. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"

interface Answer {
  readonly ready?: boolean
  readonly missing?: string
  readonly value?: number
}

/** One contestant: at one workload, or at one after another. */
export class Contestant {
  private readonly child: ChildProcess
  private readonly answers: AsyncIterator<string>
  /** The measurements, round by round. */
  taken: number[] = []

  constructor(
    readonly name: string,
    [command, ...args]: readonly string[],
  ) {
    // The JavaScript peers write warnings about how else they could be installed.
    this.child = spawn(command, args, {
      stdio: ["pipe", "pipe", "ignore"],
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
    })
    this.child.on("error", () => {})
    this.child.stdin?.on("error", () => {})
    this.answers = createInterface({ input: this.child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]()
  }

  async hear(): Promise<Answer> {
    for (;;) {
      const { value, done } = await this.answers.next()
      if (done) return { missing: "does not run" }
      // Anything else that a peer prints is no answer.
      if (value.startsWith("{")) return JSON.parse(value) as Answer
    }
  }

  /** Lets a process that serves one workload after another prepare this one. */
  prepare(workload: string): Promise<Answer> {
    this.taken = []
    this.child.stdin?.write(`${workload}\n`)
    return this.hear()
  }

  /** Measures once more; false where it has stopped. */
  async measure(): Promise<boolean> {
    this.child.stdin?.write("\n")
    const { value } = await this.hear()
    if (value !== undefined) this.taken.push(value)
    return value !== undefined
  }

  end(): void {
    this.child.stdin?.end()
    this.child.kill()
  }
}
