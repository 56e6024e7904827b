import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import * as nn from "../index"

class Member extends mx.distributed.Group {
  constructor(
    private readonly its: number,
    private readonly count: number,
  ) {
    super()
  }
  override rank = (): number => this.its
  override size = (): number => this.count
}

test("parts are shares of each segment, filled up with zeros", () => {
  const shard = { axis: 1, segments: [4, 1, 0, 3] }
  const x = mx.arange(1, 17, 1, mx.int32).reshape([2, 8])
  const parts = [0, 1, 2].map((rank) => nn.partOf(x, shard, new Member(rank, 3)).tolist())
  expect(parts).toEqual([
    [
      [1, 2, 5, 6],
      [9, 10, 13, 14],
    ],
    [
      [3, 4, 0, 7],
      [11, 12, 0, 15],
    ],
    [
      [0, 0, 0, 8],
      [0, 0, 0, 16],
    ],
  ])
  expect(nn.lengthOfPart(shard, 3)).toBe(4)
  expect(nn.partOf(mx.zeros([0, 2]), { axis: 0, segments: [0] }, new Member(1, 2)).shape).toEqual([0, 2])
})

test("what does not fit is refused", () => {
  const x = mx.ones([4])
  const wrong = [
    { axis: 1, segments: [4] },
    { axis: 0, segments: [3] },
    { axis: 0, segments: [5, -1] },
  ]
  for (const shard of [...wrong, {}, null, { axis: 0, segments: 4 }])
    expect(() => nn.partOf(x, shard as nn.Shard, new Member(0, 2))).toThrow(mx.LazuliError)
  expect(() => nn.partOf(x, { axis: 0, segments: [4] }, {} as never)).toThrow(mx.ArgumentError)
  for (const shard of [null, {}, wrong[2]])
    expect(() => nn.lengthOfPart(shard as nn.Shard, 2)).toThrow(mx.ArgumentError)
  expect(() => nn.lengthOfPart(wrong[0], 0)).toThrow(mx.ArgumentError)
  expect(() => nn.partOf(3 as never, wrong[0])).toThrow(mx.ArgumentError)
})
