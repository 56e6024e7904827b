import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect, test } from "vitest"
import { lossChart, smoothed, toSvg, writePlot } from "./plot"

const history = {
  train: Array.from({ length: 3000 }, (_, i) => [i + 1, 2 + 3 * Math.exp(-i / 400)] as [number, number]),
  validation: Array.from(
    { length: 10 },
    (_, i) => [i * 300, 2.1 + 3 * Math.exp(-(i * 300) / 400)] as [number, number],
  ),
}

test("the picture has the three lines and their names", async () => {
  const svg = await toSvg(lossChart(history, 2.5, "GPT"))
  expect(svg.startsWith("<svg")).toBe(true)
  for (const text of ["training (smoothed)", "held out", "bigram baseline, held out", "training step"])
    expect(svg).toContain(text)
  expect(svg).not.toContain("NaN")
})

test("a run without history still gives a picture", async () => {
  expect(await toSvg(lossChart({ train: [], validation: [] }, 2.5, "GPT"))).toContain("bigram baseline")
})

test("SVG and PNG are written", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-plot-"))
  try {
    const [svg, png] = await writePlot(folder, history, 2.5, "GPT")
    expect(readFileSync(svg, "utf8")).toContain("</svg>")
    expect(readFileSync(png).subarray(1, 4).toString()).toBe("PNG")
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test("moving averages start without bias", () => {
  expect(smoothed([4, 4, 4], 0.9)).toEqual([4, 4, 4])
  expect(smoothed([0, 1], 0.5)[1]).toBeCloseTo(2 / 3)
})
