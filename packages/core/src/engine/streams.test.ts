import { describe, expect, test } from "vitest"
import * as mx from "../index"

describe("streams", () => {
  test("a stream holds for a body, or until it is disposed", () => {
    const before = mx.defaultStream(mx.cpu)
    const s = mx.newStream(mx.cpu)
    expect(mx.stream(s, () => mx.ones([2]).add(1)).node.stream).toBe(s)
    expect(mx.ones([2]).node.stream).toBe(before)
    {
      using _ = mx.stream(s)
      expect(mx.ones([2]).node.stream).toBe(s)
    }
    expect(mx.ones([2]).node.stream).toBe(before)
    expect(() =>
      mx.stream(s, () => {
        throw new Error("no")
      }),
    ).toThrow("no")
    expect(mx.ones([2]).node.stream).toBe(before)
  })

  test("results do not depend on the streams of what they are made of", () => {
    const [s, t] = [mx.newStream(mx.cpu), mx.newThreadLocalStream(mx.cpu)]
    const a = mx.add(mx.ones([2]), 1, { stream: s })
    const b = mx.multiply(a, 3, { stream: t })
    const c = mx.subtract(b, a, { stream: mx.newThreadUnsafeStream("cpu") })
    mx.synchronize(s)
    expect(c.tolist()).toEqual([4, 4])
    expect(b.node.stream).toBe(t.stream)
  })

  test("defaults, and starting anew", () => {
    const s = mx.newThreadLocalStream(mx.cpu)
    mx.setDefaultStream(s)
    expect(mx.ones([1]).node.stream).toBe(s.stream)
    mx.clearStreams()
    expect(mx.ones([1]).node.stream).not.toBe(s.stream)
    expect(String(s)).toBe("ThreadLocalStream(Device(cpu, 0))")
  })

  test("what is no stream is refused", () => {
    const bad = "tpu" as "cpu"
    for (const use of [mx.stream, mx.newStream, mx.newThreadLocalStream, mx.synchronize])
      expect(() => use(bad)).toThrow(mx.ArgumentError)
    expect(() => mx.stream(mx.cpu, 3 as never)).toThrow(mx.ArgumentError)
    expect(() => mx.ones([1], { stream: bad })).toThrow(mx.ArgumentError)
  })
})

describe("asyncEval", () => {
  test("has computed when the promise is fulfilled", async () => {
    const tree = { a: mx.ones([2]).add(1), b: [mx.array(3)] }
    const promise = mx.asyncEval(tree, mx.zeros([1]))
    expect(tree.a.tolist()).toEqual([2, 2])
    expect(await promise).toBeUndefined()
  })
  test("an error rejects the promise, stays on the array, and needs nobody to handle it", async () => {
    const unhandled: unknown[] = []
    const listen = (error: unknown) => unhandled.push(error)
    process.on("unhandledRejection", listen)
    const bad = mx.take(mx.zeros([2]), mx.array([5], mx.int32))
    mx.asyncEval(bad)
    await new Promise((resolve) => setTimeout(resolve, 5))
    process.off("unhandledRejection", listen)
    expect(unhandled).toEqual([])
    expect(() => bad.tolist()).toThrow(mx.IndexError)
    await expect(mx.asyncEval(bad)).rejects.toThrow(mx.IndexError)
  })
})

describe("distributed: a world of this process", () => {
  const { distributed } = mx
  test("the group", () => {
    const group = distributed.init()
    expect([group.rank(), group.size(), distributed.isAvailable(), distributed.isAvailable("ring")]).toEqual([
      0,
      1,
      false,
      false,
    ])
    const part = group.split(3, 1)
    expect([part.rank(), part.size()]).toEqual([0, 1])
    expect(() => group.split("a" as never)).toThrow(
      "[split] color must be an integer of 32 bits, received the string",
    )
    expect(() => group.split(2 ** 31)).toThrow("color must be an integer of 32 bits")
    expect(() => group.split(0, 2 ** 40)).toThrow("key must be an integer of 32 bits")
    expect(() => distributed.init(true)).toThrow(mx.DeviceError)
    expect(() => distributed.init({ backend: "carrier pigeon" })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [init] the backend must be one of any, ring, shm, mpi, nccl, received the string "carrier pigeon"]`,
    )
    expect(distributed.isAvailable("jaccl")).toBe(false)
  })
  test("what combines arrays gives the array, and has a derivative", () => {
    const x = mx.array([1, 2])
    const group = distributed.init()
    for (const name of ["allSum", "allMax", "allMin", "allGather", "sumScatter"] as const) {
      expect(distributed[name](x, { group, stream: mx.cpu }).tolist()).toEqual([1, 2])
      expect(() => distributed[name](x, { grup: group } as object)).toThrow(/Did you mean "group"/)
      expect(() => distributed[name]([1] as never)).toThrow(mx.ArgumentError)
    }
    expect(() => distributed.send(x, 1)).toThrow(mx.DeviceError)
    expect(() => distributed.recv([2], mx.float32, 1)).toThrow(mx.DeviceError)
    expect(() => distributed.recvLike(x, 1, { group })).toThrow(mx.DeviceError)
  })
})

test("names of other names", () => {
  expect(mx.empty([2]).tolist()).toEqual([0, 0])
  expect(mx.emptyLike(mx.array([3n])).dtype).toBe(mx.int64)
  expect(mx.int8 instanceof mx.Dtype).toBe(true)
  expect((() => 1) instanceof mx.Dtype).toBe(false)
  expect(() => new (mx.Dtype as unknown as new () => mx.Dtype)()).toThrow(mx.DTypeError)
  expect([mx.setWiredLimit(1000), mx.setWiredLimit(0)]).toEqual([0, 1000])
})

test("devices without a backend are refused at once", () => {
  const uses: Record<string, () => unknown> = {
    setDefaultDevice: () => mx.setDefaultDevice(mx.gpu),
    newStream: () => mx.newStream(mx.gpu),
    newThreadLocalStream: () => mx.newThreadLocalStream("gpu"),
    defaultStream: () => mx.defaultStream(mx.gpu),
    setDefaultStream: () => mx.setDefaultStream(new mx.Stream(mx.gpu, 0)),
    stream: () => mx.stream(mx.gpu, () => 1),
    synchronize: () => mx.synchronize(mx.gpu),
    ones: () => mx.ones([1], { stream: mx.gpu }),
    "another processor": () => mx.newStream(new mx.Device("cpu", 1)),
  }
  const before = mx.defaultDevice()
  for (const [name, use] of Object.entries(uses)) expect(use, name).toThrow(mx.DeviceError)
  expect(mx.defaultDevice()).toBe(before)
  expect([mx.isAvailable(mx.gpu), mx.deviceCount(mx.gpu)]).toEqual([false, 0])
  expect(() => mx.setDefaultDevice("gpu")).toThrowErrorMatchingInlineSnapshot(
    `[DeviceError: [setDefaultDevice] no backend serves Device(gpu, 0). Import a package that does, such as "@lazuli/backend-cuda" or "@lazuli/backend-metal"]`,
  )
})
