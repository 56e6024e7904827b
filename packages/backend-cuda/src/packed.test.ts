/**
 * The driver alone, on the test double: kernels that were compiled ahead run, fused work runs in parts, what was not compiled ahead runs by
 * the reference, all of it visibly; users' kernels say what they want.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { compile } from "@lazuli/compile"
import { replayGolden } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeAll, expect, it, vi } from "vitest"
import { failing } from "../test/double"
import { compilerStats, openCompiler } from "./compiler"
import { cudaRuntime, kernelRequests, packKernels } from "./index"
import { cudaNative } from "./native"

const folder = mkdtempSync(join(tmpdir(), "lazuli-packed-"))
const x = (): mx.Array => mx.arange(12).astype(mx.float32).reshape([3, 4])
const programs = {
  square: () => mx.square(x()),
  strided: () => mx.square(x().transpose()),
  sum: () => x().add(1).sum(1),
  product: () => x().matmul(x().transpose()),
}

beforeAll(async () => {
  mx.setBackend("cuda", "gpu")
  vi.stubEnv("LAZULI_CACHE_DIR", join(folder, "cache"))
  vi.stubEnv("LAZULI_CUDA_PTX", join(folder, "ptx"))
  const requests = kernelRequests(() =>
    mx.stream(mx.gpu, () => {
      for (const program of Object.values(programs)) mx.eval(program())
    }),
  )
  const native = cudaNative()
  openCompiler(native)
  const packed = await packKernels(requests, join(folder, "ptx"), {
    compile: (...given) => native.compileLater(...given),
  })
  expect(packed.refused).toEqual([])
  expect(packed.kernels).toBeGreaterThan(4)
  const index = JSON.parse(readFileSync(join(folder, "ptx", "index.json"), "utf8"))
  expect(Object.keys(index.kernels)).toHaveLength(packed.kernels)
}, 120_000)
afterAll(() => {
  vi.unstubAllEnvs()
  rmSync(folder, { recursive: true })
})

/** The same on both devices, and what ran without a kernel. */
function both(body: () => mx.Array): Record<string, unknown> {
  mx.resetBackendStats()
  expect(mx.stream(mx.gpu, body).tolist()).toEqual(mx.stream(mx.cpu, body).tolist())
  return mx.backendStats().cuda ?? {}
}

it("what was compiled ahead runs", () => {
  vi.stubEnv("LAZULI_CUDA_WITHOUT", "nvrtc, cublasLt, cudnn")
  for (const [name, program] of Object.entries(programs)) expect([name, both(program)]).toEqual([name, {}])
  expect(compilerStats).toMatchObject({ compiled: 0, fromDisk: 0 })
  expect(compilerStats.packed).toBeGreaterThan(4)
})
it("what was not runs by the reference implementation or in parts, and is counted", () => {
  expect(both(() => mx.sort(x(), 0))).toEqual({ sort: { decomposed: 0, reference: 1 } })
  const f = compile((a: mx.Array) => mx.square(a).sum(1))
  expect(both(() => f(x().add(1)) as mx.Array)).toMatchInlineSnapshot(`
    {
      "@lazuli/compile/program": {
        "decomposed": 1,
        "reference": 0,
      },
    }
  `)
  expect(cudaRuntime.limited).toBe(true)
})
it("copies run by the processor, and are counted", () => {
  const borrowed = (copy: number) => ({ copy: { decomposed: 0, reference: 0, borrowed: copy } })
  expect(both(() => x().transpose().reshape([2, 6]))).toEqual(borrowed(1))
  expect(both(() => x().index("::2", "::-1").reshape([8]))).toEqual(borrowed(1))
})
it("a copy of what has no value has none", () => {
  const [lost, read] = mx.stream(mx.gpu, () => {
    const made = mx.square(x())
    return [made, made.transpose().reshape([12])]
  })
  expect(() => failing("launch", () => mx.eval(lost))).toThrow("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
  expect(() => read.tolist()).toThrow("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
})
it("what a package brings in CUDA runs by its decomposition", () => {
  const library = join(folder, "kernels.cu")
  writeFileSync(library, 'extern "C" __global__ void doubled(const float* x, float* y) {}')
  const op = definePrimitive({
    name: "@me/packed/doubled",
    api: 1,
    infer: ([a]) => a,
    decompose: ([a]) => a.add(a),
  })
  const launch = () => ({
    dispatches: [{ kernel: "doubled", arguments: ["x", "y"], grid: [1], threadgroup: [1] }],
  })
  provideKernels({
    form: "cuda",
    package: "@me/packed",
    library,
    kernels: { "@me/packed/doubled": { inputNames: ["x"], outputNames: ["y"], launch } as never },
  })
  expect(both(() => op([x()]))).toMatchObject({ "@me/packed/doubled": { decomposed: 1 } })
})
it("MLX's recorded cases agree, whatever has no kernel", () => {
  const families = ["shape"]
  const failed = replayGolden({ spaces: { core: mx }, backend: "cuda", families }).flatMap(
    (each) => each.failed,
  )
  expect(failed).toEqual([])
}, 60_000)
