/**
 * `lazuli-lm convert` and `lazuli-lm quantize`: a model from one form into a folder of another.
 */
import * as mx from "@lazuli/core"
import { type Command, Option } from "commander"
import { load } from "../formats/load"
import { quantize, save } from "../formats/save"
import { number, whole } from "./options"
import { bytesText, progressBar, type Terminal } from "./terminal"

const DTYPES = { float32: mx.float32, float16: mx.float16, bfloat16: mx.bfloat16 } as const

interface Flags {
  readonly model: string
  readonly out: string
  readonly dtype?: keyof typeof DTYPES
  readonly maxShardBytes?: number
  readonly bits?: number
  readonly groupSize?: number
  readonly mode?: mx.QuantizationMode
}

export function addConvert(program: Command, terminal: Terminal): void {
  const common = (command: Command): Command =>
    command
      .requiredOption("-m, --model <model>", "a folder, a .gguf file or a name on the hub")
      .requiredOption("-o, --out <folder>", "the folder to write")
      .addOption(new Option("--dtype <dtype>", "the dtype of weights").choices(Object.keys(DTYPES)))
      .option("--max-shard-bytes <n>", "the most bytes of a file", number)
  common(program.command("convert").description("write a model as a folder in the hub's form")).action(
    (flags: Flags) => convert(flags, false, terminal),
  )
  common(program.command("quantize").description("write a model with packed weights"))
    .option("--bits <n>", "bits a weight", whole)
    .option("--group-size <n>", "weights that share a scale", whole)
    .addOption(new Option("--mode <mode>", "the format").choices(["affine", "mxfp4", "nvfp4", "mxfp8"]))
    .action((flags: Flags) => convert(flags, true, terminal))
}

async function convert(flags: Flags, packs: boolean, terminal: Terminal): Promise<void> {
  const { model, out, dtype, maxShardBytes, bits, groupSize, mode } = flags
  const onProgress = progressBar(terminal, "loading")
  const loaded = await load(model, { onProgress, dtype: dtype && DTYPES[dtype] })
  const made = packs ? quantize(loaded, { bits, groupSize, mode }) : loaded
  save(made, out, { maxShardBytes, onProgress: progressBar(terminal, "writing") })
  terminal.out(`${out}\n`)
  terminal.err(`peak memory ${bytesText(mx.getPeakMemory())}\n`)
}
