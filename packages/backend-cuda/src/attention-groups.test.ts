/**
 * Attention and its derivative by the kernel for products of groups of warps, and of up to 128 features by the one for all tensor cores, on
 * the test double: ragged sizes, grouped heads and widths agree with the reference.
 */
import "../test/hopper"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { beforeAll, expect, it, vi } from "vitest"
import { failing } from "../test/double"
import { wave } from "../test/waves"
import { cudaRuntime } from "./index"

beforeAll(() => mx.setBackend("cuda", "gpu"))

/** Words of the sources of the two kernels alone. */
const [GROUPS, TILES] = [`"warp-group.cuh"`, "PRODUCTS = 3"]

/** LZ_MODE of results, and of derivatives of queries, and of keys and values. */
const [ALL, DERIVATIVES] = [
  ["0", "1", "2"],
  ["1", "2"],
]

/** Results and derivatives of every input agree, and those of `modes` are by a kernel of such a text. */
function agree(
  text: string,
  [heads, keyHeads, queries, keys, features]: readonly number[],
  dtype: mx.Dtype,
  mask: "causal" | null,
  tolerance: number,
  modes = ALL,
): void {
  const q = (): mx.Array => wave([1, heads, queries, features], dtype, 0)
  const [k, v] = [1, 2].map((phase) => (): mx.Array => wave([1, keyHeads, keys, features], dtype, phase))
  const attend = (a: mx.Array, b: mx.Array, c: mx.Array): mx.Array =>
    mx.fast.scaledDotProductAttention(a, b, c, { scale: 0.3, mask })
  const loss = (a: mx.Array, b: mx.Array, c: mx.Array): mx.Array =>
    attend(a, b, c)
      .astype(mx.float32)
      .multiply(wave([1, heads, queries, features], mx.float32, 3))
      .sum()
  const run = (): Float32Array[] =>
    [attend(q(), k(), v()), ...(grad(loss, { argnums: [0, 1, 2] })(q(), k(), v()) as mx.Array[])].map(
      (each) => each.astype(mx.float32).toTypedArray() as Float32Array,
    )
  const asked = vi.spyOn(cudaRuntime, "newLibrary")
  const got = failing("no-engine", () => mx.stream(mx.gpu, run))
  const sources = asked.mock.calls.map(([source]) => source).filter((source) => source.includes(text))
  asked.mockRestore()
  expect(sources.map((source) => /#define LZ_MODE (\d)/.exec(source)?.[1]).sort()).toEqual(modes)
  const want = mx.stream(mx.cpu, run)
  got.forEach((each, at) => {
    const most = Math.max(...want[at].map(Math.abs))
    each.forEach((x, i) => {
      if (!(Math.abs(x - want[at][i]) <= tolerance * most)) expect([at, i, x]).toEqual([at, i, want[at][i]])
    })
  })
}

it("agrees in 16 bits for ragged sizes, both masks, shared heads and widths of one panel and two", () => {
  agree(GROUPS, [2, 1, 70, 140, 16], mx.bfloat16, "causal", 2e-2)
  // Results in groups have a multiple of 16 features.
  agree(GROUPS, [1, 1, 132, 9, 72], mx.float16, null, 4e-3, DERIVATIVES)
  agree(GROUPS, [1, 1, 10, 33, 128], mx.bfloat16, "causal", 2e-2)
}, 240_000)

it("agrees in float32 for 72 features", () => {
  agree(TILES, [1, 1, 17, 18, 72], mx.float32, "causal", 1e-5)
}, 120_000)
