/** The applications reach the kernels written for CUDA in every form that does not need a library, Hopper, or a compiled function. */
import { kernelRequests } from "@lazuli/backend-cuda"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { nativeApplications } from "./gpu-native"

/** The values of each definition before a source, by the kernel's file. */
function formsOf(applications: Iterable<{ run(): mx.Array[] }>): Record<string, Record<string, string>> {
  const requests = kernelRequests(() =>
    mx.stream(mx.gpu, () => {
      for (const { run } of applications) mx.eval(run())
    }),
  )
  const found: Record<string, Record<string, Set<string>>> = {}
  for (const { source, name, options } of requests) {
    if (!options.isNative) continue
    const forms = (found[/PRODUCTS = 3/.test(source) ? `${name} by tiles` : name] ??= {})
    for (const [, key, value] of source
      .split("#define LZ_KERNELS")[0]
      .matchAll(/#define LZ_(\w+)(?: (\d+))?/g))
      (forms[key] ??= new Set()).add(value ?? "yes")
  }
  return Object.fromEntries(
    Object.entries(found).map(([file, forms]) => [
      file,
      Object.fromEntries(
        Object.entries(forms).map(([key, values]) => [key, [...values].toSorted().join(" ")]),
      ),
    ]),
  )
}

it("in every form", () => {
  expect(formsOf(nativeApplications())).toMatchInlineSnapshot(`
    {
      "attend": {
        "BRAIN": "yes",
        "CAUSAL": "0 1",
        "FEATURES": "128 16 64 80",
        "MASK": "0 1 2",
      },
      "attend by tiles": {
        "BRAIN": "yes",
        "CAUSAL": "0 1",
        "FEATURES": "128 16 64 72 80",
        "MODE": "0 1 2",
        "WIDE": "yes",
      },
      "attend_few": {
        "BRAIN": "yes",
        "CAUSAL": "0 1",
        "FEATURES": "128 256 64",
        "FETCH": "0 1",
        "MASK": "0 1",
        "PARTS": "0 1",
        "ROWS": "1 2 3 4 8",
        "WARPS": "16 4 8",
      },
      "attend_few_join": {
        "BRAIN": "yes",
        "CAUSAL": "0 1",
        "FEATURES": "128 256 64",
        "FETCH": "1",
        "MASK": "0 1",
        "PARTS": "1",
        "ROWS": "1 2 4 8",
        "WARPS": "16 8",
      },
      "few_rows": {
        "ADD": "0",
        "BITS": "4 8",
        "BLOCKS": "2",
        "BRAIN": "yes",
        "COUNT": "1 2 3 5 8",
        "EVEN": "0 1",
        "GROUP": "128 32 64",
        "PARTS": "1 2 3",
        "ROWS": "1 2 4",
        "TILES": "1 2",
        "WIDE": "yes",
      },
    }
  `)
}, 120_000)
