/**
 * The command line: what may be said, what holds when nothing is said, and what is refused.
 */
import { resolve } from "node:path"
import { Command, CommanderError, InvalidArgumentError, Option } from "commander"
import { UserError } from "./user-error"

/** The options that decide the numbers of a run: a checkpoint carries them, and resuming with others is an error. */
export interface Config {
  readonly batch: number
  readonly context: number
  readonly layers: number
  readonly width: number
  readonly heads: number
  readonly learningRate: number
  readonly dropout: number
  readonly seed: number
}

/** Everything that can be said. */
export interface Options extends Config {
  readonly text: string | null
  readonly steps: number | null
  readonly seconds: number
  /** Processes that share each step's texts. */
  readonly ranks: number
  readonly out: string
  readonly resume: boolean
  readonly sample: number
  readonly length: number
  readonly prompt: string
  readonly temperature: number
  readonly topK: number
  readonly saveEvery: number
  /** The names that were given. */
  readonly given: ReadonlySet<string>
}

/** The options that a checkpoint decides. */
export const CONFIG_KEYS = [
  "batch",
  "context",
  "layers",
  "width",
  "heads",
  "learningRate",
  "dropout",
  "seed",
] as const satisfies readonly (keyof Config)[]

const integer = (low: number, high: number) => (text: string) => {
  const value = Number(text)
  if (Number.isInteger(value) && value >= low && value <= high) return value
  throw new InvalidArgumentError(`It must be a whole number from ${low} to ${high}.`)
}

const real = (low: number, high: number) => (text: string) => {
  const value = Number(text)
  if (text.trim() !== "" && value >= low && value <= high) return value
  throw new InvalidArgumentError(`It must be a number from ${low} to ${high}.`)
}

function command(): Command {
  const option = (flags: string, description: string, parse: (text: string) => unknown, value: unknown) =>
    new Option(flags, description).argParser(parse).default(value)
  return new Command("npm run demo --")
    .description(
      "Trains a small GPT on bytes of text with Lazuli, compares it with a bigram model and lets it write.",
    )
    .option("--text <file>", "the text to learn (default: the documents and sources of this repository)")
    .addOption(new Option("--steps <n>", "training steps").argParser(integer(1, 1e9)))
    .addOption(option("--seconds <n>", "training time, when --steps is not given", real(1, 1e6), 120))
    .addOption(option("--ranks <n>", "processes that share the texts of a step", integer(1, 64), 1))
    .addOption(option("--batch <n>", "texts a step", integer(1, 4096), 16))
    .addOption(option("--context <n>", "bytes that the model sees", integer(2, 4096), 64))
    .addOption(option("--layers <n>", "blocks", integer(1, 64), 4))
    .addOption(option("--width <n>", "numbers that stand for a byte", integer(2, 4096), 128))
    .addOption(option("--heads <n>", "attention heads; they divide the width", integer(1, 256), 4))
    .addOption(option("--learning-rate <x>", "the highest of the schedule", real(0, 1), 2e-3))
    .addOption(option("--dropout <p>", "the part of the activations that is dropped", real(0, 0.99), 0))
    .addOption(option("--seed <n>", "decides parameters, batches and dropout", integer(0, 2 ** 31 - 1), 0))
    .option("--out <dir>", "where checkpoint and pictures go", "examples/gpt/out")
    .addOption(option("--save-every <seconds>", "time between checkpoints", real(0, 1e6), 30))
    .option("--resume", "go on from the checkpoint in --out", false)
    .addOption(option("--sample <n>", "texts to write at the end", integer(0, 1024), 2))
    .addOption(option("--length <n>", "bytes of each text", integer(1, 1e6), 300))
    .option("--prompt <text>", "what the texts begin with", "\n")
    .addOption(
      option("--temperature <x>", "below 1 the texts are safer, above 1 wilder", real(0.01, 100), 0.8),
    )
    .addOption(option("--top-k <n>", "choose among this many bytes", integer(1, 256), 40))
    .allowExcessArguments(false)
}

/**
 * Reads arguments. Null after `--help`, which prints itself.
 * @throws UserError for whatever is not understood
 */
export function parseOptions(args: readonly string[]): Options | null {
  const program = command()
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
  const values = program.opts<Partial<Options> & { text?: string; out: string }>()
  const given = new Set(Object.keys(values).filter((name) => program.getOptionValueSource(name) === "cli"))
  // npm runs scripts in the package's folder; INIT_CWD is where the user is.
  const here = process.env.INIT_CWD ?? process.cwd()
  const options = {
    ...values,
    steps: values.steps ?? null,
    text: values.text === undefined ? null : resolve(here, values.text),
    out: given.has("out") ? resolve(here, values.out) : resolve(values.out),
    given,
  } as Options
  if (options.prompt === "") throw new UserError("--prompt must have at least one byte")
  checkHeads(options)
  if (options.batch % options.ranks !== 0)
    throw new UserError(`--batch ${options.batch} is not a multiple of --ranks ${options.ranks}`)
  return options
}

/** @throws UserError */
export function checkHeads({ width, heads }: Config): void {
  if (width % heads !== 0) throw new UserError(`--width ${width} is not a multiple of --heads ${heads}`)
}

/** The part of the options that a checkpoint keeps. */
export function configOf(options: Config): Config {
  return Object.fromEntries(CONFIG_KEYS.map((key) => [key, options[key]])) as unknown as Config
}
