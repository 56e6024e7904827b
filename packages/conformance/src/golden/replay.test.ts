/**
 * The replayer itself: it accepts MLX's own answers, and notices wrong ones.
 */
import { expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { hostOf } from "./compare"
import { type EncodedArray, type GoldenCase, isEncodedArray, Mismatch } from "./format"
import { formatReplay, goldenCases, goldenFamilies, replayCase, replayGolden } from "./replay"
import { compareUnique } from "./unique"
import { arrayOf } from "./values"

const all = goldenFamilies().flatMap((family) => goldenCases(family))
const unique = all.filter((c) => c.compare)

/** The same array with one element changed by more than any tolerance. */
function spoiled(v: EncodedArray): EncodedArray {
  const bytes = Buffer.from(v.b64, "base64")
  const width = bytes.length / Math.max(1, v.shape.reduce((a, b) => a * b, 1))
  // The highest bits: of a float the exponent, zero included.
  bytes[width - 1] ^= v.dtype === "bool" ? 1 : 0x46
  return { ...v, b64: bytes.toString("base64") }
}
const size = (v: EncodedArray): number => v.shape.reduce((a, b) => a * b, 1)

test("what is unique only up to a choice: MLX's own answers pass, others do not", () => {
  const kinds = new Set<string>()
  for (const c of unique) {
    const want = c.outputs as unknown as EncodedArray[]
    compareUnique(want.map(arrayOf), c)
    const which = want.findIndex((v) => size(v) > 1)
    if (which < 0) continue
    const kind = c.compare?.kind as string
    const wrong = want.map((v, i) => arrayOf(i === which ? allSpoiled(v) : v))
    expect(() => compareUnique(wrong, c), `${c.id}: ${hostOf(wrong[which]).values}`).toThrow(Mismatch)
    kinds.add(kind)
  }
  expect([...kinds].sort()).toEqual(
    "argpartition eig eigh eigvals lu lu_factor partition qr quantize svd topk".split(" "),
  )
})
function allSpoiled(v: EncodedArray): EncodedArray {
  const bytes = Buffer.from(v.b64, "base64")
  for (let i = 0; i < bytes.length; i++) bytes[i] ^= 0x46
  return { ...v, b64: bytes.toString("base64") }
}

test("a wrong answer is noticed, in every family", () => {
  const unnoticed: string[] = []
  for (const family of goldenFamilies()) {
    const cases = goldenCases(family).filter((c) => {
      const [first] = c.outputs ?? []
      return !c.compare && isEncodedArray(first) && size(first) > 0
    })
    for (const c of cases.slice(0, 5)) {
      const [first, ...others] = c.outputs as unknown as EncodedArray[]
      const wrong = { ...c, outputs: [spoiled(first), ...others] } as unknown as GoldenCase
      try {
        if (replayCase(wrong, goldenSpaces) === null) unnoticed.push(c.id)
      } catch {
        // The function does not exist yet.
      }
    }
  }
  expect(unnoticed).toEqual([])
})

test("a table, and the reasons of what deviates", () => {
  const deviations = { "utils/tree_flatten/0": "a made-up reason", "scan/cumsum/0": "another" }
  const results = replayGolden({
    spaces: goldenSpaces,
    families: ["scan", "argreduce"],
    backend: "reference",
    deviations,
    only: /cumsum\/[01]$|argmax\/0$/,
  })
  expect(results[0].failed).toEqual([
    { id: "scan/cumsum/0", fn: expect.any(String), problem: "agrees, but is listed as a deviation" },
  ])
  expect(formatReplay(results)).toMatchInlineSnapshot(`
    "family           passed   failed  missing  deviate
    scan                  1        1        0        0
    argreduce             1        0        0        0
    total                 2        1        0        0"
  `)
})
