import { mx } from "lazuli"
import { describe, expect, test } from "vitest"
import { asBatch, drawObjects, drawShapes, POINTS, rotations } from "./clouds"
import { PARTS } from "./objects"
import { SHAPES, shapeMeshes } from "./shapes"

const key = mx.random.key(7)

test("rotations keep lengths and do not mirror", () => {
  const r = rotations(20, key)
  expect(mx.allclose(r.matmul(r.swapaxes(1, 2)), mx.eye(3), { atol: 1e-5 }).item()).toBe(true)
  expect(mx.allclose(mx.linalg.det(r), mx.ones([20]), { atol: 1e-5 }).item()).toBe(true)
  // The mean of all orientations is 0.
  expect(Number(rotations(4000, key).mean(0).abs().max().item())).toBeLessThan(0.05)
})

test("surfaces reach the distance 1", () => {
  for (const { vertices } of shapeMeshes())
    expect(Number(mx.linalg.norm(vertices, { axis: 1 }).max().item())).toBeCloseTo(1, 5)
})

describe.each([
  ["shapes", drawShapes, SHAPES],
  ["objects", drawObjects, PARTS],
] as const)("%s", (kind, draw, classes) => {
  test("come of every class alike, and the same for the same key", () => {
    const { clouds, labels } = draw(16, key)
    expect(clouds.shape).toEqual([16, POINTS, 3])
    const counts = classes.map((_, i) => Number(labels.equal(i).sum().item()))
    if (kind === "shapes") expect(counts).toEqual(classes.map(() => 2))
    else {
      expect(labels.shape).toEqual([16, POINTS])
      expect(Math.min(...counts)).toBeGreaterThan(4 * 0.1 * POINTS)
    }
    expect(mx.arrayEqual(draw(16, key).clouds, clouds).item()).toBe(true)
    expect(mx.arrayEqual(draw(16, mx.random.key(8)).clouds, clouds).item()).toBe(false)
    expect(asBatch(clouds).lengths).toEqual(new Array(16).fill(POINTS))
  })
})

test("noise, scale and outliers are as announced", () => {
  // The first eighth are spheres of radius 0.8 to 1.2; outliers lie anywhere.
  const { clouds } = drawShapes(400, key)
  const radii = mx.linalg.norm(clouds.index(":50"), { axis: 2 })
  const sorted = mx.sort(radii, 1)
  const middle = sorted.index(":", 128)
  expect(Number(middle.min().item())).toBeGreaterThan(0.74)
  expect(Number(middle.max().item())).toBeLessThan(1.26)
  const far = radii.divide(middle.expandDims(1)).subtract(1).abs().greater(0.1)
  const part = Number(far.astype(mx.float32).mean().item())
  expect(part).toBeGreaterThan(0.06)
  expect(part).toBeLessThan(0.1)
})
