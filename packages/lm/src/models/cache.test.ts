/** Memory use of growing buffers, and trimming. */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { expect, test, vi } from "vitest"
import { Pass } from "./attend"
import { type LayerCache, PlainCache, put, trimCache } from "./cache"
import { PagedCache } from "./paged-cache"
import { RotatingCache } from "./rotating-cache"

test("a growing buffer frees its predecessors", async () => {
  const x = mx.full([1, 8, 256, 64], 1)
  const before = mx.getActiveMemory()
  let buffer: mx.Array | null = null
  for (let i = 0; i < 6; i++) {
    buffer = put(buffer, x, 256 * i)
    await mx.asyncEval([buffer])
  }
  const { nbytes } = buffer as mx.Array
  expect(mx.getActiveMemory() - before).toBeLessThan(1.1 * nbytes)
})

test("trimming copies no layer, and changes none if one of them cannot be trimmed", () => {
  const x = mx.full([1, 1, 100, 4], 1)
  const [plain, windowed] = [new PlainCache(), new RotatingCache(8)]
  const layers: LayerCache[] = [plain, new PagedCache(16), windowed]
  const clones = layers.map((layer) => vi.spyOn(layer, "clone"))
  for (let i = 0; i < 3; i++)
    for (const layer of layers)
      layer.attend(x, x, x, { scale: 1, window: null, cap: null, sinks: null }, new Pass())
  expect(trimCache(layers, 290)).toBe(false)
  expect(layers.map(({ offset }) => offset)).toEqual([300, 300, 300])
  expect(trimCache(layers, 30)).toBe(true)
  expect(layers.map(({ offset }) => offset)).toEqual([270, 270, 270])
  expect(trimCache([plain], 271)).toBe(false)
  for (const clone of clones) expect(clone).not.toHaveBeenCalled()
})
