import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { compile } from "./compile"
import { partsOf } from "./parts"

const beside = mx.newStream(mx.cpu)
const MANY = 1 << 15

/** The parts behind some arrays: how many applications each has, and on which stream. */
const partsBehind = (...arrays: mx.Array[]): [number, string][] =>
  partsOf(arrays.map(({ node }) => node)).map(({ stream, inputs, outputs }) => [
    inputs.length,
    `${outputs.length} ${stream === beside ? "beside" : "here"}`,
  ])

/** A chain of operations each of whose results another stream reads, and work on what that stream makes. */
function chain(x: mx.Array, links: number): mx.Array[] {
  const taken: mx.Array[] = []
  mx.eval(x)
  let link = x
  for (let i = 0; i < links; i++) {
    link = link.exp()
    const before = taken.at(-1)
    const last = link
    taken.push(mx.stream(beside, () => (before ? before.add(last) : last.sin())))
  }
  return taken.reverse().map((each) => each.multiply(2))
}

test("a part ends at every large array that another stream reads", () => {
  expect(partsBehind(...chain(mx.ones([MANY]), 3))).toEqual([
    [1, "1 here"],
    [1, "1 beside"],
    [1, "1 here"],
    [2, "1 beside"],
    [1, "1 here"],
    [2, "1 beside"],
    [3, "3 here"],
  ])
})

test("small arrays that another stream reads come out of one part", () => {
  expect(partsBehind(...chain(mx.ones([2]), 3))).toEqual([
    [1, "3 here"],
    [3, "3 beside"],
    [3, "3 here"],
  ])
})

test("a part that reads a view of an array reads the array itself", () => {
  const x = mx.ones([MANY])
  mx.eval(x)
  const views = x.reshape([2, -1]).T
  const [first, last] = [views.exp(), mx.stream(beside, () => views.sin())]
  expect(partsBehind(first, last.add(views))).toEqual([
    [1, "1 here"],
    [1, "1 beside"],
    [2, "1 here"],
  ])
  // Both read the array itself.
  const [here, there] = partsOf([first.node, last.node])
  expect([here.inputs, there.inputs]).toEqual([[x.node], [x.node]])
})

/** The bytes that the parts behind an array read, and those that they give. */
const bytesBehind = (array: mx.Array): [number, number][] => {
  const bytes = (nodes: readonly { nbytes: number }[]) => nodes.reduce((sum, { nbytes }) => sum + nbytes, 0)
  return partsOf([array.node]).map(({ inputs, outputs }) => [bytes(inputs), bytes(outputs)])
}

test("a part that another stream reads a slice of gives the slice alone", () => {
  const x = mx.ones([1024, 64])
  mx.eval(x)
  const slice = x.exp().index(mx.s(0, 4))
  expect(bytesBehind(mx.stream(beside, () => slice.sin()))).toEqual([
    [x.nbytes, 1024],
    [1024, 1024],
  ])
  // Nor does the whole of it cross for views of the slice.
  const spread = mx.broadcastTo(slice.T, [1024, 64, 4])
  expect(bytesBehind(mx.stream(beside, () => spread.sum()))).toEqual([
    [x.nbytes, 1024],
    [1024, 4],
  ])
  // An input of the graph is there, and needs no part that makes slices of it.
  const part = x.index(mx.s(0, 4))
  expect(bytesBehind(mx.stream(beside, () => part.sin()))).toEqual([[x.nbytes, 1024]])
})

test("an array crosses as a whole for slices that are together half of it", () => {
  const x = mx.ones([1024])
  mx.eval(x)
  const whole = mx.stream(beside, () => x.exp())
  const onStream = (rows: number[]) => {
    const slices = mx.stream(beside, () => rows.map((i) => whole.index(mx.s(i, i + 128))))
    return slices.map((slice) => slice.sin()).reduce((a, b) => a.add(b))
  }
  expect(bytesBehind(onStream([0, 128, 256, 512]))[0]).toEqual([4096, 4096])
  expect(bytesBehind(onStream([0, 128, 512]))[0]).toEqual([4096, 3 * 512])
})

test("views that have to be copies are made once, by the part that they belong to", () => {
  const x = mx.ones([256, 64])
  mx.eval(x)
  for (const copy of [mx.contiguous(x.exp().T), x.exp().T.reshape([-1])]) {
    const there = mx.stream(beside, () => copy.sin().add(copy.reshape([-1]).cos().sum()))
    const [here, reader] = partsOf([there.node])
    expect([here.outputs, reader.inputs]).toEqual([[copy.node], [copy.node]])
  }
})

test("an array that depends on another's stream has its value in a part", () => {
  const f = (x: mx.Array, z: mx.Array): mx.Array => {
    const y = x.add(1)
    const d = mx.depends(y, z.add(3))
    return mx.stream(beside, () => d.multiply(2))
  }
  const g = (x: mx.Array, z: mx.Array): mx.Array => {
    const d = mx.depends(
      mx.stream(beside, () => x.add(1)),
      z.add(3),
    )
    return mx.stream(beside, () => d.multiply(2))
  }
  for (const each of [f, g]) expect(compile(each)(mx.array([1]), mx.array([5])).tolist()).toEqual([4])
})
