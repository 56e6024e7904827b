/** The rows of gpu-table.ts: how each is run, and the bytes or operations that it needs at least. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { AdamW, type Optimizer, SGD } from "@lazuli/nn/optimizers"
import { vjp } from "@lazuli/transforms"
import { GPT_BATCH, GPT_LENGTH, GPT_WORDS, Gpt } from "./gpu-gpt"
import { gridSample, gridSampleGradient } from "./grid-sample"
import { pointCloudOperations } from "./point-clouds"

/** A row. */
export interface Row {
  readonly name: string
  readonly bytes?: number
  readonly flops?: number
  /** Operations of one call: the time is given for one of them, in µs. */
  readonly ops?: number
  /** Makes what is measured; inputs are made once. */
  make(): () => mx.Array | mx.Array[]
}

const N = 8192
const randn = (shape: number[], dtype: mx.Dtype = mx.float32): mx.Array => {
  const x = mx.random.normal(shape).astype(dtype)
  mx.eval(x)
  return x
}
const matrix = (n = N, dtype: mx.Dtype = mx.float32): mx.Array => randn([n, n], dtype)
const gelu = (x: mx.Array): mx.Array => x.multiply(mx.erf(x.multiply(Math.SQRT1_2)).add(1)).multiply(0.5)
const product = (name: string, n: number, dtype: mx.Dtype): Row => ({
  name,
  flops: 2 * n ** 3,
  make() {
    const [a, b] = [matrix(n, dtype), matrix(n, dtype)]
    return () => mx.matmul(a, b)
  },
})
const onMatrix = (name: string, bytes: number, f: (x: mx.Array) => mx.Array): Row => ({
  name,
  bytes: bytes * 4 * N * N,
  make() {
    const x = matrix()
    return () => f(x)
  },
})
const attention = (q: mx.Array, k: mx.Array, v: mx.Array): mx.Array =>
  mx.fast.scaledDotProductAttention(q, k, v, { scale: 128 ** -0.5, mask: "causal" })
/** Queries, keys, values and the gradient of the result. */
const attended = (): mx.Array[] => [0, 1, 2, 3].map(() => randn([4, 16, 4096, 128], mx.bfloat16))
/** The same operation on its own result, 16 elements. */
const chain =
  (length: number, next: (y: mx.Array, x: mx.Array) => mx.Array) =>
  (x: mx.Array): mx.Array => {
    let y = x
    for (let i = 0; i < length; i++) y = next(y, x)
    return y
  }

/** A training step whose state is captured. */
function step(
  model: nn.Module,
  optimizer: Optimizer,
  loss: (x: mx.Array, y: mx.Array) => mx.Array,
  x: mx.Array,
  y: mx.Array,
): () => mx.Array[] {
  const lossAndGradient = nn.valueAndGrad(model, loss)
  optimizer.init(model)
  const state = [model.state, optimizer.state]
  const f = compile(
    (a: mx.Array, b: mx.Array): mx.Array => {
      const [value, gradient] = lossAndGradient(a, b)
      optimizer.update(model, gradient)
      return value
    },
    { inputs: state, outputs: state, donate: true },
  )
  mx.eval(x, y, model.parameters())
  return () => {
    const value = f(x, y)
    mx.eval(value, state)
    return [value]
  }
}

class Mlp extends nn.Module {
  first = new nn.Linear(784, 256)
  second = new nn.Linear(256, 10)
  forward(x: mx.Array): mx.Array {
    return this.second.forward(nn.relu(this.first.forward(x)))
  }
}

/** Sizes of MLX's page on custom kernels. */
const IMAGES = [8, 1024, 1024, 64]
const POINTS = [8, 256, 256, 2]
const points = 8 * 256 * 256
const sampleBytes = 4 * points * (4 * 64 + 64 + 2)
const spread = (): mx.Array => {
  const grid = mx.random.uniform(-1, 1, POINTS)
  mx.eval(grid)
  return grid
}

/** Parameters, activations and the optimizer's state in one dtype. */
const gptStep = (name: string, dtype: mx.Dtype): Row => ({
  name: `GPT-2 small step, 8×1024, ${name}`,
  make() {
    const model = new Gpt()
    model.setDtype(dtype)
    const tokens = mx.random.randint(0, GPT_WORDS, [GPT_BATCH, GPT_LENGTH])
    const loss = (x: mx.Array, y: mx.Array): mx.Array => model.loss(x, y)
    return step(model, new AdamW({ learningRate: 1e-4 }), loss, tokens, tokens)
  },
})

export const rows: readonly Row[] = [
  onMatrix("copy 8192²", 2, (x) => x.add(0)),
  onMatrix("add 8192²", 3, (x) => x.add(x.transpose().transpose())),
  {
    name: "composed gelu 32×1000×4096",
    bytes: 2 * 4 * 32 * 1000 * 4096,
    make() {
      const x = randn([32, 1000, 4096])
      const f = compile(gelu)
      return () => f(x) as mx.Array
    },
  },
  onMatrix("sum 8192², all", 1, (x) => x.sum()),
  onMatrix("sum 8192², axis 0", 1, (x) => x.sum(0)),
  onMatrix("sum 8192², axis 1", 1, (x) => x.sum(1)),
  onMatrix("softmax 8192²", 2, (x) => mx.softmax(x, -1)),
  {
    name: "layer norm 8192²",
    bytes: 2 * 4 * N * N,
    make() {
      const [x, w, b] = [matrix(), mx.ones([N]), mx.zeros([N])]
      return () => mx.fast.layerNorm(x, w, b, 1e-5)
    },
  },
  onMatrix("cumsum 8192², axis 1", 2, (x) => mx.cumsum(x, 1)),
  {
    name: "sort 1e7",
    make() {
      const x = randn([1e7])
      return () => mx.sort(x)
    },
  },
  {
    name: "gather 1e6 rows of 64",
    bytes: 2 * 4 * 64e6,
    make() {
      const [x, i] = [randn([1e6, 64]), mx.random.randint(0, 1e6, [1e6])]
      mx.eval(i)
      return () => mx.take(x, i, 0)
    },
  },
  {
    name: "scatter-add 1e6 rows of 64",
    bytes: 3 * 4 * 64e6,
    make() {
      const [x, i] = [randn([1e6, 64]), mx.random.randint(0, 1e6, [1e6])]
      const zeros = mx.zeros([1e6, 64])
      mx.eval(i, zeros)
      return () => zeros.at(i).add(x)
    },
  },
  product("matmul 4096 f32", 4096, mx.float32),
  product("matmul 4096 bf16", 4096, mx.bfloat16),
  {
    name: "attention, causal, 4×16×4096×128 bf16",
    flops: 2 * 4 * 16 * 4096 ** 2 * 128,
    make() {
      const [q, k, v] = attended()
      return () => attention(q, k, v)
    },
  },
  {
    name: "attention, forward and backward",
    // Two products forward, five backward.
    flops: 7 * 4 * 16 * 4096 ** 2 * 128,
    make() {
      const f = compile((q: mx.Array, k: mx.Array, v: mx.Array, g: mx.Array) =>
        vjp(attention, [q, k, v], [g]).flat(),
      )
      const [q, k, v, g] = attended()
      return () => f(q, k, v, g)
    },
  },
  {
    name: "conv 32×56×56×64, 3×3, f32",
    flops: 2 * 32 * 56 * 56 * 64 * 64 * 9,
    make() {
      const [x, w] = [randn([32, 56, 56, 64]), randn([64, 3, 3, 64])]
      return () => mx.conv2d(x, w, 1, 1)
    },
  },
  {
    name: "grid_sample, forward",
    bytes: sampleBytes,
    make() {
      const [x, grid] = [randn(IMAGES), spread()]
      return () => gridSample(x, grid)
    },
  },
  {
    name: "grid_sample, forward and backward",
    make() {
      const [x, grid, g] = [randn(IMAGES), spread(), randn([8, 256, 256, 64])]
      return () => [gridSample(x, grid), ...gridSampleGradient(x, grid, g)]
    },
  },
  {
    name: "chain of 100 adds (16 elements)",
    ops: 100,
    make() {
      const [x, f] = [mx.ones([16]), chain(100, (y, z) => y.add(z))]
      return () => f(x)
    },
  },
  {
    name: "100 cumsums, compiled (16 elements)",
    ops: 100,
    make() {
      const [x, f] = [mx.ones([16]), compile(chain(100, (y) => mx.cumsum(y, 0)))]
      return () => f(x) as mx.Array
    },
  },
  {
    name: "one add, one eval (16 elements)",
    ops: 1,
    make() {
      const x = mx.ones([16])
      return () => x.add(x)
    },
  },
  {
    name: "MLP step (64, 784-256-10, SGD momentum), compiled",
    make() {
      const model = new Mlp()
      const loss = (x: mx.Array, y: mx.Array): mx.Array =>
        nn.losses.crossEntropy(model.forward(x), y, { reduction: "mean" })
      const optimizer = new SGD({ learningRate: 0.01, momentum: 0.9 })
      return step(model, optimizer, loss, randn([64, 784]), mx.random.randint(0, 10, [64]))
    },
  },
  gptStep("bf16", mx.bfloat16),
  gptStep("f32", mx.float32),
  // Those of @lazuli/ext-pointcloud, compiled as their compositions by torch.compile are.
  ...Object.entries(pointCloudOperations()).map(([name, { own, inputs }]) => ({
    name,
    make() {
      const given = inputs()
      mx.eval(given)
      const f = compile(own)
      return () => f(...given)
    },
  })),
]
