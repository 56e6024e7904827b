/**
 * Programs of the sizes that people run, for what chooses kernels by size: elementwise work and reductions over each dtype, products,
 * sorts, convolutions, attention and a training step. Only the kernels that they ask for count, not the values.
 */

import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { AdamW } from "@lazuli/nn/optimizers"

const FLOATS = [mx.float32, mx.float16, mx.bfloat16]
const REAL = [...FLOATS, mx.int32, mx.int64, mx.uint32, mx.uint8, mx.int8, mx.int16, mx.uint16, mx.uint64]
const ALL = [...REAL, mx.bool_, mx.complex64]

const run = (...made: mx.Array[]): void => mx.eval(made)

/** Casts, copies of each layout, arithmetic beside an array, a row and a number, comparisons and selections. */
function elementwise(): void {
  for (const dtype of ALL) {
    const x = mx.zeros([256, 512], dtype)
    const [row, column, odd] = [mx.zeros([512], dtype), mx.zeros([256, 1], dtype), mx.zeros([3, 5, 7], dtype)]
    for (const other of ALL) run(x.astype(other), odd.astype(other))
    run(
      x.transpose().add(0),
      mx.contiguous(x.transpose()),
      mx.contiguous(x.index(":", "::2")),
      x.reshape([-1]),
    )
    for (const f of [mx.add, mx.subtract, mx.multiply, mx.equal, mx.notEqual])
      run(f(x, x), f(x, row), f(x, column), f(x, 1), f(odd, odd), f(odd, 1), f(x.transpose(), x.transpose()))
    run(mx.where(mx.equal(x, 0), x, 0), mx.where(mx.equal(x, 0), x, x), mx.concatenate([x, x], 0))
  }
  for (const dtype of REAL) {
    const x = mx.zeros([256, 512], dtype)
    for (const f of [mx.maximum, mx.minimum, mx.greater, mx.less, mx.greaterEqual, mx.lessEqual, mx.divide])
      run(f(x, x), f(x, 1), f(x, mx.zeros([512], dtype)))
    run(mx.abs(x), mx.negative(x), mx.sign(x), mx.square(x), mx.clip(x, 0, 1), x.mod(3))
  }
  for (const dtype of FLOATS) {
    const x = mx.zeros([256, 512], dtype)
    for (const f of [
      ...[mx.exp, mx.expm1, mx.log, mx.log2, mx.log10, mx.log1p, mx.sqrt, mx.rsqrt, mx.reciprocal, mx.erf],
      ...[mx.erfinv, mx.sin, mx.cos, mx.tan, mx.arcsin, mx.arccos, mx.arctan, mx.sinh, mx.cosh, mx.tanh],
      ...[mx.arcsinh, mx.arccosh, mx.arctanh, mx.sigmoid, mx.floor, mx.ceil, mx.isnan, mx.isinf],
    ])
      run(f(x), f(x.transpose()))
    run(x.power(2), x.power(x), mx.arctan2(x, x), mx.logaddexp(x, x), mx.remainder(x, 2))
    for (const f of [nn.relu, nn.gelu, nn.geluApprox, nn.silu, nn.softplus]) run(f(x))
  }
}

/** Over all elements, and along each axis of arrays that are long, wide and both. */
function reductions(): void {
  for (const dtype of REAL)
    for (const shape of [[4096, 4096], [8, 65536], [65536, 8], [32, 64, 128], [100]]) {
      const x = mx.zeros(shape, dtype)
      for (const f of [mx.sum, mx.mean, mx.max, mx.min, mx.prod]) {
        run(f(x))
        for (let axis = 0; axis < shape.length; axis++) run(f(x, axis))
      }
      run(mx.argmax(x, -1), mx.argmin(x, 0), mx.any(x, 0), mx.all(x, -1), mx.cumsum(x, 0), mx.cumsum(x, -1))
      run(mx.sort(x, -1), mx.argsort(x, -1), mx.topk(x, 3, -1))
      if (dtype.kind === "floating") {
        run(mx.softmax(x, -1), mx.softmax(x, 0), mx.logsumexp(x, -1), mx.var(x, -1))
        const n = shape[shape.length - 1]
        run(mx.fast.layerNorm(x, mx.zeros([n], dtype), mx.zeros([n], dtype), 1e-5))
        run(mx.fast.rmsNorm(x, mx.zeros([n], dtype), 1e-5))
      }
    }
}

function products(): void {
  for (const dtype of FLOATS) {
    for (const [m, n, k] of [
      [512, 512, 512],
      [1, 4096, 4096],
      [64, 10, 784],
      [33, 65, 129],
      [4096, 1, 512],
    ]) {
      const [a, b] = [mx.zeros([m, k], dtype), mx.zeros([n, k], dtype)]
      run(
        a.matmul(b.transpose()),
        a.matmul(mx.zeros([k, n], dtype)),
        a.transpose().matmul(mx.zeros([m, n], dtype)),
      )
      run(mx.addmm(mx.zeros([n], dtype), a, b.transpose()))
    }
    run(mx.zeros([8, 64, 32], dtype).matmul(mx.zeros([8, 32, 64], dtype)))
    run(mx.conv2d(mx.zeros([4, 32, 32, 16], dtype), mx.zeros([32, 3, 3, 16], dtype), { padding: 1 }))
    const qkv = mx.zeros([2, 8, 512, 64], dtype)
    for (const mask of [undefined, "causal"] as const)
      run(mx.fast.scaledDotProductAttention(qkv, qkv, qkv, { scale: 0.125, ...(mask && { mask }) }))
    for (const bits of [4, 8]) {
      const [w, scales, biases] = mx.quantize(mx.zeros([512, 512], dtype), 64, bits)
      for (const rows of [1, 64])
        run(mx.quantizedMatmul(mx.zeros([rows, 512], dtype), w, scales, biases, true, 64, bits))
    }
    run(mx.take(mx.zeros([1000, 64], dtype), mx.zeros([100], mx.int32), 0))
    run(
      mx
        .zeros([1000, 64], dtype)
        .at(mx.zeros([100], mx.int32))
        .add(mx.zeros([100, 64], dtype)),
    )
    run(mx.random.normal([1000]).astype(dtype), mx.random.uniform(0, 1, [1000]).astype(dtype))
  }
}

/** A step of a small language model, with dropout and an optimizer. */
function training(): void {
  const model = new nn.Sequential(
    new nn.Embedding(1000, 64),
    new nn.TransformerEncoderLayer(64, 4),
    new nn.Linear(64, 1000),
  )
  const optimizer = new AdamW({ learningRate: 1e-3 })
  const words = mx.zeros([4, 32], mx.int32)
  const step = nn.valueAndGrad(model, (x: mx.Array) =>
    nn.losses.crossEntropy(model.forward(x) as mx.Array, x, { reduction: "mean" }),
  )
  for (let i = 0; i < 2; i++) {
    const [loss, gradients] = step(words)
    optimizer.update(model, gradients)
    mx.eval(loss, model.parameters(), optimizer.state)
  }
}

/** Each asks for the kernels of one kind of work. */
export const largePrograms: readonly (() => void)[] = [elementwise, reductions, products, training]
