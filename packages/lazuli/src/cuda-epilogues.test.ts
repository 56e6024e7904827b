/**
 * Layers on CUDA whose activation is the end of their product.
 */
import "../../backend-cuda/test/double"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { expect, it } from "vitest"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"

it("compute geluApprox with a linear layer, and gelu after it", () => {
  mx.setBackend("cuda", "gpu")
  const x = mx.random.normal([3, 12, 16])
  for (const [kernels, activation] of [
    [1, nn.geluApprox],
    [2, nn.gelu],
  ] as const)
    for (const bias of [true, false]) {
      const layer = new nn.Linear(16, 24, { bias })
      const f = (x: mx.Array): mx.Array => activation(layer.forward(x))
      const compiled = compile(f)
      const [eager, got] = mx.stream(mx.gpu, () => [f(x), compiled(x) as mx.Array])
      expect(mx.allclose(got, eager, 1e-5, 1e-6).item()).toBe(true)
      expect(mx.stream(mx.gpu, () => compiled.explain(x).kernels)).toBe(kernels)
    }
}, 60_000)
