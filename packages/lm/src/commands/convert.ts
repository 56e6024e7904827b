/**
 * `lazuli-lm convert` and `lazuli-lm quantize`: a model from one form into another.
 */
import * as mx from "@lazuli/core"
import { type Command, Option } from "commander"
import type { GgufType } from "../formats/gguf-write"
import { quantize, save } from "../formats/save"
import { loadShown, number, whole } from "./options"
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
  readonly type?: GgufType
}

const TYPES: readonly GgufType[] = [
  ...(["F32", "F16", "BF16"] as const),
  ...(["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"] as const),
]

export function addConvert(program: Command, terminal: Terminal): void {
  const common = (command: Command): Command =>
    command
      .requiredOption("-m, --model <model>", "a folder, a .gguf file or a name on the hub")
      .requiredOption("-o, --out <path>", "output folder, or a file that ends in .gguf")
      .addOption(new Option("--dtype <dtype>", "dtype of the weights").choices(Object.keys(DTYPES)))
      .option("--max-shard-bytes <n>", "most bytes in one file", number)
  common(
    program
      .command("convert")
      .description("write a model as a folder in the hub's format, or as a GGUF file"),
  )
    .addOption(new Option("--type <type>", "type of the matrices in a GGUF file").choices(TYPES))
    .action((flags: Flags) => convert(flags, false, terminal))
  common(program.command("quantize").description("write a model with quantized weights"))
    .option("--bits <n>", "bits per weight", whole)
    .option("--group-size <n>", "number of weights that share a scale", whole)
    .addOption(new Option("--mode <mode>", "the format").choices(["affine", "mxfp4", "nvfp4", "mxfp8"]))
    .action((flags: Flags) => convert(flags, true, terminal))
}

async function convert(flags: Flags, packs: boolean, terminal: Terminal): Promise<void> {
  const { model, out, dtype, maxShardBytes, bits, groupSize, mode, type } = flags
  const loaded = await loadShown(model, terminal, { dtype: dtype && DTYPES[dtype] })
  const made = packs ? quantize(loaded, { bits, groupSize, mode }) : loaded
  save(made, out, { maxShardBytes, type, onProgress: progressBar(terminal, "writing") })
  terminal.out(`${out}\n`)
  terminal.err(`peak memory ${bytesText(mx.getPeakMemory())}\n`)
}
