/**
 * The picture of a run: training and held-out loss over steps, and the bigram baseline as a level line. As SVG and PNG, without a
 * browser.
 */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Resvg } from "@resvg/resvg-js"
import { parse, View } from "vega"
import { compile, type TopLevelSpec } from "vega-lite"

/** Losses in nats a byte at steps. */
export interface History {
  readonly train: readonly (readonly [step: number, loss: number])[]
  readonly validation: readonly (readonly [step: number, loss: number])[]
}

const SERIES = ["training (smoothed)", "held out", "bigram baseline, held out"] as const
const COLORS = ["#9ecae1", "#08519c", "#d95f02"]
/** More points than pixels say nothing more. */
const MAX_POINTS = 800

function rows(
  { train, validation }: History,
  baseline: number,
): { step: number; loss: number; series: string }[] {
  const every = Math.max(1, Math.ceil(train.length / MAX_POINTS))
  const last = Math.max(1, train.at(-1)?.[0] ?? 1, validation.at(-1)?.[0] ?? 1)
  const smooth = smoothed(train.map(([, loss]) => loss))
  return [
    ...train
      .map(([step], i) => ({ step, loss: smooth[i], series: SERIES[0] }))
      .filter((_, i) => i % every === 0),
    ...validation.map(([step, loss]) => ({ step, loss, series: SERIES[1] })),
    ...[0, last].map((step) => ({ step, loss: baseline, series: SERIES[2] })),
  ]
}

/** Exponential moving averages, unbiased at the start. */
export function smoothed(values: readonly number[], keep = 0.95): number[] {
  let sum = 0
  let weight = 0
  return values.map((value) => {
    sum = sum * keep + value
    weight = weight * keep + 1
    return sum / weight
  })
}

/** The picture's description in the grammar of Vega-Lite. */
export function lossChart(history: History, baseline: number, title: string): TopLevelSpec {
  const color = { field: "series", type: "nominal" as const, title: null }
  return {
    title: { text: title, anchor: "start" },
    width: 720,
    height: 400,
    padding: 12,
    background: "white",
    data: { values: rows(history, baseline) },
    mark: { type: "line", strokeWidth: 2 },
    encoding: {
      x: { field: "step", type: "quantitative", title: "training step" },
      y: {
        field: "loss",
        type: "quantitative",
        title: "loss, nats per byte",
        scale: { zero: false, nice: true },
      },
      color: {
        ...color,
        scale: { domain: [...SERIES], range: COLORS },
        legend: { orient: "top-right", labelLimit: 300 },
      },
    },
    config: {
      font: "sans-serif",
      axis: { labelFontSize: 12, titleFontSize: 13 },
      legend: { labelFontSize: 12 },
    },
  }
}

/** SVG text of a chart. */
export async function toSvg(spec: TopLevelSpec): Promise<string> {
  const view = new View(parse(compile(spec).spec), { renderer: "none" })
  try {
    return await view.toSVG()
  } finally {
    view.finalize()
  }
}

/** Writes `loss.svg` and `loss.png` into a folder and gives their paths. */
export async function writePlot(
  folder: string,
  history: History,
  baseline: number,
  title: string,
): Promise<string[]> {
  const svg = await toSvg(lossChart(history, baseline, title))
  const png = new Resvg(svg, { fitTo: { mode: "zoom", value: 2 }, font: { loadSystemFonts: true } })
    .render()
    .asPng()
  const files: [string, string | Uint8Array][] = [
    ["loss.svg", svg],
    ["loss.png", png],
  ]
  return files.map(([name, content]) => {
    const file = join(folder, name)
    writeFileSync(file, content)
    return file
  })
}
