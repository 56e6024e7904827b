import { describe, expect, test } from "vitest"
import { primitiveByName } from "../graph/primitive"
import * as mx from "../index"

const randn = (shape: number[], seed: number) =>
  mx.random.normal(shape, { key: mx.random.key(seed) }).astype(mx.float64)

/** vjp and jvp rules against central differences, for every direction and both kinds of scan. */
function check(name: string, x: mx.Array): void {
  const rules = primitiveByName(name).rules
  for (const reverse of [false, true]) {
    for (const inclusive of [false, true]) {
      const f = (mx as unknown as Record<string, (x: mx.Array, o: object) => mx.Array>)[name]
      const run = (v: mx.Array) => {
        const y = f(v, { axis: 1, reverse, inclusive })
        return mx.where(mx.isinf(y), 0, y)
      }
      const params = { axis: 1, reverse, inclusive }
      const outputs = [f(x, params)]
      const [g, d] = [randn(x.shape, 5), randn(x.shape, 6)]
      const h = 1e-6
      const change = run(x.add(d.multiply(h)))
        .subtract(run(x.subtract(d.multiply(h))))
        .multiply(0.5 / h)
      const [dx] = (rules.vjp as NonNullable<typeof rules.vjp>)({
        inputs: [x],
        outputs,
        cotangents: [g],
        params,
        wanted: [true],
      })
      const [t] = (rules.jvp as NonNullable<typeof rules.jvp>)({
        inputs: [x],
        outputs,
        tangents: [d],
        params,
      })
      const where = `${name} ${JSON.stringify(params)}`
      const want = change.multiply(g).sum().item() as number
      expect(dx?.multiply(d).sum().item(), `vjp of ${where}`).toBeCloseTo(want, 4)
      expect(t?.multiply(g).sum().item(), `jvp of ${where}`).toBeCloseTo(want, 4)
    }
  }
}

describe("derivatives against finite differences", () => {
  for (const name of ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
    test(name, () => check(name, randn([2, 5, 3], 1)))
  test("cumprod where elements are zero", () => {
    check('cumprod', mx.array([[2, 0, 3, 4], [0, 5, 0, 2], [1, 2, 3, 0]], mx.float64)) // biome-ignore format: a matrix
  })
  test("logcumsumexp where elements are -Infinity", () => {
    const x = mx.array([[-Infinity, 1, -Infinity, 2]], mx.float64)
    const { vjp } = primitiveByName("logcumsumexp").rules
    const [dx] = (vjp as NonNullable<typeof vjp>)({
      inputs: [x],
      outputs: [mx.logcumsumexp(x, 1)],
      cotangents: [mx.ones([1, 4], mx.float64)],
      params: { axis: 1, reverse: false, inclusive: true },
      wanted: [true],
    })
    expect(dx?.tolist()).toEqual([
      [0, expect.closeTo(2 + 1 / (1 + Math.E)), 0, expect.closeTo(1 / (1 + 1 / Math.E))],
    ])
  })
})

test("values", () => {
  const x = mx.array([1, 3, 2])
  expect(mx.cumsum(x, { reverse: true }).tolist()).toEqual([6, 5, 2])
  expect(mx.cumprod(x, 0, false, false).tolist()).toEqual([1, 1, 3])
  expect(mx.cummax(x).tolist()).toEqual([1, 3, 3])
  expect(mx.cummin(x, { reverse: true, inclusive: false }).tolist()).toEqual([2, 2, Infinity])
  expect(mx.cummax(mx.array([1, Number.NaN, 2])).tolist()).toEqual([1, Number.NaN, Number.NaN])
  expect(mx.cumsum(mx.array([true, true])).dtype).toBe(mx.int32)
  expect(mx.cumsum(mx.array([1, 1], mx.int8), { dtype: mx.float16 }).dtype).toBe(mx.float16)
  expect(mx.cumsum(mx.zeros([0])).shape).toEqual([0])
  expect(() => mx.cumsum(x, 1)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [cumsum] axis 1 is out of bounds for an array of 1 dimension]`,
  )
})

test("log-sums of integers are running maxima", () => {
  // MLX computes the same.
  for (const [dtype, x, inclusive, exclusive] of [
    [mx.int8, [-5, -8, -9, 127, -128], [-5, -5, -5, 127, 127], [-128, -5, -5, -5, 127]],
    [mx.int16, [-32768, -5, 4, 5, 5], [-32768, -5, 4, 5, 5], [-32768, -32768, -5, 4, 5]],
    [mx.int32, [-5, -8, 2], [-5, -5, 2], [-2147483648, -5, -5]],
    [mx.int64, [-5n, -8n, -2n], [-5n, -5n, -2n], [-(2n ** 63n), -5n, -5n]],
    [mx.uint8, [1, 255, 3, 254], [1, 255, 255, 255], [0, 1, 255, 255]],
    [mx.uint32, [9, 8, 5], [9, 9, 9], [0, 9, 9]],
    [mx.bool_, [0, 1, 0], [false, true, true], [false, false, true]],
  ] as const) {
    const a = mx.array([...x], dtype)
    const back = a.index("::-1")
    expect(mx.logcumsumexp(a).tolist(), dtype.name).toEqual(inclusive)
    expect(mx.logcumsumexp(a, 0, { inclusive: false }).tolist(), dtype.name).toEqual(exclusive)
    expect(mx.logcumsumexp(back, 0, true).index("::-1").tolist(), dtype.name).toEqual(inclusive)
    expect(mx.logcumsumexp(a).dtype).toBe(dtype)
  }
})

test("only sums and products convert first", () => {
  const options = { axis: 0, dtype: mx.int32 } as object
  for (const scan of [mx.cummax, mx.cummin, mx.logcumsumexp])
    expect(() => scan(mx.ones([2]), options)).toThrow(/has no parameter "dtype"/)
  expect(mx.cumsum(mx.ones([2]), options).dtype).toBe(mx.int32)
})
