/**
 * Objects made of parts: what a point belongs to is what the second example learns.
 */
import { faceAreas, type Mesh } from "@lazuli/ext-pointcloud"
import { ball, cube, placed, tube } from "./surfaces"

/** A part of an object: its surface, its class, and its share of the object's area. */
export interface Part {
  readonly mesh: Mesh
  readonly label: number
  readonly share: number
}

/** The classes of points, in the order of their numbers. */
export const PARTS: readonly string[] = [
  "handle",
  "hammer's head",
  "stem",
  "cap",
  "cone",
  "scoop",
  "legs",
  "table top",
]

const legs = (): [Mesh, number][] =>
  [-1, 1].flatMap((x) =>
    [-1, 1].map((y): [Mesh, number] => [
      placed(tube(1, 1), [0.05, 0.05, 0.45], [0.6 * x, 0.4 * y, -0.25]),
      6,
    ]),
  )

const objects: readonly (() => [Mesh, number][])[] = [
  () => [
    [placed(tube(1, 1), [0.08, 0.08, 0.7], [0, 0, -0.2]), 0],
    [placed(cube(), [0.4, 0.14, 0.14], [0, 0, 0.6]), 1],
  ],
  () => [
    [placed(tube(1, 0.8), [0.2, 0.2, 0.45], [0, 0, -0.4]), 2],
    [placed(ball(0, 0.5), [0.65, 0.65, 0.5], [0, 0, 0.05]), 3],
  ],
  () => [
    [placed(tube(0, 1), [0.4, 0.4, 0.5], [0, 0, -0.4]), 4],
    [placed(ball(), [0.42, 0.42, 0.42], [0, 0, 0.35]), 5],
  ],
  () => [...legs(), [placed(cube(), [0.75, 0.5, 0.04], [0, 0, 0.24]), 7]],
]

/** The parts of each object. */
export function objectParts(): Part[][] {
  return objects.map((make) => {
    const parts = make()
    const areas = parts.map(([mesh]) => Number(faceAreas(mesh).sum().item()))
    const total = areas.reduce((a, b) => a + b, 0)
    return parts.map(([mesh, label], i) => ({ mesh, label, share: areas[i] / total }))
  })
}
