// The umbrella: everything, with the default backend. What it re-exports lives in the packages named here.

import "@lazuli/backend-cpu/optional"
import "@lazuli/distributed"
import { preferMacGpu } from "./mac"

preferMacGpu(process)

export * as nn from "@lazuli/nn"
export * as optim from "@lazuli/nn/optimizers"
export * as mx from "./mx.js" // with its extension, because it stays an import: see tsup.config.ts
