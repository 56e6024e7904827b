import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import * as nn from "../index"

test("more layers than anyone has are refused before they are made", () => {
  const most = "must be a non-negative integer of at most 65536, received the number 2147483648"
  expect(() => new nn.TransformerEncoder(2 ** 31, 8, 2)).toThrow(`[TransformerEncoder] numLayers ${most}`)
  expect(() => new nn.TransformerDecoder(2 ** 31, 8, 2)).toThrow(`[TransformerDecoder] numLayers ${most}`)
  for (const name of ["numEncoderLayers", "numDecoderLayers"])
    expect(() => new nn.Transformer({ dims: 8, numHeads: 2, [name]: 2 ** 31 })).toThrow(
      `[Transformer] ${name} ${most}`,
    )
})

test("attention of any length is one trace of a shapeless function, and needs no other", () => {
  const attention = new nn.MultiHeadAttention(8, 2)
  const reasons: string[] = []
  const f = compile((x: mx.Array) => attention.forward(x, x, x), {
    inputs: attention.state,
    shapeless: true,
    onRecompile: (reason) => reasons.push(reason),
  })
  for (let length = 1; length <= 12; length++)
    expect(f(mx.ones([1, length, 8])).shape).toEqual([1, length, 8])
  expect(f.stats().traces).toBe(1)
  // That of the first call.
  expect(reasons.length).toBe(1)
})
