/** The cases of attention of one more token reach its kernel, on the test double as a Hopper GPU, and compute what the CPU does. */
import "../../packages/backend-cuda/test/double"
import "../../packages/backend-cuda/test/hopper"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { followPipelines, launchesInPlans } from "../../packages/backend-cuda/test/launches"
import { differenceOf, nativeApplications } from "./gpu-native"

const cases = [...nativeApplications()].filter(({ name }) => name.startsWith("a token of "))

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  followPipelines()
})

it("there are such cases", () => expect(cases.length).toBe(16))

it.each(cases)(
  "$name",
  (application) => {
    const launched = launchesInPlans(() => expect(differenceOf(application)).toBeNull())
    // Nothing turns, writes or attends by itself.
    expect(launched.filter((each) => each !== "map")).toEqual(["attend_token"])
  },
  240_000,
)
