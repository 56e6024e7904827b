/**
 * The backend on the Apple runtime, with the fake Metal under it: a part of the suite and of MLX's answers, eager and compiled. In full:
 * `npm run conformance -- --backend apple --through written,compile` and `npm run conformance:ops -- --suite --backend apple`.
 */
import { backendSuite, formatChecks } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { beforeAll, describe, expect, it } from "vitest"
import { appleBackend, appleRuntime } from "../test/apple-backend"
import { fake } from "../test/fake-metal"

const PART = {
  primitives: [
    "square",
    "add",
    "sum",
    "argmax",
    "softmax",
    "sort",
    "matmul",
    "gather",
    "cumsum",
    "concatenate",
  ],
  sizes: [33],
  dtypes: [mx.float32, mx.int32],
  fillings: ["as given"] as const,
  layouts: ["row-major", "transposed"] as const,
}

beforeAll(() => {
  mx.setBackend("apple", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

describe("the suite", () => {
  beforeAll(() => appleBackend.rehearse(() => backendSuite("apple", PART)), 120_000)
  it("agrees for a sample of primitives, in every layout", () => {
    const reports = backendSuite("apple", PART)
    expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
    expect(reports.length).toBeGreaterThan(5)
  }, 60_000)
})

describe("work", () => {
  it("of long chains is handed over while it is encoded", () => {
    fake.forgetMessages()
    let x = mx.zeros([100])
    for (let i = 0; i < 200; i++) x = x.add(i % 2 === 0 ? 3 : -1)
    expect(x.toTypedArray()[99]).toBe(200)
    expect(fake.messages()["MTLCommandBuffer commit"]).toBeGreaterThan(4)
  })
  it("that lacks memory, or fails, concerns its own arrays alone", () => {
    const y = mx.ones([3])
    mx.eval(y)
    const said = new Set<string>()
    // Every call of this work that may fail.
    for (let call = 1; call <= 5; call++) {
      const z = y.multiply(2)
      fake.failAt(call, 8)
      try {
        expect(z.tolist()).toEqual([2, 2, 2])
      } catch (error) {
        said.add((error as Error).message.replace(/^\[\w+\] /, ""))
        fake.failAt(0)
        // Work that was encoded has no value, for good; before that it can be tried again.
        if ((error as Error).message.includes("no memory for a buffer"))
          expect(z.add(1).tolist()).toEqual([3, 3, 3])
        else expect(() => z.add(1).tolist()).toThrow((error as Error).message)
      }
    }
    expect([...said].sort()).toMatchInlineSnapshot(`
      [
        "Metal gives no command buffer",
        "Metal gives no encoder",
        "no memory for a buffer of 4096 bytes",
        "the GPU has no memory for its work: the fake GPU was told to fail",
      ]
    `)
    fake.failAt(0)
    expect(y.multiply(3).tolist()).toEqual([3, 3, 3])
  })
  it("shares memory with the CPU where it begins at a page", () => {
    const [before, x] = [appleRuntime.info.name, mx.ones([1 << 16])]
    expect([before, new Float32Array(x.add(1).toTypedArray() as Float32Array)[5]]).toEqual(["Fake Metal", 2])
  })
})

describe("the device", () => {
  it("is described, captured, and told how much memory to keep", () => {
    expect(mx.deviceInfo(mx.gpu)).toMatchObject({
      deviceName: "Fake Metal",
      architecture: "fakegpu_g00",
      maxBufferLength: 2 ** 34,
    })
    fake.forgetMessages()
    const before = mx.setWiredLimit(2 ** 20)
    mx.eval(mx.ones([5000]).add(1))
    expect(fake.messages()["MTLResidencySet requestResidency"]).toBeGreaterThan(0)
    mx.setWiredLimit(before)
  })
})
