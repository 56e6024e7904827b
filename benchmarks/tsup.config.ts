import { program } from "../tooling/tsup-preset"

export default program(
  "main",
  "lazuli",
  "native-time",
  "serve",
  "soak",
  "soak-one",
  "gpu-checks",
  "gpu-table",
  "collectives",
  "device-collectives",
  "overlap",
  "quantized",
  "lm",
  "lm-gpu",
  "lm-lazuli",
  "contention",
)
