/**
 * Axes of size 0: every backend gives what the reference gives, or the same refusal, with its derivatives, and no process dies of it.
 */
import "@lazuli/backend-cpu"
import { metalBackend } from "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import { jvp, vjp } from "@lazuli/transforms"
import { expect, test } from "vitest"
import { emptySamples } from "../test/empty-samples"
import { onBackendNamed } from "./backend-choice"
import type { Sample } from "./samples"

/** A number to three digits, whatever the sign of its zero. */
const short = (_key: string, value: unknown): unknown =>
  typeof value === "number"
    ? String(Number(value.toPrecision(3)) + 0)
    : typeof value === "bigint"
      ? `${value}`
      : value
const text = (x: mx.Array): string => `${x.dtype.name} [${x.shape}] ${JSON.stringify(x.tolist(), short)}`
const smooth = (x: mx.Array): boolean => x.dtype.kind === "floating" || x.dtype.kind === "complex"

/** The value and the derivatives of a sample, as text; or what was thrown. */
function outcome({ f, inputs }: Sample): string {
  try {
    const value = f(...inputs)
    if (!smooth(value) || !inputs.every(smooth)) return text(value)
    const [, back] = vjp(f, inputs, [mx.onesLike(value)])
    const [, forward] = jvp(
      f,
      inputs,
      inputs.map((x) => mx.onesLike(x)),
    )
    return [value, ...back, ...forward].map(text).join("\n")
  } catch (error) {
    return String(error)
  }
}

const wanted = onBackendNamed("reference", () => emptySamples.map(outcome))

test("what is refused says so", () => {
  const fact = (text: string): string =>
    text.replace(/,? received.*|: (input|q) .*/, "").replace(/-?\d+( along axis \d)?/g, "n")
  const refusals = new Set(wanted.filter((text) => /Error/.test(text)).map(fact))
  expect([...refusals].sort()).toMatchInlineSnapshot(`
    [
      "ShapeError: [argmax] has no value over an empty axis",
      "ShapeError: [argmin] has no value over an empty axis",
      "ShapeError: [convTransposend] the kernel spans n, more than the input's n with padding",
      "ShapeError: [convnd] the kernel spans n, more than the input's n with padding",
      "ShapeError: [fft.fft] the length of a transform must be positive",
      "ShapeError: [fft.ifft] the length of a transform must be positive",
      "ShapeError: [fft.irfft] the length of a transform must be positive",
      "ShapeError: [fft.rfft] the length of a transform must be positive",
      "ShapeError: [hadamardTransform] the last axis must have a size of m · n^k with m of n, n, n or n",
      "ShapeError: [logsumexp] has no value of an empty array",
      "ShapeError: [max] has no value over an empty axis",
      "ShapeError: [median] has no value over an empty axis",
      "ShapeError: [min] has no value over an empty axis",
      "ShapeError: [partition] kth n is out of bounds for an axis of size n",
      "ShapeError: [rope] dims must be an even number up to the last axis's n",
    ]
  `)
})

test.each(["cpu", "metal"])(
  "%s",
  (name) => {
    const run = (): string[] => onBackendNamed(name, () => emptySamples.map(outcome))
    if (name === "metal") metalBackend.rehearse(run)
    const got = run()
    const differing = emptySamples.flatMap(({ name: sample }, i) =>
      got[i] === wanted[i] ? [] : [`${sample}: ${got[i]} instead of ${wanted[i]}`.slice(0, 300)],
    )
    expect(differing.slice(0, 20)).toEqual([])
  },
  600_000,
)
