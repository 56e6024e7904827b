/** Two or more ranks add up an array: lazily, under transforms, in a compiled function. Prints one line of JSON. */
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import { grad, jvp, vmap } from "@lazuli/transforms"

// Without the kernels of the addon.
if (process.env.REFERENCE === process.env.LAZULI_RANK) mx.setBackend("reference", "cpu")
const group = mx.distributed.init(true)
const rank = group.rank()
const x = mx.array([1, 2, 3]).multiply(rank + 1)
const sum = (a: mx.Array): mx.Array => mx.distributed.allSum(a, { group })
const lazy = sum(x)
const compiled = compile((a: mx.Array) => sum(a.square()).add(1))
const large = sum(mx.ones([1_000_003]).multiply(rank + 1))
await mx.asyncEval(large)
console.log(
  JSON.stringify({
    size: group.size(),
    sum: lazy.tolist(),
    grad: grad((a: mx.Array) => sum(a).square().sum())(x).tolist(),
    jvp: jvp(sum, [x], [mx.ones([3])])[1][0].tolist(),
    vmap: vmap(sum)(x.reshape([3, 1])).tolist(),
    compiled: [compiled(x).tolist(), compiled(x).tolist()],
    large: [large.min().item(), large.max().item()],
    stats: mx.backendStats().cpu ?? {},
  }),
)
