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
