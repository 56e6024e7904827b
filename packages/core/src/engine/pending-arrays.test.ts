/** The weight of pending arrays around a trace. */
import { expect, test } from "vitest"
import { currentStream } from "../graph/device"
import { float32 } from "../graph/dtype"
import { abstractly, handles, Mark, Node, PENDING_BYTES } from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import "../index"
import { PendingArrays } from "./pending-arrays"

const node = (inputs: readonly Node[], mark: number = Mark.None): Node =>
  new Node([8], float32, null, inputs, NO_PARAMS, currentStream(), mark)

test("nodes of a trace that nothing will compute are not kept", () => {
  // Those that the packages made.
  new PendingArrays().sweep(0)
  const pending = new PendingArrays()
  const leaf = node([])
  abstractly(() => {
    pending.add(leaf)
    pending.add(node([leaf], Mark.Abstract))
  })
  pending.sweep(0)
  expect(handles.budget).toBe(PENDING_BYTES)
  abstractly(() => pending.add(node([leaf])))
  pending.sweep(0)
  expect(handles.budget).toBeLessThan(PENDING_BYTES)
})

test("a sweep in a trace leaves as much until its handles are looked after", () => {
  handles.budget = PENDING_BYTES / 2
  abstractly(() => {
    const left = handles.budget - handles.floor
    new PendingArrays().sweep(0)
    expect(handles.budget - handles.floor).toBe(left)
  })
})
