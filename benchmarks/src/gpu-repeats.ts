/**
 * Commands that come again, eager loops and compiled functions, on small arrays that lie elsewhere each time: they run as CUDA's graphs,
 * whose arrays the kernel `stage` copies.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { type Application, toleranceOf, wave } from "./gpu-native"

/** Rounds of a loop: commands that came four times are a graph once `stage` is there, which is seen to at every 16th hand-over. */
const ROUNDS = 24

/** The result of the first round, and the sums of the others' differences to it. */
function loop(name: string, dtype: mx.Dtype, round: () => mx.Array): Application {
  const run = (): mx.Array[] => {
    const first = round()
    let far = mx.zeros([], mx.float32)
    for (let i = 1; i < ROUNDS; i++) {
      const again = round()
      mx.eval(again)
      far = far.add(again.subtract(first).astype(mx.float32).abs().sum())
      mx.eval(far)
      again.dispose()
    }
    return [first, far]
  }
  return { name, tolerance: toleranceOf(dtype), run }
}

/** Loops whose arrays fill the parts of memory that they have: as many launches as the host hands over at once, and fewer. */
export function* loops(): Generator<Application> {
  for (const [dtype, size] of [
    [mx.float32, 64],
    [mx.float16, 512],
    [mx.float32, 256],
  ] as const) {
    const x = (): mx.Array => wave([size], dtype, 1)
    yield loop(`chain of ${dtype.name}[${size}]`, dtype, () => {
      const given = x()
      let y = given
      for (let i = 0; i < 20; i++) y = i % 3 === 2 ? y.multiply(0.5) : y.add(given)
      return y
    })
  }
  yield loop("sums of more arrays than one launch copies", mx.float32, () => {
    const all = Array.from({ length: 40 }, (_, i) => wave([64], mx.float32, i))
    mx.eval(all)
    const sums = Array.from({ length: 24 }, (_, i) => mx.where(all[i].greater(0), all[i + 8], all[i + 16]))
    mx.eval(sums)
    return mx.stack(sums)
  })
  yield loop("chain of float32[64] and float32[5000]", mx.float32, () => {
    const small = wave([64], mx.float32, 1)
    let y = wave([5000], mx.float32, 2)
    for (let i = 0; i < 12; i++) y = y.multiply(small.index(i)).add(0.25)
    return y
  })
}

/** A compiled function of launches that do not fuse, on arrays whose bytes are no whole words too. */
export function* plans(): Generator<Application> {
  for (const dtype of [mx.uint8, mx.float32]) {
    const run = (): mx.Array[] => {
      const f = compile((x: mx.Array) => {
        let y = x
        for (let i = 0; i < 6; i++) y = mx.sort(mx.cumsum(y, 0))
        return y
      })
      // The second call records, the third runs that launch by launch, and those after it are graphs.
      return [0, 1, 2, 3, 4].map((call) => {
        const y = f(mx.arange(5).add(call).remainder(3).astype(dtype))
        mx.eval(y)
        return y
      })
    }
    yield { name: `plan of ${dtype.name}[5]`, tolerance: 0, run }
  }
}
