/**
 * `lazuli-lm lora` and `lazuli-lm eval`: train adapters, and measure a model's loss.
 */
import { existsSync, statSync } from "node:fs"
import { resolve } from "node:path"
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { type Command, Option } from "commander"
import { checkPlace, save } from "../formats/save"
import { causal } from "../generate/prompts"
import { type AdapterForm, saveAdapters } from "../tune/adapter-files"
import { checkReading, readDataset } from "../tune/dataset"
import { addAdapters, checkLora } from "../tune/lora"
import { checkTraining, evaluate, type TrainOptions, train } from "../tune/train"
import {
  fuseShown,
  integer,
  loadShown,
  MODEL_HELP,
  type ModelFlags,
  number,
  REQUANTIZE_HELP,
  refuseOwn,
  tokenizerOf,
} from "./options"
import { bytesText, type Terminal } from "./terminal"
import { removingUnfinished } from "./unfinished"

interface Flags {
  readonly model: string
  readonly data: string
  readonly valid?: string
  readonly out: string
  readonly steps: number
  readonly batchSize: number
  readonly accumulate: number
  readonly learningRate: number
  readonly rank: number
  readonly scale: number
  readonly dropout: number
  readonly layers?: number
  readonly keys?: string[]
  readonly seed: number
  readonly maskPrompt?: boolean
  readonly maxTokens: number
  readonly checkpointing?: boolean
  readonly deterministic?: boolean
  readonly saveEvery?: number
  readonly form: AdapterForm
  readonly fuse?: string
  readonly requantize?: boolean
}

export function addLora(program: Command, terminal: Terminal): void {
  program
    .command("lora")
    .description("train LoRA adapters; run it again to continue")
    .requiredOption("-m, --model <model>", `${MODEL_HELP}; quantized weights stay quantized`)
    .requiredOption(
      "-d, --data <file>",
      "JSON Lines file of examples with messages, prompt and completion, or text",
    )
    .requiredOption("-o, --out <folder>", "output folder for adapters and training state")
    .option("--valid <file>", "validation examples, evaluated before and after training")
    .option("--steps <n>", "total number of updates, including those of earlier runs", integer, 100)
    .option("--batch-size <n>", "examples per batch", integer, 4)
    .option("--accumulate <n>", "gradient accumulation: batches per update", integer, 1)
    .option("--learning-rate <x>", "learning rate", number, 1e-5)
    .option("--rank <n>", "rank of the adapters", integer, 8)
    .option("--scale <x>", "scale of the adapters' output", number, 20)
    .option("--dropout <p>", "dropout on the adapters' input", number, 0)
    .option("--layers <n>", "adapt only the last n blocks", integer)
    .option("--keys <names...>", "layers to adapt, by the ends of their names, such as self_attn.q_proj")
    .option("--seed <n>", "random seed", integer, 0)
    .option("--mask-prompt", "compute the loss on completions only")
    .option("--max-tokens <n>", "truncate longer examples", integer, 2048)
    .option("--checkpointing", "gradient checkpointing: less memory, more time")
    .option("--deterministic", "reproducible results on GPUs; slower")
    .option("--save-every <n>", "save the training state every n updates", integer)
    .addOption(new Option("--form <form>", "adapter file format").choices(["mlx", "peft"]).default("mlx"))
    .option("--fuse <folder>", "also write the model with fused adapters")
    .option("--requantize", REQUANTIZE_HELP)
    .action((flags: Flags) => lora(flags, terminal))
  program
    .command("eval")
    .description("compute mean loss per token and perplexity")
    .requiredOption("-m, --model <model>", MODEL_HELP)
    .requiredOption("-d, --data <file>", "JSON Lines file of examples")
    .option("--adapters <folder>", "LoRA adapters to load")
    .option("--mask-prompt", "compute the loss on completions only")
    .option("--max-tokens <n>", "truncate longer examples", integer, 2048)
    .action(async ({ data, maskPrompt, maxTokens, ...flags }: Flags & ModelFlags) => {
      checkReading({ maskPrompt, maxTokens })
      const loaded = await loadShown(flags, terminal)
      const network = causal("eval", loaded)
      const examples = readDataset(data, tokenizerOf(loaded), { maskPrompt, maxTokens })
      const begin = performance.now()
      const loss = await evaluate(network, examples)
      const read = examples.reduce((sum, { tokens }) => sum + tokens.length, 0)
      const rate = read / ((performance.now() - begin) / 1000)
      terminal.out(`loss ${loss.toFixed(4)}, perplexity ${Math.exp(loss).toFixed(2)}\n`)
      terminal.err(
        `${examples.length} examples, ${rate.toFixed(0)} tokens/s; peak memory ${bytesText(mx.getPeakMemory())}\n`,
      )
    })
}

const trainingOf = (flags: Flags): TrainOptions => ({
  steps: flags.steps,
  batchSize: flags.batchSize,
  accumulate: flags.accumulate,
  learningRate: flags.learningRate,
  seed: flags.seed,
  checkpointing: flags.checkpointing,
  deterministic: flags.deterministic,
  saveEvery: flags.saveEvery,
  state: flags.out,
})

async function lora(flags: Flags, terminal: Terminal): Promise<void> {
  const { rank, scale, dropout, layers, keys, maskPrompt, maxTokens } = flags
  const adapting = { rank, scale, dropout, layers, keys }
  checkLora(adapting)
  checkReading({ maskPrompt, maxTokens })
  if (flags.fuse !== undefined) {
    refuseOwn("lora", "--fuse", flags.fuse, flags.model)
    checkPlace(flags.fuse, {})
  }
  checkTraining(trainingOf(flags))
  if (flags.fuse !== undefined && resolve(flags.fuse) === resolve(flags.out))
    throw new ArgumentError("lora", "--fuse and --out are the same folder", { hint: "Choose another place" })
  if (existsSync(flags.out) && !statSync(flags.out).isDirectory())
    throw new ArgumentError("lora", `--out ${flags.out} is a file, expected a folder`)
  const model = await loadShown({ model: flags.model }, terminal)
  const network = causal("lora", model)
  const read = (file: string) => readDataset(file, tokenizerOf(model), { maskPrompt, maxTokens })
  const [examples, valid] = [read(flags.data), flags.valid ? read(flags.valid) : null]
  const unused = examples.filter(({ tokens, from }) => from >= tokens.length).length
  if (unused > 0)
    terminal.err(
      `${unused} of ${examples.length} examples are left out: --max-tokens cuts off what they teach\n`,
    )
  mx.random.seed(flags.seed)
  const names = addAdapters(network, adapting)
  terminal.err(`${names.length} adapters of rank ${rank}, ${examples.length - unused} examples\n`)
  const report = async (when: string): Promise<void> => {
    if (valid)
      terminal.out(`${when}: loss ${(await evaluate(network, valid)).toFixed(4)} on ${flags.valid}\n`)
  }
  await report("before")
  const begin = performance.now()
  let [updates, tokens] = [0, 0]
  const stopped = await terminal.interruptible(async (signal): Promise<unknown> => {
    await train(network, examples, {
      ...trainingOf(flags),
      signal,
      onStep: (step) => {
        updates++
        tokens += step.tokens
        const rate = tokens / ((performance.now() - begin) / 1000)
        terminal.out(`step ${step.step}: loss ${step.loss.toFixed(4)}, ${rate.toFixed(0)} tokens/s\n`)
      },
    })
    return signal.reason
  })
  if (stopped) {
    saveAdapters(network, flags.out, flags.form)
    const fuse = flags.fuse === undefined ? "" : " --fuse is left out."
    terminal.err(`stopped, and saved in ${flags.out}: the same command goes on.${fuse}\n`)
    throw stopped
  }
  if (updates === 0)
    terminal.err(`${flags.out} already has ${flags.steps} updates or more: pass more --steps to go on\n`)
  saveAdapters(network, flags.out, flags.form)
  terminal.out(`${flags.out}\n`)
  await report("after")
  terminal.err(`peak memory ${bytesText(mx.getPeakMemory())}\n`)
  if (!flags.fuse) return
  fuseShown(network, flags, terminal)
  const { fuse } = flags
  removingUnfinished(fuse, () => save(model, fuse))
  terminal.out(`${fuse}\n`)
}
