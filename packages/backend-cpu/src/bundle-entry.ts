// For tests: the engine with this backend, to be bundled into one file.
import "./index"

export * as mx from "@lazuli/core"
