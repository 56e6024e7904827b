import * as mx from '@lazuli/core'
import { describe, expect, it } from 'vitest'
import { grad, jvp, valueAndGrad, vjp } from './index'

describe('grad', () => {
  it('differentiates a scalar function', () => {
    expect(grad((x: mx.Array) => x.square())(mx.array(3)).item()).toBe(6)
  })
  it('composes with itself to any depth', () => {
    const cube = (x: mx.Array) => x.multiply(x).multiply(x)
    const first = grad(cube)
    const second = grad(first)
    const third = grad(second)
    const fourth = grad(third)
    const x = mx.array(2)
    expect([first(x).item(), second(x).item(), third(x).item(), fourth(x).item()]).toEqual([12, 12, 6, 0])
  })
  it('gives the value and the gradient', () => {
    const [v, g] = valueAndGrad((w: mx.Array) => w.square().sum())(mx.array([1, 2]))
    expect(v.item()).toBe(5)
    expect(g.tolist()).toEqual([2, 4])
  })
  it('vjp and jvp', () => {
    const [o, g] = vjp((x: mx.Array) => x.square(), [mx.array([2, 3])], [mx.array([1, 10])])
    expect(o[0].tolist()).toEqual([4, 9])
    expect(g[0].tolist()).toEqual([4, 60])
    const [p, t] = jvp((x: mx.Array) => x.square(), [mx.array([2, 3])], [mx.array([1, 10])])
    expect(p[0].tolist()).toEqual([4, 9])
    expect(t[0].tolist()).toEqual([4, 60])
  })
  it('survives a graph of 100,000 nodes', () => {
    const f = (x: mx.Array) => {
      let y = x
      for (let i = 0; i < 100_000; i++) y = y.add(x)
      return y
    }
    expect(grad(f)(mx.array(1)).item()).toBe(100_001)
    expect(jvp(f, [mx.array(1)], [mx.array(1)])[1][0].item()).toBe(100_001)
  })
  it('keeps the graph of what is evaluated inside', () => {
    const f = (x: mx.Array) => {
      const y = x.exp()
      y.item()
      const z = y.multiply(x)
      return (z.item() as number) > 0 ? z : z.negative()
    }
    expect(grad(f)(mx.array(1)).item()).toBeCloseTo(2 * Math.E, 5)
    expect(grad(grad(f))(mx.array(1)).item()).toBeCloseTo(3 * Math.E, 5)
  })
})
