/**
 * The CPU backend and the runtime on Metal.framework on the same memory, as on a Mac: the fake Metal is told the address where the other's
 * elements lie, in both directions, and nobody copies.
 */
import { type Storage, setBackend } from "@lazuli/core/engine"
import { mx } from "lazuli"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import "../../backend-metal/test/apple-backend"
import { fake } from "../../backend-metal/test/fake-metal"

const gpu = { stream: mx.gpu }
const storageOf = (x: mx.Array): Storage => x.node.storage as Storage
const address = (x: mx.Array): bigint => storageOf(x).memory.address?.(storageOf(x)) ?? 0n
// A block so large begins on a page of 16 KB here too, as on a Mac those from 16 KB on do.
const SIZE = 2 ** 20

beforeAll(() => setBackend("apple", "gpu"))
afterAll(() => setBackend(null, "gpu"))
beforeEach(() => {
  mx.resetBackendStats()
  fake.forgetMessages()
})

test("an array of the CPU is wrapped where it lies", () => {
  const x = mx.arange(SIZE).astype(mx.float32)
  mx.eval(x)
  const [before, lender] = [address(x), storageOf(x)]
  const y = mx.multiply(x, 2, gpu)
  mx.eval(y)
  expect([storageOf(x).memory.name, storageOf(x).lender, address(x)]).toEqual(["apple", lender, before])
  expect(fake.messages()["MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:"]).toBe(1)
  expect(y.index(SIZE - 1).item()).toBe(2 * (SIZE - 1))
})

test("an array of the GPU is read by the CPU where it lies", () => {
  const y = mx.full([SIZE], 3, gpu)
  mx.eval(y)
  const there = address(y)
  const z = mx.add(y, 1)
  mx.eval(z)
  expect([storageOf(y).memory.name, address(y), storageOf(z).memory.name]).toEqual(["cpu", there, "cpu"])
  expect(z.index(SIZE - 1).item()).toBe(4)
})

test("to and fro, nothing is copied and every value is right", () => {
  let x = mx.arange(SIZE).astype(mx.float32)
  mx.eval(x)
  for (let i = 0; i < 20; i++) {
    const [before, pointer] = [x, address(x)]
    x = i % 2 === 0 ? mx.add(x, 1, gpu) : mx.multiply(x, 2)
    mx.eval(x)
    expect([storageOf(before).copies, address(before)]).toEqual([null, pointer])
    expect(storageOf(before).memory.name).toBe(storageOf(x).memory.name)
  }
  // No kernel, blit or read of the host that moves elements from one memory to the other.
  expect(mx.backendStats()).toEqual({})
  const copies = Object.keys(fake.messages()).filter((name) =>
    /copyFromBuffer|newBufferWithBytes:/.test(name),
  )
  expect(copies).toEqual([])
  expect(x.index(0).item()).toBe(2046)
})
