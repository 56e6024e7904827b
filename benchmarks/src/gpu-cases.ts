/**
 * The cases of `npm run test:gpu` one by one, for what cannot run all of them or wants to know which one it is at: the suite of backends at
 * one size, MLX's golden vectors, what reaches the kernels written for CUDA, commands that come again, and random programs.
 */
import { backendSuite, goldenFamilies, replayGolden } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { goldenSpaces } from "../../tooling/golden-spaces"
import { nnSamples, UNREACHABLE } from "../../tooling/nn-samples"
import { type Application, differenceOf, nativeApplications } from "./gpu-native"
import { problemOf } from "./gpu-programs"
import { loops, plans } from "./gpu-repeats"

/** One size, in the dtypes and layouts that have kernels of their own. */
export const SMALL = {
  sizes: [33],
  dtypes: [mx.float32, mx.bfloat16],
  fillings: ["as given"],
  layouts: ["row-major", "transposed"],
} as const

/** The primitives that the suite reaches: kernels that users write have tests of their own. */
export const suitePrimitives = (): string[] =>
  mx
    .listPrimitives()
    .map(({ name }) => name)
    .filter((name) => !Object.hasOwn(UNREACHABLE, name) && !name.startsWith("@lazuli/gpu-kernels/"))

/**
 * Runs the cases that `only` takes, which is asked of each before it runs, always in the same order. Tells what is wrong by case, of the
 * suite the first failure of a primitive.
 */
export function runCases(
  only: (name: string) => boolean,
  programs: number,
  tell: (problem: string) => void,
): void {
  const attempt = (name: string, body: () => string | null): void => {
    let problem: string | null
    try {
      problem = body()
    } catch (error) {
      problem = (error as Error).stack ?? String(error)
    }
    if (problem) tell(`${name}: ${problem}`)
  }
  const compare = (kind: string, applications: Iterable<Application>): void => {
    for (const application of applications) {
      const name = `${kind} ${application.name}`
      if (only(name)) attempt(name, () => differenceOf(application))
    }
  }
  compare("native", nativeApplications())
  compare("native", plans())
  compare("loop", loops())
  for (const family of goldenFamilies())
    attempt(`golden ${family}`, () => {
      const test = (id: string): boolean => only(`golden ${id}`)
      const [{ failed }] = replayGolden({
        spaces: goldenSpaces,
        backend: "cuda",
        families: [family],
        only: { test },
      })
      return failed.map(({ id, problem }) => `${id}: ${problem}`).join("\n")
    })
  mx.setDefaultDevice(mx.cpu)
  attempt("suite", () => {
    const test = (what: string): boolean => only(`suite ${what}`)
    const reports = backendSuite("cuda", {
      ...SMALL,
      primitives: suitePrimitives(),
      samples: nnSamples,
      only: { test },
    })
    return reports
      .flatMap(({ primitive, results }) => results.map((result) => ({ primitive, ...result })))
      .filter(({ status }) => status === "failed")
      .map(({ primitive, reason }) => `${primitive}: ${reason}`)
      .join("\n")
  })
  for (let seed = 0; seed < programs; seed++)
    if (only(`program ${seed}`)) attempt(`program ${seed}`, () => problemOf(seed))
}
