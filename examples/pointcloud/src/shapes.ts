/**
 * The classes of shapes: surfaces around the origin whose farthest point is at distance 1.
 */
import type { Mesh } from "@lazuli/ext-pointcloud"
import { mx } from "lazuli"
import { ball, cube, grid, placed, TURN, tube } from "./surfaces"

/** A tube along a helix of two and a half turns. */
const helix = (): Mesh =>
  grid(
    (u, v) => {
      const [along, around] = [2.5 * TURN * u, TURN * v]
      const radius = 0.6 + 0.08 * Math.cos(around)
      return [radius * Math.cos(along), radius * Math.sin(along), 1.6 * u - 0.8 + 0.08 * Math.sin(around)]
    },
    96,
    6,
  )

const surfaces: Readonly<Record<string, () => Mesh>> = {
  sphere: () => ball(),
  cube,
  torus: () =>
    grid(
      (u, v) => {
        const radius = 0.7 + 0.3 * Math.cos(TURN * v)
        return [radius * Math.cos(TURN * u), radius * Math.sin(TURN * u), 0.3 * Math.sin(TURN * v)]
      },
      32,
      16,
    ),
  cone: () => placed(tube(1, 0), [0.7, 0.7, 0.75]),
  cylinder: () => placed(tube(1, 1), [0.5, 0.5, 0.8]),
  helix,
  plane: () => grid((u, v) => [2 * u - 1, 2 * v - 1, 0], 2, 2),
  saddle: () => grid((u, v) => [2 * u - 1, 2 * v - 1, (2 * u - 1) ** 2 - (2 * v - 1) ** 2], 16, 16),
}

/** The names of the classes, in the order of their numbers. */
export const SHAPES: readonly string[] = Object.keys(surfaces)

/** The surface of each class. */
export function shapeMeshes(): Mesh[] {
  return SHAPES.map((name) => {
    const { vertices, faces } = surfaces[name]()
    return { vertices: vertices.divide(mx.linalg.norm(vertices, { axis: 1 }).max()), faces }
  })
}
