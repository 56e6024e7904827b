/** Backends where what they need is missing. */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { connectBy, registerCommunicators } from "./backends"
import "./index"

test("nccl cannot be used without a backend of the GPU, and says what it needs", () => {
  expect(mx.distributed.isAvailable("nccl")).toBe(false)
  expect(() => connectBy("nccl", {} as never)).toThrow(
    '[init] the backend "nccl" cannot be used on this machine. It needs an NVIDIA GPU, NCCL, and an import of "@lazuli/backend-cuda"',
  )
})

test("a backend of others is asked whether it can be used, and what it gives is looked at", () => {
  const away = { name: "away", isAvailable: () => false, connect: () => null as never }
  registerCommunicators(away)
  expect(() => connectBy("away", {} as never)).toThrow(
    '[init] the backend "away" cannot be used on this machine',
  )
  registerCommunicators({ ...away, name: "empty", isAvailable: () => true })
  expect(() => connectBy("empty", {} as never)).toThrow(
    '[init] expected { backend, rank, size, run, split } of the backend "empty", received null',
  )
})

test("a backend that nobody brings is none, wherever it is named", () => {
  const reason = '[init] there is no backend "carrier pigeon". There are any, ring, shm, mpi, nccl'
  expect(() => connectBy("carrier pigeon", {} as never)).toThrow(reason)
})
