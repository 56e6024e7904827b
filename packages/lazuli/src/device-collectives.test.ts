/** Collectives of GPUs by NCCL, on the doubles of it and of the driver. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { beforeAll, expect, it, onTestFinished } from "vitest"
import { bundle } from "../../../tooling/source-bundle.mjs"
import "../../backend-cuda/test/double"
import { runJob } from "../../distributed/test/run-job"
import { expectTrained } from "../../distributed/test/trained"

const bundled = (name: string): Promise<string> =>
  bundle(fileURLToPath(new URL(`../test/${name}.ts`, import.meta.url)))
let program = ""
beforeAll(async () => {
  program = await bundled("device-collectives")
}, 60_000)

const env = { LAZULI_CUDA_DOUBLE: "two-devices" }

it("every collective, on two GPUs, strided, empty, under transforms and in graphs", async () => {
  const { code, out, errors } = await runJob([program], 2, { env, timeLimit: 20 })
  expect(code, [...out, ...errors].flat().join("\n")).toBe(0)
  // NCCL loses NaN among the larger elements, and has no booleans.
  const borrowed = ["@lazuli/distributed/allReduce", "@lazuli/distributed/barrier"]
  for (const [line] of out) {
    const told = JSON.parse(line) as { wrong: string[]; borrowed: string[] }
    expect(told.wrong).toEqual([])
    expect(told.borrowed.filter((name) => name.startsWith("@lazuli/distributed/"))).toEqual(borrowed)
  }
}, 120_000)

it("two GPUs train as one does, however the model is spread", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-trained-"))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const { code, out, errors } = await runJob([await bundled("device-training")], 2, {
    env: { ...env, CHECKPOINT: folder },
    backend: "nccl",
    timeLimit: 20,
  })
  expect(code, errors.flat().join("\n")).toBe(0)
  expectTrained(out, folder)
}, 120_000)

it.each([
  ["kill", "at once"],
  ["stop", "at once"],
  ["part", "at once"],
  ["groups", "at once"],
  ["kill", "loading"],
  ["stop", "loading"],
  ["stop", "again"],
  ["kill", "uploading"],
  ["stop", "uploading"],
  ["kill", "promised"],
  ["stop", "promised"],
  ["part", "promised"],
  ["part", "compiled"],
  ["order", "compiled"],
])(
  "a rank that fails (%s) ends the others' work, with its name (%s)",
  async (fault, when) => {
    const loading = { LAZULI_CUDA_DOUBLE: `${env.LAZULI_CUDA_DOUBLE},loading` }
    const stop = AbortSignal.timeout(40_000)
    const { code, out, errors } = await runJob([program, fault, when], 2, {
      env: loading,
      timeLimit: 1,
      signal: stop,
    })
    expect(code).not.toBe(0)
    const told = JSON.parse(out[0][0] ?? "{}")
    expect(told, errors.flat().join("\n")).toMatchObject({ name: "DistributedError", op: "allSum" })
    // Of two that are at different operations either may be the first to say so.
    if (fault === "kill" || fault === "stop") expect(told.rank).toBe(1)
    expect(told.took).toBeLessThan(4000)
    // Those that follow fail as it did.
    expect(told.next).toEqual(["DistributedError", "allMax"])
  },
  60_000,
)

it("ranks that wait for each other in a circle of three groups end with an error, with the name of one of them", async () => {
  const { code, out, errors } = await runJob([program, "circle", "at once"], 4, { env, timeLimit: 1 })
  expect(code).not.toBe(0)
  for (const [line] of out) {
    const told = JSON.parse(line ?? "{}")
    expect(told, errors.flat().join("\n")).toMatchObject({ name: "DistributedError", op: "allSum" })
    expect(told.message).toMatch(/rank [0-2] and rank [0-2] wait for each other's devices/)
    expect(told.took).toBeLessThan(2000)
  }
}, 60_000)

it.each(["at once", "promised"])(
  "a rank that leaves is not blamed for long work behind a collective that is done (%s)",
  async (when) => {
    const { code, out, errors } = await runJob([program, "leave", when], 2, { env, timeLimit: 1 })
    expect(code, [...out, ...errors].flat().join("\n")).toBe(0)
  },
  60_000,
)

it.each([
  ["dtype", "at once"],
  ["dtype", "promised"],
  ["dtype", "compiled"],
  ["shape", "at once"],
  ["root", "at once"],
])(
  "a difference in %s, of which the library makes something, ends with an error before there are values (%s)",
  async (fault, when) => {
    const { code, out, errors } = await runJob([program, fault, when], 2, { env, timeLimit: 5 })
    expect(code).toBe(3)
    for (const [line] of out) {
      const { name, message, took, steps } = JSON.parse(line ?? "{}")
      expect(name, errors.flat().join("\n")).toBe("DistributedError")
      expect(steps).toBe(3)
      expect(message).toMatch(/rank [01] (and rank [01] differ in operation \d+|is at operation \d+)/)
      expect(took).toBeLessThan(2000)
    }
  },
  60_000,
)

it.each(["kill", "stop"])(
  "a rank that fails (%s) while the library connects the GPUs ends the others' waiting",
  async (fault) => {
    const { code, out, errors } = await runJob([program, fault, "joining"], 2, { env, timeLimit: 1 })
    expect(code).not.toBe(0)
    const told = JSON.parse(out[0][0] ?? "{}")
    expect(told, errors.flat().join("\n")).toMatchObject({ name: "DistributedError", rank: 1, op: "init" })
    expect(told.took).toBeLessThan(8000)
  },
  60_000,
)
