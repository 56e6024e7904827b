/**
 * The command line: what may be said, what holds when nothing is said, and what is refused.
 */
import { resolve } from "node:path"
import { Command, CommanderError, InvalidArgumentError, Option } from "commander"
import type { ModelName, TaskName } from "./train"
import { UserError } from "./user-error"

/** Everything that can be said. */
export interface Options {
  readonly task: TaskName
  readonly model: ModelName
  readonly steps: number
  readonly batch: number
  readonly learningRate: number
  readonly seed: number
  readonly unseen: number
  readonly out: string
}

const integer = (low: number, high: number) => (text: string) => {
  const value = Number(text)
  if (Number.isInteger(value) && value >= low && value <= high) return value
  throw new InvalidArgumentError(`It must be a whole number from ${low} to ${high}.`)
}

const rate = (text: string): number => {
  const value = Number(text)
  if (value > 0 && value <= 1) return value
  throw new InvalidArgumentError("It must be a number above 0 and at most 1.")
}

const eights = (text: string): number => {
  const value = integer(8, 1024)(text)
  if (value % 8 === 0) return value
  throw new InvalidArgumentError("It must be a multiple of 8, as many of each class.")
}

/**
 * Reads arguments. Null after `--help`, which prints itself.
 * @throws UserError for whatever is not understood
 */
export function parseOptions(args: readonly string[]): Options | null {
  const program = new Command("npm run demo:pointcloud --")
    .description("Trains PointCNN on clouds of points: to tell shapes apart, or the parts of objects.")
    .addOption(new Option("--task <name>", "what is learnt").choices(["shapes", "parts"]).default("shapes"))
    .addOption(
      new Option("--model <name>", "the network, for shapes")
        .choices(["pointcnn", "pointnet"])
        .default("pointcnn"),
    )
    .addOption(new Option("--steps <n>", "training steps").argParser(integer(1, 1e6)).default(700))
    .addOption(new Option("--batch <n>", "clouds a step").argParser(eights).default(32))
    .addOption(new Option("--learning-rate <x>", "at the start").argParser(rate).default(3e-3))
    .addOption(
      new Option("--seed <n>", "decides parameters and clouds").argParser(integer(0, 10_000)).default(0),
    )
    .addOption(new Option("--unseen <n>", "clouds of the verdict").argParser(integer(8, 1e6)).default(2000))
    .option("--out <dir>", "where pictures go", "examples/pointcloud/out")
    .allowExcessArguments(false)
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
  try {
    program.parse(args, { from: "user" })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.exitCode === 0) return null
    throw new UserError(
      `${error.message.replace(/^error: /, "").replaceAll("\n", " ")} (--help lists the options)`,
    )
  }
  const values = program.opts<Options>()
  // npm runs scripts in the package's folder; INIT_CWD is where the user is.
  const here = program.getOptionValueSource("out") === "cli" ? (process.env.INIT_CWD ?? process.cwd()) : "."
  return { ...values, out: resolve(here, values.out) }
}
