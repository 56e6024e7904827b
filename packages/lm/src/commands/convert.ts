/**
 * `lazuli-lm convert` and `lazuli-lm quantize`: write a model in another format.
 */
import * as mx from "@lazuli/core"
import { type Command, Option } from "commander"
import { GGUF_TYPES, type GgufType } from "../formats/gguf-write"
import { checkPlace, formatFor, quantize, save } from "../formats/save"
import { fuseShown, integer, loadShown, MODEL_HELP, number, REQUANTIZE_HELP, refuseOwn } from "./options"
import { bytesText, progressBar, type Terminal } from "./terminal"
import { removingUnfinished } from "./unfinished"

const DTYPES = { float32: mx.float32, float16: mx.float16, bfloat16: mx.bfloat16 } as const

interface Flags {
  readonly model: string
  readonly out: string
  readonly adapters?: string
  readonly requantize?: boolean
  readonly dtype?: keyof typeof DTYPES
  readonly maxShardBytes?: number
  readonly bits?: number
  readonly groupSize?: number
  readonly mode?: mx.QuantizationMode
  readonly type?: GgufType
}

export function addConvert(program: Command, terminal: Terminal): void {
  const common = (command: Command): Command =>
    command
      .requiredOption("-m, --model <model>", MODEL_HELP)
      .requiredOption("-o, --out <path>", "output folder or .gguf file")
      .option("--adapters <folder>", "LoRA adapters to fuse with the weights")
      .option("--requantize", REQUANTIZE_HELP)
      .addOption(new Option("--dtype <dtype>", "dtype of the weights").choices(Object.keys(DTYPES)))
      .option("--max-shard-bytes <n>", "maximum bytes per weight file", number)
  common(
    program
      .command("convert")
      .description("write a model as a folder in Hugging Face format, or as a GGUF file"),
  )
    .addOption(new Option("--type <type>", "type of matrices in a GGUF file").choices(GGUF_TYPES))
    .action((flags: Flags) => convert(flags, false, terminal))
  common(program.command("quantize").description("write a model with quantized weights"))
    .option("--bits <n>", "bits per weight", integer)
    .option("--group-size <n>", "weights per scale", integer)
    .addOption(
      new Option("--mode <mode>", "quantization mode").choices(["affine", "mxfp4", "nvfp4", "mxfp8"]),
    )
    .action((flags: Flags) => convert(flags, true, terminal))
}

async function convert(flags: Flags, quantizes: boolean, terminal: Terminal): Promise<void> {
  const { model, adapters, requantize, out, dtype, maxShardBytes, bits, groupSize, mode, type } = flags
  refuseOwn(quantizes ? "quantize" : "convert", "--out", out, model)
  checkPlace(out, { maxShardBytes, type })
  if (quantizes) formatFor({ bits, groupSize, mode })
  const loaded = await loadShown({ model, adapters }, terminal, { dtype: dtype && DTYPES[dtype] })
  if (adapters !== undefined) fuseShown(loaded.network, { requantize }, terminal)
  const made = quantizes ? quantize(loaded, { bits, groupSize, mode }) : loaded
  const onProgress = progressBar(terminal, "writing")
  removingUnfinished(out, () => save(made, out, { maxShardBytes, type, onProgress }))
  terminal.out(`${out}\n`)
  terminal.err(`peak memory ${bytesText(mx.getPeakMemory())}\n`)
}
