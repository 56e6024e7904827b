// The comparison of MLX's documentation: axpby as one kernel against the plain composition, eager and compiled, at two sizes.
//   npm run build && npm run bench
// The fourth column divides the bytes that must move at least (x and y read, out written) by the time.
import { axpby } from "@lazuli/ext-axpby"
import { mx } from "lazuli"

const plain = (x, y, alpha, beta) => x.multiply(alpha).add(y.multiply(beta))

/** Seconds of a call, the best and the median of many; the contenders take turns, so that noise meets all of them. */
function race(contenders, rounds, repeat) {
  const times = contenders.map(() => [])
  for (let round = -2; round < rounds; round++) {
    contenders.forEach(([, f], i) => {
      const start = performance.now()
      for (let k = 0; k < repeat; k++) mx.eval(f())
      if (round >= 0) times[i].push((performance.now() - start) / repeat / 1000)
    })
  }
  return times.map((list) => list.sort((a, b) => a - b)).map((list) => [list[0], list[rounds >> 1]])
}

for (const [m, n, rounds, repeat] of [
  [256, 512, 200, 20],
  [4096, 4096, 30, 1],
]) {
  const x = mx.random.normal([m, n])
  const y = mx.random.normal([m, n])
  mx.eval(x, y)
  const compiled = (f) => mx.compile((a, b) => f(a, b, 4, 2))
  const [plainCompiled, customCompiled] = [compiled(plain), compiled(axpby)]
  const contenders = [
    ["plain, eager", () => plain(x, y, 4, 2)],
    ["axpby, eager", () => axpby(x, y, 4, 2)],
    ["plain, compiled", () => plainCompiled(x, y)],
    ["axpby, compiled", () => customCompiled(x, y)],
  ]
  const results = race(contenders, rounds, repeat)
  console.log(`\n${m} × ${n} float32`)
  console.table(
    Object.fromEntries(
      contenders.map(([name], i) => {
        const [best, median] = results[i]
        return [
          name,
          {
            "best µs": Number((best * 1e6).toPrecision(4)),
            "median µs": Number((median * 1e6).toPrecision(4)),
            "times plain eager": Number((results[0][0] / best).toPrecision(3)),
            "GB/s": Number(((3 * 4 * m * n) / best / 1e9).toPrecision(3)),
          },
        ]
      }),
    ),
  )
}
