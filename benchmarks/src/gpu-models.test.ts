/** Checks of language models on GPUs, on the test double as a Hopper GPU. */
import "../../packages/backend-cuda/test/double"
import "../../packages/backend-cuda/test/hopper"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { modelChecks } from "./gpu-models"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

// Adapters of other models go on in tests of @lazuli/lm.
it.each(Object.keys(modelChecks).filter((name) => !/(?:resumed|learns)-(?!4)/.test(name)))(
  "%s",
  async (name) => {
    expect(await modelChecks[name]()).toBeNull()
  },
  600_000,
)
