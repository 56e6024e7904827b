import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { partsOf } from "./parts"

const beside = mx.newStream(mx.cpu)
const MANY = 1 << 15

/** The parts behind some arrays: how many applications each has, and on which stream. */
const partsBehind = (...arrays: mx.Array[]): [number, string][] =>
  partsOf(arrays.map(({ node }) => node)).map(({ stream, inputs, outputs }) => [
    inputs.length,
    `${outputs.length} ${stream === beside ? "beside" : "here"}`,
  ])

/** A chain of which another stream takes every link, and what comes of those. */
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

test("what another stream takes of much comes by itself, and what reads that comes together", () => {
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

test("of little it comes together", () => {
  expect(partsBehind(...chain(mx.ones([2]), 3))).toEqual([
    [1, "3 here"],
    [3, "3 beside"],
    [3, "3 here"],
  ])
})

test("a view of what another part has is made again, and no copy of it is given", () => {
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
