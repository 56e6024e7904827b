// The benchmark of a Mac's self-test: each row in Lazuli and, as Python, in MLX.

import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"

/** One row. */
export interface Row {
  readonly name: string
  readonly run: () => mx.Array
  /** Statements of Python, and the expression that is timed. */
  readonly setup: string
  readonly body: string
}

/** The rows, with sizes divided. */
export function benchmarkRows(scale: number): Row[] {
  const size = (n: number): number => Math.max(8, Math.floor(n / scale))
  const on = <T>(body: () => T): T => mx.stream(mx.gpu, body)
  const square = (n: number, dtype: mx.Dtype = mx.float32): mx.Array =>
    on(() => mx.random.normal([size(n), size(n)]).astype(dtype))
  const python = (n: number, dtype = "float32"): string =>
    `x = mx.random.normal((${size(n)}, ${size(n)})).astype(mx.${dtype}); mx.eval(x)`
  const x = square(4096)
  const bf16 = square(4096, mx.bfloat16)
  const line = on(() => mx.random.uniform(0, 1, [size(1_000_000)]))
  const heads = on(() => mx.random.normal([1, 8, size(2048), 64]).astype(mx.float16))
  const gelu = compile((v: mx.Array) => v.multiply(mx.erf(v.divide(Math.SQRT2)).add(1)).multiply(0.5))
  mx.eval(x, bf16, line, heads)
  const chain = (v: mx.Array): mx.Array => {
    let sum = v
    for (let i = 0; i < 100; i++) sum = sum.add(1)
    return sum
  }
  const few = on(() => mx.ones([16]))
  return [
    { name: "add 4096²", run: () => x.add(x), setup: python(4096), body: "x + x" },
    {
      name: "gelu 4096², compiled",
      run: () => gelu(x),
      setup: `${python(4096)}\ng = mx.compile(lambda v: v * (mx.erf(v / 2 ** 0.5) + 1) * 0.5)`,
      body: "g(x)",
    },
    { name: "sum 4096²", run: () => x.sum(), setup: python(4096), body: "x.sum()" },
    { name: "sum 4096², axis 0", run: () => x.sum(0), setup: python(4096), body: "x.sum(0)" },
    { name: "softmax 4096²", run: () => mx.softmax(x, -1), setup: python(4096), body: "mx.softmax(x, -1)" },
    { name: "matmul 4096² f32", run: () => x.matmul(x), setup: python(4096), body: "x @ x" },
    {
      name: "matmul 4096² bf16",
      run: () => bf16.matmul(bf16),
      setup: python(4096, "bfloat16"),
      body: "x @ x",
    },
    {
      name: "sort 1e6",
      run: () => mx.sort(line),
      setup: `x = mx.random.uniform(0, 1, (${size(1_000_000)},)); mx.eval(x)`,
      body: "mx.sort(x)",
    },
    {
      name: "attention 8×2048×64 f16",
      run: () => mx.fast.scaledDotProductAttention(heads, heads, heads, { scale: 0.125 }),
      setup: `x = mx.random.normal((1, 8, ${size(2048)}, 64)).astype(mx.float16); mx.eval(x)`,
      body: "mx.fast.scaled_dot_product_attention(x, x, x, scale=0.125)",
    },
    {
      name: "100 small additions",
      run: () => chain(few),
      setup:
        "x = mx.ones((16,)); mx.eval(x)\ndef chain(v):\n    for i in range(100):\n        v = v + 1\n    return v",
      body: "chain(x)",
    },
  ]
}
