/**
 * The types of the public names: shapes, overloads, options, and what is refused. The type checker is the test.
 */
import { expectTypeOf, it } from "vitest"
import * as mx from "../index"

const x = mx.ones([2, 3])
/** What is written for its types alone. */
const unrun = (_body: () => void): void => {}

it("shapes are number[], and what is read has its values' types", () => {
  expectTypeOf(x.shape).toEqualTypeOf<number[]>()
  expectTypeOf(mx.broadcastShapes([1], [2])).toEqualTypeOf<number[]>()
  expectTypeOf(x.dtype).toEqualTypeOf<mx.Dtype>()
  expectTypeOf(x.ndim).toEqualTypeOf<number>()
  expectTypeOf(x.T).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.toTypedArray()).not.toBeAny()
  expectTypeOf(x.data()).resolves.not.toBeAny()
  expectTypeOf(x.tolist()).not.toBeAny()
  expectTypeOf([...x]).toEqualTypeOf<mx.Array[]>()
  unrun(() => {
    mx.zeros(x.shape)
    mx.zeros(3)
    mx.zeros([2, 3] as const)
    x.reshape([3, 2] as readonly number[])
    // @ts-expect-error a shape holds numbers
    mx.zeros(["2"])
    // @ts-expect-error a dtype is no text
    mx.zeros([2], "float32")
  })
})

it("positions and options", () => {
  expectTypeOf(mx.sum(x)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.sum(x, 1, true)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.sum(x, [0, 1])).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.sum(x, { axis: [0], keepdims: true, stream: mx.cpu })).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.sum({ axis: null })).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.softmax(x, -1)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.arange(3)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.arange(0, 3, { dtype: mx.int8 })).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.random.normal({ shape: [2], dtype: mx.float16 })).toEqualTypeOf<mx.Array>()
  unrun(() => {
    // @ts-expect-error an unknown option
    mx.sum(x, { axes: 1 })
    // @ts-expect-error an axis is a number
    mx.sum(x, "0")
    // @ts-expect-error an array comes first
    mx.sum({})
  })
})

it("operands: arrays and scalars on either side", () => {
  expectTypeOf(mx.add(1, x)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.add(x, 1n)).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.multiply(mx.complex(0, 1))).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.add(true)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.divmod(x, 2)).toEqualTypeOf<[mx.Array, mx.Array]>()
  unrun(() => {
    // @ts-expect-error a text is no operand
    mx.add(x, "1")
  })
})

it("several outputs", () => {
  expectTypeOf(mx.split(x, 1)).toEqualTypeOf<mx.Array[]>()
  expectTypeOf(mx.meshgrid(mx.ones([2]))).toEqualTypeOf<mx.Array[]>()
  expectTypeOf(mx.broadcastArrays(x, x)).toEqualTypeOf<mx.Array[]>()
})

it("indexing", () => {
  expectTypeOf(x.index(0, mx.s(1, null), null, "...")).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.index([0, 1])).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.at(0).add(1)).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.set).returns.toEqualTypeOf<void>()
  unrun(() => {
    // @ts-expect-error an index is no plain object
    x.index({ a: 1 })
  })
})

it("files: what is loaded follows the name, the format and the options", () => {
  unrun(() => {
    expectTypeOf(mx.load("a.npy")).toEqualTypeOf<mx.Array>()
    expectTypeOf(mx.load("a.npz")).toEqualTypeOf<Record<string, mx.Array>>()
    expectTypeOf(mx.load("a.gguf")).toEqualTypeOf<Record<string, mx.Array>>()
    expectTypeOf(mx.load("a.safetensors", { returnMetadata: true })).toEqualTypeOf<
      [Record<string, mx.Array>, Record<string, string>]
    >()
    expectTypeOf(mx.load("a.gguf", { returnMetadata: true })[1]).toEqualTypeOf<Record<string, mx.GgufValue>>()
    expectTypeOf(mx.load("a.npz", { maxBytes: 1 })).toEqualTypeOf<Record<string, mx.Array>>()
    expectTypeOf(mx.load("a.npy", { maxBytes: 1 })).toEqualTypeOf<mx.Array>()
    expectTypeOf(mx.load("a", { format: "npz", maxBytes: 1 })).toEqualTypeOf<Record<string, mx.Array>>()
    expectTypeOf(mx.load(new URL("file:///a"), "npy")).toEqualTypeOf<mx.Array>()
    const name = "a" as string
    expectTypeOf(mx.load(name, "npz")).toEqualTypeOf<Record<string, mx.Array>>()
    expectTypeOf(mx.load(name)).toEqualTypeOf<
      mx.Array | Record<string, mx.Array> | [Record<string, mx.Array>, Record<string, mx.GgufValue>]
    >()
    // @ts-expect-error metadata are text
    mx.saveSafetensors("a", { x }, { n: 1 })
    // @ts-expect-error only arrays are saved
    mx.savez("a", { x: 1 })
  })
})

it("streams, evaluation, trees, dtypes", () => {
  expectTypeOf(mx.stream(mx.cpu, () => 3)).toEqualTypeOf<number>()
  expectTypeOf<mx.StreamContext>().toExtend<Disposable>()
  expectTypeOf(mx.eval({ a: [x] })).toEqualTypeOf<void>()
  expectTypeOf(mx.asyncEval(x)).toEqualTypeOf<Promise<void>>()
  expectTypeOf(mx.finfo(mx.float16).max).toEqualTypeOf<number>()
  expectTypeOf(mx.issubdtype(mx.int8, mx.integer)).toEqualTypeOf<boolean>()
  expectTypeOf(mx.treeMap((a: mx.Array) => a.add(1), { w: x, b: [x] })).not.toBeAny()
  expectTypeOf(mx.distributed.init()).toEqualTypeOf<mx.distributed.Group>()
  unrun(() => {
    // @ts-expect-error a stream or a device
    mx.stream("tpu")
  })
})

it("reshape and transpose take a list or separate numbers", () => {
  expectTypeOf(x.reshape(3, 2)).toEqualTypeOf<mx.Array>()
  expectTypeOf(x.reshape(3, -1, { stream: mx.cpu })).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.transpose(x, 1, 0)).toEqualTypeOf<mx.Array>()
  unrun(() => {
    // @ts-expect-error sizes are numbers
    x.reshape(3, "2")
    // @ts-expect-error a list, or numbers
    x.reshape([3], 2)
  })
})
