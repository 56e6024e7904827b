/**
 * Surfaces as meshes: patches of a grid, put together, moved and stretched.
 */
import type { Mesh } from "@lazuli/ext-pointcloud"
import { mx } from "lazuli"

export type Point = readonly [x: number, y: number, z: number]
/** Once around, in radians. */
export const TURN = 2 * Math.PI

/** Triangles of a surface over [0, 1]², on a grid of `across` × `along` squares. */
export function grid(surface: (u: number, v: number) => Point, across: number, along: number): Mesh {
  const vertices: Point[] = []
  const faces: Point[] = []
  for (let i = 0; i <= across; i++)
    for (let j = 0; j <= along; j++) vertices.push(surface(i / across, j / along))
  for (let i = 0; i < across; i++)
    for (let j = 0; j < along; j++) {
      const corner = i * (along + 1) + j
      const opposite = corner + along + 2
      faces.push([corner, corner + 1, opposite], [corner, opposite, corner + along + 1])
    }
  return {
    vertices: mx.array(vertices as unknown as number[][], mx.float32),
    faces: mx.array(faces as unknown as number[][], mx.int32),
  }
}

/** Several surfaces as one. */
export function join(meshes: readonly Mesh[]): Mesh {
  const counts = meshes.map(({ vertices }) => vertices.shape[0])
  const before = counts.map((_, i) => counts.slice(0, i).reduce((a, b) => a + b, 0))
  return {
    vertices: mx.concatenate(meshes.map(({ vertices }) => vertices)),
    faces: mx.concatenate(meshes.map(({ faces }, i) => faces.add(before[i]))),
  }
}

/** The surface of [−1, 1]³. */
export function cube(): Mesh {
  const sides: Mesh[] = []
  for (const axis of [0, 1, 2])
    for (const side of [-1, 1])
      sides.push(
        grid(
          (u, v) => {
            const rest = [2 * u - 1, 2 * v - 1]
            return [0, 1, 2].map((i) => (i === axis ? side : (rest.shift() as number))) as unknown as Point
          },
          2,
          2,
        ),
      )
  return join(sides)
}

/** The surface of a ball of radius 1, between two heights from 0 (above) to 1 (below). */
export const ball = (from = 0, to = 1): Mesh =>
  grid(
    (u, v) => {
      const angle = Math.PI * (from + (to - from) * u)
      return [Math.sin(angle) * Math.cos(TURN * v), Math.sin(angle) * Math.sin(TURN * v), Math.cos(angle)]
    },
    24,
    32,
  )

/** The side of a round body whose radius goes from one to another, from z = −1 to z = 1. */
export const tube = (below: number, above: number): Mesh =>
  grid(
    (u, v) => {
      const radius = below + (above - below) * u
      return [radius * Math.cos(TURN * v), radius * Math.sin(TURN * v), 2 * u - 1]
    },
    4,
    32,
  )

/** A surface stretched along the axes, and then moved. */
export const placed = ({ vertices, faces }: Mesh, stretch: Point, move: Point = [0, 0, 0]): Mesh => ({
  vertices: vertices.multiply(mx.array(stretch.slice(), mx.float32)).add(mx.array(move.slice(), mx.float32)),
  faces,
})
