/**
 * Pictures of clouds, and the confusion matrix, as PNG and without a browser.
 */
import { writeFileSync } from "node:fs"
import { Resvg } from "@resvg/resvg-js"
import { parse, View } from "vega"
import { compile, type TopLevelSpec } from "vega-lite"

/** A cloud, what is said above it, and the class of each point. */
export interface PicturedCloud {
  readonly title: string
  readonly points: readonly (readonly number[])[]
  readonly classes: readonly string[]
}

/** As far as outliers lie: the corners of the cube around a surface. */
const EXTENT = 1.75

const frame = {
  background: "white",
  padding: 12,
  config: { font: "sans-serif", view: { stroke: "#ddd" } },
} as const

/** Clouds side by side, seen along their last axis; nearer points are drawn later and larger. */
export function cloudChart(
  clouds: readonly PicturedCloud[],
  title: string,
  domain: readonly string[],
): TopLevelSpec {
  // A number in front keeps clouds of one title apart, and in order.
  const values = clouds.flatMap(({ title, points, classes }, i) =>
    points
      .map(([x, y, z], k) => ({ cloud: `${i + 1}. ${title}`, x, y, z, class: classes[k] }))
      .sort((a, b) => a.z - b.z),
  )
  const axis = { axis: null, scale: { domain: [-EXTENT, EXTENT] } }
  return {
    ...frame,
    title: { text: title, anchor: "start" },
    data: { values },
    facet: { field: "cloud", type: "nominal", title: null, sort: null, header: { labelFontSize: 13 } },
    columns: 4,
    spec: {
      width: 220,
      height: 220,
      mark: { type: "circle", opacity: 0.85 },
      encoding: {
        x: { field: "x", type: "quantitative", ...axis },
        y: { field: "y", type: "quantitative", ...axis },
        size: {
          field: "z",
          type: "quantitative",
          legend: null,
          scale: { domain: [-EXTENT, EXTENT], range: [6, 44] },
        },
        color: {
          field: "class",
          type: "nominal",
          title: null,
          scale: { domain: domain.slice() },
          legend: domain.length > 1 ? { orient: "bottom", columns: 8 } : null,
        },
      },
    },
  }
}

/** Rows are what it is, columns what it is taken for; numbers are percents of the row. */
export function confusionChart(
  table: readonly (readonly number[])[],
  classes: readonly string[],
  title: string,
): TopLevelSpec {
  const values = table.flatMap((row, i) => {
    const all = row.reduce((a, b) => a + b, 0)
    return row.map((count, k) => {
      const part = all === 0 ? 0 : (100 * count) / all
      return { is: classes[i], taken: classes[k], part, text: count === 0 ? "" : part.toFixed(1) }
    })
  })
  const order = classes.slice()
  return {
    ...frame,
    title: { text: title, anchor: "start" },
    width: 60 * classes.length,
    height: 40 * classes.length,
    data: { values },
    encoding: {
      x: {
        field: "taken",
        type: "nominal",
        sort: order,
        title: "taken for",
        axis: { labelAngle: 0, orient: "top" },
      },
      y: { field: "is", type: "nominal", sort: order, title: "is" },
    },
    layer: [
      {
        mark: "rect",
        encoding: {
          color: {
            field: "part",
            type: "quantitative",
            scale: { scheme: "blues", domain: [0, 100] },
            title: "% of the row",
          },
        },
      },
      {
        mark: { type: "text" },
        encoding: {
          text: { field: "text", type: "nominal" },
          color: { condition: { test: "datum.part > 50", value: "white" }, value: "black" },
        },
      },
    ],
  }
}

/** Writes a chart as PNG. */
export async function writePicture(file: string, spec: TopLevelSpec): Promise<void> {
  const view = new View(parse(compile(spec).spec), { renderer: "none" })
  try {
    const svg = await view.toSVG()
    const zoom = { mode: "zoom", value: 1.5 } as const
    writeFileSync(file, new Resvg(svg, { fitTo: zoom, font: { loadSystemFonts: true } }).render().asPng())
  } finally {
    view.finalize()
  }
}
