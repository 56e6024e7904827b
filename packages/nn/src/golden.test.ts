/**
 * MLX's answers, replayed on the reference backend: every function and layer that exists must agree in value, shape and dtype.
 */
import { afterAll, describe, expect, test } from "vitest"
import { goldenCases, Missing, replay } from "./golden-replay"

const families = (
  process.env.GOLDEN ??
  "losses,nn_functions,init,optimizers,schedulers,nn_layers,errors,vjp,jvp,vmap,second_order"
).split(",")
const missing = new Map<string, number>()
const lines: string[] = []

/** Cases on which we differ from MLX on purpose, with the reason. */
const deviations: Record<string, string> = {
  "init/init.normal/7": "bfloat16: one element in the tail; MLX's erfinv of bfloat16 is coarser there",
  "init/init.he_normal/3": "float16: one element in the tail; MLX's erfinv of float16 is coarser there",
  "nn_layers/ConvTranspose2d/4": "padding beyond the kernel: MLX's output is too small",
  "nn_layers/ConvTranspose3d/5": "padding beyond the kernel: MLX's output is too small",
  "nn_layers/Conv3d/5": "padding beyond the kernel: MLX's gradient has another shape than the input",
  "nn_layers/Step/1": "the loss is int32, of which grad says that it has no gradient",
}

describe("golden vectors", () => {
  for (const family of families) {
    test(family, () => {
      const failures: string[] = []
      let passed = 0
      let absent = 0
      let deviating = 0
      for (const c of goldenCases(family)) {
        try {
          const problem = replay(c)
          if (c.id in deviations) {
            if (problem === null) failures.push(`${c.id}: agrees, but is listed as a deviation`)
            deviating++
          } else if (problem) failures.push(`${c.id} ${c.fn}: ${problem}`)
          else passed++
        } catch (error) {
          if (!(error instanceof Missing)) throw error
          missing.set(error.message, (missing.get(error.message) ?? 0) + 1)
          absent++
        }
      }
      lines.push(
        `${family}: ${passed} passed, ${failures.length} failed, ${absent} missing, ${deviating} deviate`,
      )
      expect(failures).toEqual([])
    })
  }

  afterAll(() => {
    const names = [...missing].sort().map(([name, count]) => `${name} (${count})`)
    console.log([...lines, `missing: ${names.join(" ") || "nothing"}`].join("\n"))
  })
})
