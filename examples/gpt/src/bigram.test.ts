import { expect, test } from "vitest"
import { bigramLoss, bits, fitBigram } from "./bigram"
import { generatedText } from "./generated-text"

const all = (text: Uint8Array) => [Int32Array.from(text)]

test("every row is a distribution", () => {
  const { logProbabilities } = fitBigram(generatedText(2000))
  for (let a = 0; a < 256; a++) {
    const sum = logProbabilities.subarray(a * 256, a * 256 + 256).reduce((s, p) => s + Math.exp(p), 0)
    expect(sum).toBeCloseTo(1, 10)
  }
})

test("a text without surprise costs next to nothing", () => {
  const text = Uint8Array.from({ length: 10000 }, (_, i) => i % 7)
  expect(bigramLoss(fitBigram(text), all(text))).toBeLessThan(0.02)
})

test("random bytes cost eight bits", () => {
  const noise = (seed: number) => {
    let state = seed
    return Uint8Array.from({ length: 20000 }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0
      return state >>> 24
    })
  }
  expect(bits(bigramLoss(fitBigram(noise(1)), all(noise(2))))).toBeCloseTo(8, 1)
})

test("it beats add-one smoothing on text it has not seen", () => {
  const text = generatedText(4000, 1)
  const unseen = generatedText(4000, 2)
  const pairs = new Float64Array(65536)
  const rows = new Float64Array(256)
  for (let i = 0; i + 1 < text.length; i++) {
    pairs[text[i] * 256 + text[i + 1]]++
    rows[text[i]]++
  }
  const addOne = pairs.map((n, i) => Math.log((n + 1) / (rows[i >> 8] + 256)))
  const ours = bigramLoss(fitBigram(text), all(unseen))
  expect(ours).toBeLessThan(bigramLoss({ smoothing: 1, logProbabilities: addOne }, all(unseen)))
})

test("windows count all bytes but their first", () => {
  const bigram = fitBigram(generatedText(1000))
  const [a, b, c] = [97, 98, 99]
  const p = (x: number, y: number) => bigram.logProbabilities[x * 256 + y]
  expect(bigramLoss(bigram, [Int32Array.of(a, b, c), Int32Array.of(c, a)])).toBeCloseTo(
    -(p(a, b) + p(b, c) + p(c, a)) / 3,
  )
})
