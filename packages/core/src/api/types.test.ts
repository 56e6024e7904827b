/**
 * The types of the public names: shapes, overloads, options, and what is refused. The type checker is the test.
 */
import { expect, expectTypeOf, it } from "vitest"
import * as mx from "../index"

const x = mx.ones([2, 3])
/** Code that is written for its types alone. */
const unrun = (_body: () => void): void => {}

it("shapes are number[], and what is read has its values' types", () => {
  expectTypeOf(x.shape).toEqualTypeOf<number[]>()
  expectTypeOf(mx.broadcastShapes([1], [2])).toEqualTypeOf<number[]>()
  expectTypeOf(x.dtype).toEqualTypeOf<mx.Dtype>()
  expectTypeOf(x.ndim).toEqualTypeOf<number>()
  expectTypeOf(x.T).toEqualTypeOf<mx.ArrayOf<number>>()
  expectTypeOf(x.toTypedArray()).not.toBeAny()
  expectTypeOf(x.data()).resolves.not.toBeAny()
  expectTypeOf(x.tolist()).not.toBeAny()
  expectTypeOf([...x]).toEqualTypeOf<mx.ArrayOf<number>[]>()
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
  expectTypeOf(x.sum({ axis: null })).toEqualTypeOf<mx.ArrayOf<number>>()
  expectTypeOf(mx.softmax(x, -1)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.arange(3)).toEqualTypeOf<mx.Array>()
  expectTypeOf(mx.arange(0, 3, { dtype: mx.int8 })).toEqualTypeOf<mx.ArrayOf<number>>()
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
  expectTypeOf(x.index(0, mx.s(1, null), null, "...")).toEqualTypeOf<mx.ArrayOf<number>>()
  expectTypeOf(x.index([0, 1])).toEqualTypeOf<mx.ArrayOf<number>>()
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
  expectTypeOf(x.reshape(3, 2)).toEqualTypeOf<mx.ArrayOf<number>>()
  expectTypeOf(x.reshape(3, -1, { stream: mx.cpu })).toEqualTypeOf<mx.ArrayOf<number>>()
  expectTypeOf(mx.transpose(x, 1, 0)).toEqualTypeOf<mx.Array>()
  unrun(() => {
    // @ts-expect-error sizes are numbers
    x.reshape(3, "2")
    // @ts-expect-error a list, or numbers
    x.reshape([3], 2)
  })
})

it("item and tolist give what the dtype holds, where it is known", () => {
  const any = x as mx.Array
  unrun(() => {
    expectTypeOf(any.item()).toEqualTypeOf<mx.Value>()
    expectTypeOf(mx.array([1, 2]).tolist()).not.toBeAny()
    expectTypeOf(mx.array(1).item()).toEqualTypeOf<number>()
    expectTypeOf(mx.array([[1n]]).item()).toEqualTypeOf<bigint>()
    expectTypeOf(mx.array([true, false]).item()).toEqualTypeOf<boolean>()
    expectTypeOf(mx.array([mx.complex(1)]).item()).toEqualTypeOf<mx.Complex>()
    expectTypeOf(mx.array([mx.array([1n]), mx.array([2n])]).item()).toEqualTypeOf<bigint>()
    expectTypeOf(mx.array(new BigInt64Array(1)).item()).toEqualTypeOf<bigint>()
    expectTypeOf(mx.array(new Uint8Array(1)).item()).toEqualTypeOf<number>()
    expectTypeOf(mx.array([any]).item()).toEqualTypeOf<mx.Value>()
    expectTypeOf(mx.array([1], mx.int64).item()).toEqualTypeOf<bigint>()
    expectTypeOf(mx.array([1], { dtype: mx.bool_ }).item()).toEqualTypeOf<boolean>()
    expectTypeOf(mx.array([1], any.dtype).item()).toEqualTypeOf<mx.Value>()
    expectTypeOf(mx.uint64([1]).item()).toEqualTypeOf<bigint>()
    expectTypeOf(mx.zeros([2], { dtype: mx.complex64 }).item()).toEqualTypeOf<mx.Complex>()
    expectTypeOf(mx.zeros([2], any.shape.length > 1 ? mx.int64 : mx.int32).item()).toEqualTypeOf<
      number | bigint
    >()
    expectTypeOf(mx.full([1], 2n).item()).toEqualTypeOf<bigint>()
    expectTypeOf(mx.full([1], any, mx.bool_).item()).toEqualTypeOf<boolean>()
    expectTypeOf(mx.arange(3).item()).toEqualTypeOf<mx.Value>()
    expectTypeOf(any.astype(mx.int64).item()).toEqualTypeOf<bigint>()
    expectTypeOf(any.astype(mx.int64).reshape(1, 1).T.index(0).max().tolist()).toEqualTypeOf<
      ReturnType<typeof nested<bigint>>
    >()
    expectTypeOf(any.greater(0).all().item()).toEqualTypeOf<boolean>()
    expectTypeOf(any.argmax().item()).toEqualTypeOf<number>()
    expectTypeOf(x.subtract(1).square().mean().item()).toEqualTypeOf<number>()
    expectTypeOf(x.greater(0).sum().item()).toEqualTypeOf<number>()
    expectTypeOf(any.exp().item()).toEqualTypeOf<mx.Value>()
    expectTypeOf(any.astype(mx.int64).exp().item()).toEqualTypeOf<number>()
    expectTypeOf(any.astype(mx.complex64).exp().item()).toEqualTypeOf<mx.Value>()
    expectTypeOf(any.astype(mx.int64).add(0.5).item()).toEqualTypeOf<mx.Value>()
    // A variable that began with zeros may hold any array later.
    let h = mx.zeros([2])
    h = any.add(h)
    const list = [mx.ones([1])]
    list.push(any)
    const either = any.ndim > 1 ? mx.zeros([1]) : mx.array([true])
    expectTypeOf(either.reshape(1).item()).toEqualTypeOf<number | boolean>()
    const value: unknown = h
    if (value instanceof mx.Array) expectTypeOf(value.item()).toEqualTypeOf<mx.Value>()
    // @ts-expect-error bools are no numbers
    const wrong: mx.ArrayOf<number> = mx.array([true])
    return wrong
  })
})
/** The type of nested values. */
const nested = <V extends mx.Value>(a: mx.ArrayOf<V>) => a.tolist<mx.ArrayOf<V>>()

it("what the types say holds", () => {
  for (const dtype of [mx.bool_, mx.uint8, mx.int32, mx.int64, mx.float16, mx.float32]) {
    const a = mx.ones([2, 2], dtype)
    const same = [
      a.T,
      a.reshape(4),
      a.index(0),
      a.max(0),
      a.sort(),
      a.flatten(),
      a.roll(1),
      a.squeeze(),
      a.tile(2),
    ]
    for (const y of [...same, a.square(), a.round(), a.trunc(), a.cummax(0), a.tril(), a.take(0)])
      expect(y.dtype).toBe(dtype)
    for (const y of [a.mean(), a.var(), a.std(), a.exp(), a.sqrt(), a.logsumexp(), a.median(), a.degrees()])
      expect(typeof y.astype(y.dtype).reshape(-1).index(0).item()).toBe("number")
    if (dtype === mx.int64) continue
    for (const y of [
      a.sum(),
      a.prod(),
      a.add(1),
      a.multiply(0.5),
      a.power(2),
      a.maximum(2),
      a.floorDivide(2),
    ])
      expect(typeof y.reshape(-1).index(0).item()).toBe("number")
  }
})
