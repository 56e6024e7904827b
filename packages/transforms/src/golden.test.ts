/**
 * MLX's derivatives and batches, replayed on the reference backend: every function that exists must agree.
 */

import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { afterAll, describe, expect, test } from "vitest"
import { Missing, replay, transformCases } from "./golden-replay"

const families = (process.env.GOLDEN ?? "vjp,jvp,vmap,second_order").split(",")
const lines: string[] = []
const missing = new Set<string>()
const home = mx as unknown as Record<string, unknown>
const spaces = { core: mx, fast: home.fast, linalg: home.linalg, fft: home.fft, random: home.random, compile }

/** Cases on which we differ from MLX on purpose, with the reason. */
const deviations: readonly (readonly [ids: RegExp, reason: string])[] = [
  [/^vjp\/sqrt\/2$/, "MLX's sqrt leaves out the conjugate that its other complex derivatives have"],
  [/^second_order\/addmm\/2$/, "MLX's jvp of addmm leaves out alpha and beta"],
  [/^vjp\/pad\/1$/, "MLX's gradient of a symmetric pad leaves out the repeated row"],
  [
    /^vjp\/conv_general\/[02]$/,
    "MLX's gradient by the input of a convolution with asymmetric padding has another shape than the input",
  ],
  [/^vmap\/floor_divide\//, "integers round down here, and towards zero in MLX"],
  [/^\w+\/(arg)?partition\//, "the order within each side of a partition is free, and derivatives follow it"],
]

describe("golden vectors of transforms", () => {
  test.each(families)("%s", (family) => {
    const failures: string[] = []
    let passed = 0
    let absent = 0
    let deviating = 0
    for (const c of transformCases(family)) {
      try {
        const problem = replay(c, spaces)
        if (problem && deviations.some(([ids]) => ids.test(c.id))) deviating++
        else if (problem) failures.push(`${c.id} ${c.fn} ${(c.tags ?? []).join()}: ${problem}`)
        else passed++
      } catch (error) {
        if (!(error instanceof Missing)) throw error
        missing.add(error.message)
        absent++
      }
    }
    lines.push(
      `${family}: ${passed} passed, ${failures.length} failed, ${absent} missing, ${deviating} deviate`,
    )
    expect(failures).toEqual([])
  })
  afterAll(() => {
    console.log([...lines, `missing: ${[...missing].sort().join(" ") || "none"}`].join("\n"))
  })
})
