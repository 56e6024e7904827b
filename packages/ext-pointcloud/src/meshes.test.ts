import { describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { faceAreas, type Mesh, sampleMesh } from "./meshes"

/** A square of area 4 and a triangle of area 1 above it. */
const mesh = (): Mesh => ({
  vertices: mx.array(
    [
      [0, 0, 0],
      [2, 0, 0],
      [2, 2, 0],
      [0, 2, 0],
      [0, 0, 3],
      [1, 0, 3],
      [0, 2, 3],
    ],
    mx.float32,
  ),
  faces: mx.array(
    [
      [0, 1, 2],
      [0, 2, 3],
      [4, 5, 6],
    ],
    mx.int32,
  ),
})

describe("sampleMesh", () => {
  test("draws points on the surface, as many as its parts have area", () => {
    const points = sampleMesh(mesh(), 20_000, { key: mx.random.key(1) })
    expect(points.shape).toEqual([20_000, 3])
    const [x, y, z] = [0, 1, 2].map((i) => points.index(":", i))
    const above = z.equal(3)
    expect(mx.logicalOr(above, z.equal(0)).all().item()).toBe(true)
    expect(Number(above.astype(mx.float32).mean().item())).toBeCloseTo(0.2, 1)
    // Inside of the triangle x + y / 2 ≤ 1, and of the square.
    expect(
      Number(
        mx
          .where(above, x.add(y.divide(2)), 0)
          .max()
          .item(),
      ),
    ).toBeLessThanOrEqual(1.00001)
    expect(Number(x.max().item())).toBeLessThanOrEqual(2.00001)
    // The middle of the square, where points are as dense everywhere.
    const square = mx.where(above, 0, 1)
    const mean = (c: mx.Array): number => Number(c.multiply(square).sum().divide(square.sum()).item())
    expect(mean(x)).toBeCloseTo(1, 1)
    expect(mean(y)).toBeCloseTo(1, 1)
  })

  test("faces without area are never chosen, and one such face alone gives its corners", () => {
    const { vertices, faces } = mesh()
    const flat = mx.concatenate([mx.array([[1, 1, 1]], mx.int32), faces, mx.array([[4, 4, 6]], mx.int32)])
    const points = sampleMesh({ vertices, faces: flat }, 1000, { key: mx.random.key(2) })
    const z = points.index(":", 2)
    expect(mx.logicalOr(z.equal(0), z.equal(3)).all().item()).toBe(true)
    const alone = sampleMesh({ vertices, faces: mx.array([[5, 5, 5]], mx.int32) }, 2)
    expect(mx.allclose(alone, mx.array([[1, 0, 3]])).item()).toBe(true)
    expect(sampleMesh(mesh(), 0).shape).toEqual([0, 3])
  })

  test("is compiled, and has a derivative by the corners", () => {
    const { vertices, faces } = mesh()
    const key = mx.random.key(3)
    const draw = (v: mx.Array): mx.Array => sampleMesh({ vertices: v, faces }, 50, { key })
    expect(mx.allclose(compile(draw)(vertices), draw(vertices)).item()).toBe(true)
    // Weights of a point add up to 1: moving all corners moves it as far.
    const gradient = grad((v: mx.Array) => draw(v).sum())(vertices)
    expect(Number(gradient.sum().item())).toBeCloseTo(150, 3)
  })

  test("says what is wrong", () => {
    const { vertices, faces } = mesh()
    expect(() => sampleMesh({ vertices: vertices.index(":", ":2"), faces }, 1)).toThrow(
      /\[sampleMesh\].*\(V, 3\)/,
    )
    expect(() => sampleMesh({ vertices, faces: faces.astype(mx.float32) }, 1)).toThrow(
      /integers of shape \(F, 3\)/,
    )
    expect(() => sampleMesh({ vertices, faces: mx.zeros([0, 3], mx.int32) }, 1)).toThrow(/mesh with faces/)
    expect(() => sampleMesh(mesh(), -1)).toThrow(/number of points/)
    expect(() => faceAreas(vertices as unknown as Mesh)).toThrow(/expected a mesh/)
  })
})
