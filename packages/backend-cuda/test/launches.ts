/**
 * Launches of plans, by the names of kernels.
 */
import { vi } from "vitest"
import { cudaRuntime } from "../src/index"

/** Codes of commands in a plan. */
const [PIPELINE, LAUNCH, LEFT_OUT] = [1, 5, 13]

/** Names of pipelines, by id. */
const names = new Map<number, string>()

/** Follows the pipelines made from now on. To be called before anything runs; `nameOf` makes their names from source and entry point. */
export function followPipelines(
  nameOf: (source: string, symbol: string) => string = (_, symbol) => symbol,
): void {
  const { newPipeline } = cudaRuntime
  vi.spyOn(cudaRuntime, "newPipeline").mockImplementation(function (this: typeof cudaRuntime, ...call) {
    const pipeline = newPipeline.apply(this, call)
    const { source } = call[0] as unknown as { source: string }
    names.set((pipeline as unknown as { id: number }).id, nameOf(source, call[1]))
    return pipeline
  })
}

/** The plans that `body` makes: kernels that they launch, and the number of copies that runs in place leave out. */
export function plansOf(body: () => void): { readonly launches: string[]; readonly leftOut: number }[] {
  const plans = vi.spyOn(cudaRuntime, "newPlan")
  try {
    body()
    return plans.mock.calls.map(([{ words, length }]) => {
      const launches: string[] = []
      let pipeline = 0
      let leftOut = 0
      for (let at = 0; at < length; at += words[at] >>> 8) {
        const command = words[at] & 0xff
        if (command === PIPELINE) pipeline = words[at + 1]
        if (command === LEFT_OUT) leftOut++
        if (command === LAUNCH) launches.push(names.get(pipeline) as string)
      }
      return { launches, leftOut }
    })
  } finally {
    plans.mockRestore()
  }
}

/** The kernels that plans launch which `body` makes. */
export const launchesInPlans = (body: () => void): string[] =>
  plansOf(body).flatMap(({ launches }) => launches)
