// jax-js on its wasm device as a contestant: `jit` where that is what its users would write.
import * as jax from "@jax-js/jax"
import { numbers, serve } from "../dist/serve.js"

const { numpy: np, init, defaultDevice, jit, lax, nn, random, scipySpecial } = jax
await init("wasm")
defaultDevice("wasm")

const make = (shape) => np.array(numbers(shape.reduce((a, b) => a * b, 1))).reshape(shape)
/** Its functions consume their arguments, so each call is given references; results are waited for and freed. */
const on =
  (f, ...shapes) =>
  () => {
    const inputs = shapes.map(make)
    const g = jit(f)
    return async () => {
      const out = g(...inputs.map((x) => x.ref))
      await out.blockUntilReady()
      out.dispose()
    }
  }
const big = [4096, 4096]
const wide = [8, 1000, 1024]

await serve({
  "chain of 1,000 adds (16 elements)": () => {
    const y = np.ones([16])
    return async () => {
      let x = y.ref
      for (let i = 0; i < 1000; i++) x = x.add(y.ref)
      await x.blockUntilReady()
      x.dispose()
    }
  },
  "one add, one eval (16 elements)": on((x) => x.ref.add(x), [16]),
  "eight adds, one eval (16 elements)": on(
    (x) => {
      let y = x.ref
      for (let i = 0; i < 7; i++) y = y.add(x.ref)
      return y.add(x)
    },
    [16],
  ),
  "add 4096²": on((x, y) => x.add(y), big, big),
  "multiply 4096²": on((x, y) => x.mul(y), big, big),
  "axpby 4096²": on((x, y) => x.mul(4).add(y.mul(2)), big, big),
  "exp 8×1000×1024": on((x) => np.exp(x), wide),
  "erf 8×1000×1024": on((x) => scipySpecial.erf(x), wide),
  "tanh 8×1000×1024": on((x) => np.tanh(x), wide),
  "composed gelu 8×1000×1024": on(
    (x) => x.ref.mul(scipySpecial.erf(x.mul(Math.SQRT1_2)).add(1)).mul(0.5),
    wide,
  ),
  "sum 4096², axis 0": on((x) => x.sum(0), big),
  "sum 4096², axis 1": on((x) => x.sum(1), big),
  "sum 4096², all": on((x) => x.sum(), big),
  "max 4096², axis 1": on((x) => np.max(x, 1), big),
  "argmax 4096², axis 1": on((x) => np.argmax(x, 1), big),
  "var 4096², axis 1": on((x) => np.var_(x, 1), big),
  "softmax 4096²": on((x) => nn.softmax(x, -1), big),
  "logsumexp 4096²": on((x) => nn.logsumexp(x, -1), big),
  "matmul 64": on((x, y) => np.matmul(x, y), [64, 64], [64, 64]),
  "matmul 512": on((x, y) => np.matmul(x, y), [512, 512], [512, 512]),
  "matmul 1024": on((x, y) => np.matmul(x, y), [1024, 1024], [1024, 1024]),
  "matmul 2048": on((x, y) => np.matmul(x, y), [2048, 2048], [2048, 2048]),
  "matmul 1024, second transposed": on((x, y) => np.matmul(x, np.transpose(y)), [1024, 1024], [1024, 1024]),
  "matmul 64 × 128²": on((x, y) => np.matmul(x, y), [64, 128, 128], [64, 128, 128]),
  "attention 1×8×512×64": on(
    (q, k, v) => nn.dotProductAttention(q, k, v),
    ...[0, 1, 2].map(() => [1, 512, 8, 64]),
  ),
  "conv2d 8×64×64×32, 64 of 3×3": on(
    (x, w) => lax.conv(x, w, [1, 1], "SAME"),
    [8, 32, 64, 64],
    [64, 32, 3, 3],
  ),
  "sort 1e6": on((x) => np.sort(x), [1_000_000]),
  "argsort 1e6": on((x) => np.argsort(x), [1_000_000]),
  "random normal 1e7": () => {
    const key = random.key(1)
    return async () => {
      const out = random.normal(key.ref, [10_000_000])
      await out.blockUntilReady()
      out.dispose()
    }
  },
  "random uniform 1e7": () => {
    const key = random.key(1)
    return async () => {
      const out = random.uniform(key.ref, [10_000_000])
      await out.blockUntilReady()
      out.dispose()
    }
  },
})
