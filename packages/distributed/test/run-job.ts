/** Runs programs of this folder as jobs. */
import { bundle } from "../../../tooling/source-bundle.mjs"
import { type LaunchOptions, launch } from "../src/launch"

/** Makes a program of this folder one file, which can be started many times. */
export const programOf = (name: string): Promise<string> =>
  bundle(new URL(`./${name}.ts`, import.meta.url).pathname)

/** Starts a job, and gives its exit code and what each rank printed. */
export async function runJob(
  command: readonly string[],
  ranks: number,
  options: Partial<LaunchOptions> = {},
): Promise<{ code: number; out: string[][]; errors: string[][] }> {
  const out: string[][] = Array.from({ length: ranks }, () => [])
  const errors: string[][] = Array.from({ length: ranks }, () => [])
  const code = await launch({
    command,
    ranks,
    print: (line, rank, error) => (error ? errors : out)[rank].push(line),
    ...options,
    env: { LAZULI_QUIET: "1", LAZULI_NUM_THREADS: "1", ...options.env },
  })
  return { code, out, errors }
}
