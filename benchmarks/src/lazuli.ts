/** Lazuli as a contestant: `node lazuli.js WORKLOAD eager|compiled|composition`. */
import { mx, nn, optim } from "lazuli"
import { decodingOf } from "./decoder"
import { type Contender, pointCloudRows } from "./point-clouds"
import { numbers, type Prepare, serve } from "./serve"

const contender = process.argv[3] as Contender
const compiled = contender === "compiled"
type Op = (...inputs: mx.Array[]) => mx.Array

const make = (shape: number[]): mx.Array => {
  const x = mx.array(numbers(shape.reduce((a, b) => a * b, 1))).reshape(shape)
  mx.eval(x)
  return x
}
/** Eager or compiled, and evaluated. */
const run =
  (f: Op, ...inputs: mx.Array[]): Prepare =>
  () => {
    const g = compiled ? mx.compile(f) : f
    return () => mx.eval(g(...inputs))
  }
const on =
  (f: Op, ...shapes: number[][]): Prepare =>
  () =>
    run(f, ...shapes.map(make))() as () => unknown

const big = [4096, 4096]
const wide = [8, 1000, 1024]
const gelu: Op = (x) => x.multiply(mx.erf(x.divide(Math.SQRT2)).add(1)).divide(2)

function chain(held: boolean): Prepare | undefined {
  if (compiled) return undefined
  return () => {
    const y = mx.ones([16])
    mx.eval(y)
    return () => {
      const kept: unknown[] = []
      let x = y
      for (let i = 0; i < 1000; i++) {
        x = x.add(y)
        if (held) kept.push(x)
      }
      mx.eval(x)
      return undefined
    }
  }
}

/** Some two milliseconds of JavaScript, such as reading a batch, between products that depend on each other. */
function beside(handOver: boolean): Prepare | undefined {
  if (compiled) return undefined
  return () => {
    const w = make([512, 512])
    const batch = numbers(1 << 20)
    return async () => {
      let x = w
      let total = 0
      for (let step = 0; step < 10; step++) {
        x = x.matmul(w)
        if (handOver) mx.asyncEval(x)
        else mx.eval(x)
        for (let i = 0; i < batch.length; i++) total += batch[i] * batch[i]
      }
      await mx.asyncEval(x)
      if (!(total > 0)) throw new Error("nothing was read")
    }
  }
}

const rows: Prepare = () => {
  const table = make([1_000_000, 64])
  const order = mx.random.permutation(1_000_000)
  mx.eval(order)
  return run((t, o) => t.take(o, 0), table, order)() as () => unknown
}
const scattered: Prepare = () => {
  const table = make([1_000_000, 64])
  const order = mx.random.permutation(1_000_000)
  const update = make([1_000_000, 64])
  mx.eval(order)
  return run((t, o, u) => t.at(o).add(u), table, order, update)() as () => unknown
}

/** One element of an array that nothing else needs. */
const oneElement: Prepare | undefined = compiled
  ? undefined
  : () => {
      const x = make(big)
      const y = x.add(0)
      mx.eval(y)
      let n = 0
      return () => {
        y.set([n++ % 4096, 7], 3)
        mx.eval(y)
      }
    }

/** A result that is put together block by block. */
const blocks: Prepare = () => {
  const block = make([2 ** 19])
  return run((b) => {
    const out = mx.zeros([16, 2 ** 19])
    for (let i = 0; i < 16; i++) out.set([i], b)
    return out
  }, block)() as () => unknown
}

/** A token of a language model, with a cache in the state and a position that moves. */
const decoding: Prepare = () => {
  const [width, heads, room] = [256, 8, 4096]
  const layers = Array.from({ length: 4 }, () => ({
    qkv: make([width, 3 * width]),
    out: make([width, width]),
    up: make([width, 4 * width]),
    down: make([4 * width, width]),
    keys: mx.zeros([1, heads, room, width / heads]).add(0),
    values: mx.zeros([1, heads, room, width / heads]).add(0),
  }))
  const embed = make([1000, width])
  mx.eval(layers, embed)
  const step = (token: mx.Array, position: mx.Array): mx.Array => {
    let x = embed.index(token).reshape([1, 1, width])
    const mask = mx.arange(room).lessEqual(position)
    const rope = (y: mx.Array): mx.Array =>
      mx.fast.rope(y, width / heads, { traditional: false, base: 10000, scale: 1, offset: position })
    for (const layer of layers) {
      const projected = mx.split(mx.fast.rmsNorm(x, null, 1e-5).matmul(layer.qkv), 3, -1)
      const [q, k, v] = projected.map((y) => y.reshape([1, 1, heads, -1]).swapaxes(1, 2))
      layer.keys = mx.sliceUpdate(layer.keys, rope(k), position.reshape([1]), [2])
      layer.values = mx.sliceUpdate(layer.values, v, position.reshape([1]), [2])
      const seen = mx.fast.scaledDotProductAttention(rope(q), layer.keys, layer.values, { scale: 0.18, mask })
      x = x.add(seen.swapaxes(1, 2).reshape([1, 1, width]).matmul(layer.out))
      x = x.add(nn.silu(mx.fast.rmsNorm(x, null, 1e-5).matmul(layer.up)).matmul(layer.down))
    }
    return x.matmul(embed.T).argmax().astype(mx.int32)
  }
  const f = compiled ? mx.compile(step, { inputs: layers, outputs: layers, donate: true }) : step
  let [token, n] = [mx.array(1, mx.int32), 0]
  return () => {
    token = f(token, mx.array(n++ % 200, mx.int32))
    mx.eval(token, layers)
  }
}

const int4: Prepare = () => {
  const x = make([1, 4096])
  const [w, scales, biases] = mx.quantize(make([4096, 4096]), 64, 4)
  mx.eval(w, scales, biases)
  return run(
    (a, b, s, z) => mx.quantizedMatmul(a, b, s, z, true, 64, 4),
    x,
    w,
    scales,
    biases as mx.Array,
  )() as () => unknown
}

const attention =
  (length: number, mask: "causal" | null): Prepare =>
  () => {
    const [q, k, v] = [0, 1, 2].map(() => make([1, 8, length, 64]))
    return run(
      (a, b, c) => mx.fast.scaledDotProductAttention(a, b, c, { scale: 0.125, mask }),
      q,
      k,
      v,
    )() as () => unknown
  }

/** A training step, whose state is captured where it is compiled. */
function step(
  model: nn.Module,
  optimizer: optim.Optimizer,
  loss: (x: mx.Array, y: mx.Array) => mx.Array,
  x: mx.Array,
  y: mx.Array,
): () => unknown {
  const lossAndGradient = nn.valueAndGrad(model, loss)
  optimizer.init(model)
  const eager = (a: mx.Array, b: mx.Array): mx.Array => {
    const [value, gradient] = lossAndGradient(a, b)
    optimizer.update(model, gradient)
    return value
  }
  const state = [model.state, optimizer.state]
  const f = compiled ? mx.compile(eager, { inputs: state, outputs: state, donate: true }) : eager
  mx.eval(x, y, model.parameters())
  return () => mx.eval(f(x, y), state)
}

const mlp = (batch: number, width: number, hidden: number, classes: number) => (): (() => unknown) => {
  class Mlp extends nn.Module {
    first = new nn.Linear(width, hidden)
    second = new nn.Linear(hidden, classes)
    forward(x: mx.Array): mx.Array {
      return this.second.forward(nn.relu(this.first.forward(x)))
    }
  }
  const model = new Mlp()
  const loss = (x: mx.Array, y: mx.Array) =>
    nn.losses.crossEntropy(model.forward(x), y, { reduction: "mean" })
  return step(
    model,
    new optim.SGD({ learningRate: 0.01, momentum: 0.9 }),
    loss,
    make([batch, width]),
    mx.random.randint(0, classes, [batch]),
  )
}

/** A transformer, its loss, and a batch. */
function smallTransformer() {
  class Model extends nn.Module {
    tokens = new nn.Embedding(256, 128)
    positions = new nn.Embedding(64, 128)
    body = new nn.TransformerEncoder(4, 128, 4, { mlpDims: 512, normFirst: true })
    head = new nn.Linear(128, 256)
    forward(ids: mx.Array): mx.Array {
      const mask = nn.MultiHeadAttention.createAdditiveCausalMask(64)
      const x = this.tokens.forward(ids).add(this.positions.forward(mx.arange(64)))
      return this.head.forward(this.body.forward(x, mask))
    }
  }
  const model = new Model()
  const loss = (x: mx.Array, y: mx.Array) =>
    nn.losses.crossEntropy(model.forward(x), y, { reduction: "mean" })
  const ids = () => mx.random.randint(0, 256, [16, 64])
  return { model, loss, x: ids(), y: ids() }
}

const transformer: Prepare = () => {
  const { model, loss, x, y } = smallTransformer()
  return step(model, new optim.AdamW({ learningRate: 1e-3 }), loss, x, y)
}

/**
 * The graph alone of the loss and of all its gradients, in ms; it is evaluated off the clock, since graphs that pile up evaluate
 * themselves.
 */
const gradientGraph: Prepare | undefined = compiled
  ? undefined
  : () => {
      const { model, loss, x, y } = smallTransformer()
      mx.eval(x, y, model.parameters())
      const lossAndGradient = nn.valueAndGrad(model, loss)
      return () => {
        const start = performance.now()
        const results = lossAndGradient(x, y)
        const taken = performance.now() - start
        mx.eval(results)
        return taken
      }
    }

/** The most resident memory seen in 100,000 steps that make a 1 MB array each, without dispose; in MB. */
const memory: Prepare | undefined = compiled
  ? undefined
  : () => {
      const x = mx.zeros([512, 512])
      return () => {
        let peak = 0
        for (let i = 0; i < 100_000; i++) {
          mx.eval(x.add(i))
          if (i % 100 === 0) peak = Math.max(peak, process.memoryUsage.rss())
        }
        return peak / 2 ** 20
      }
    }

const cast =
  (f: Op, dtype: mx.Dtype, ...shapes: number[][]): Prepare =>
  () => {
    const inputs = shapes.map((shape) => make(shape).astype(dtype))
    mx.eval(inputs)
    return run(f, ...inputs)() as () => unknown
  }

const ownRows: Record<string, Prepare | undefined> = {
  "chain of 1,000 adds (16 elements)": chain(false),
  "chain of 1,000 adds (16 elements), handles held": chain(true),
  "one add, one eval (16 elements)": on((x) => x.add(x), [16]),
  "eight adds, one eval (16 elements)": on(
    (x) => {
      let y = x
      for (let i = 0; i < 8; i++) y = y.add(x)
      return y
    },
    [16],
  ),
  "add 4096²": on((x, y) => x.add(y), big, big),
  "multiply 4096²": on((x, y) => x.multiply(y), big, big),
  "copy 4096²": compiled ? undefined : on((x) => x.add(0), big),
  "axpby 4096²": on((x, y) => x.multiply(4).add(y.multiply(2)), big, big),
  "exp 8×1000×1024": on((x) => x.exp(), wide),
  "erf 8×1000×1024": on((x) => mx.erf(x), wide),
  "tanh 8×1000×1024": on((x) => x.tanh(), wide),
  "gelu 8×1000×1024": on((x) => nn.gelu(x), wide),
  "composed gelu 8×1000×1024": on(gelu, wide),
  "composed gelu 32×1000×4096": on(gelu, [32, 1000, 4096]),
  "sum 4096², axis 0": on((x) => x.sum(0), big),
  "sum 4096², axis 1": on((x) => x.sum(1), big),
  "sum 4096², all": on((x) => x.sum(), big),
  "max 4096², axis 1": on((x) => x.max(1), big),
  "argmax 4096², axis 1": on((x) => x.argmax(1), big),
  "var 4096², axis 1": on((x) => x.var(1), big),
  "softmax 4096²": on((x) => x.softmax(-1), big),
  "logsumexp 4096²": on((x) => x.logsumexp(-1), big),
  "layerNorm 4096×1024": on((x, w, b) => mx.fast.layerNorm(x, w, b, 1e-5), [4096, 1024], [1024], [1024]),
  "rmsNorm 4096×1024": on((x, w) => mx.fast.rmsNorm(x, w, 1e-5), [4096, 1024], [1024]),
  "matmul 64": on((x, y) => x.matmul(y), [64, 64], [64, 64]),
  "matmul 512": on((x, y) => x.matmul(y), [512, 512], [512, 512]),
  "matmul 1024": on((x, y) => x.matmul(y), [1024, 1024], [1024, 1024]),
  "matmul 2048": on((x, y) => x.matmul(y), [2048, 2048], [2048, 2048]),
  "matmul 1024, second transposed": on((x, y) => x.matmul(y.T), [1024, 1024], [1024, 1024]),
  "matmul 64 × 128²": on((x, y) => x.matmul(y), [64, 128, 128], [64, 128, 128]),
  "matmul 1×4096×4096, bfloat16": cast((x, y) => x.matmul(y.T), mx.bfloat16, [1, 4096], [4096, 4096]),
  "matmul 1×4096×4096, int4": int4,
  "matmul 8×4096×4096, bfloat16": cast((x, y) => x.matmul(y), mx.bfloat16, [8, 4096], [4096, 4096]),
  "attention 1×8×1×64 of 4096, bfloat16": cast(
    (q, k, v) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.125 }),
    mx.bfloat16,
    [1, 8, 1, 64],
    [1, 8, 4096, 64],
    [1, 8, 4096, 64],
  ),
  "attention 1×8×512×64": attention(512, null),
  "attention 1×8×4096×64, causal": attention(4096, "causal"),
  "conv2d 8×64×64×32, 64 of 3×3": on((x, w) => mx.conv2d(x, w, 1, 1), [8, 64, 64, 32], [64, 3, 3, 32]),
  "conv2d 8×56×56×256, 64 of 1×1": on((x, w) => mx.conv2d(x, w), [8, 56, 56, 256], [64, 1, 1, 256]),
  "conv2d 8×56×56×96, depthwise 7×7": on(
    (x, w) => mx.conv2d(x, w, 1, 3, 1, 96),
    [8, 56, 56, 96],
    [96, 7, 7, 1],
  ),
  "sort 1e6": on((x) => mx.sort(x), [1e6]),
  "argsort 1e6": on((x) => mx.argsort(x), [1e6]),
  "cumsum 1e7": on((x) => x.cumsum(0), [1e7]),
  "gather 1e6 rows of 64": rows,
  "scatter-add 1e6 rows of 64": scattered,
  "set one element of 4096²": oneElement,
  "16 updates of blocks of 32 MB": blocks,
  "decode a token (4 layers, 256 wide, room for 4096)": decoding,
  "decode a token (15 layers, 32 wide), 780 nodes": () =>
    decodingOf({ words: 64, layers: 15, width: 32, heads: 4, inner: 64, room: 64 }, compiled),
  "random normal 1e7": on((k) => mx.random.normal({ shape: [1e7], key: k.astype(mx.uint32) }), [2]),
  "random uniform 1e7": on((k) => mx.random.uniform({ shape: [1e7], key: k.astype(mx.uint32) }), [2]),
  "MLP step (64, 784-256-10, SGD momentum)": mlp(64, 784, 256, 10),
  "MLP step (4, 16-16-4, SGD momentum)": mlp(4, 16, 16, 4),
  "transformer step (4 layers, 128 wide, 16×64, AdamW)": transformer,
  "transformer, 4 layers: graph of the loss and its gradients": gradientGraph,
  "10 products of 512 and JavaScript in turn": beside(false),
  "10 products of 512 and JavaScript at once, by asyncEval": beside(true),
  "synchronous loop, 100,000 × 1 MB: peak resident memory": memory,
}

await serve({ ...(contender === "composition" ? {} : ownRows), ...pointCloudRows(contender) })
