// For tests: the engine with this backend, to be bundled into one file.
import "../src/index"

export * as mx from "@lazuli/core"
