/**
 * Compares the network that a GGUF file's config makes with the model's own, whatever the names of their settings.
 */
import * as mx from "@lazuli/core"
import { FormatError } from "@lazuli/core/engine"
import type { Network } from "../models/network"
import { familyOf, networkOf } from "../models/registry"
import { Rope } from "../models/rope"
import { type Json, type JsonObject, Settings } from "../models/settings"

/** @throws FormatError that names the key, if networks of the two configs compute something else */
export function checkSame(own: Settings, read: Settings): void {
  // Its values are among the others.
  const { text_config: _, ...values } = own.values
  // Networks have random weights, which are never computed.
  const [before] = mx.random.state
  try {
    const network = made(values, own.source)
    const field = differenceOf(network, made(read.values, read.source), "")
    if (field !== null) throw refusal(values, read, field, network)
  } finally {
    mx.random.state[0] = before
  }
}

function made(values: JsonObject, source: string): Network {
  const settings = new Settings(values, source)
  return networkOf(familyOf(settings), settings)
}

/** The path of the first field by which two values differ, null if there is none. */
function differenceOf(a: unknown, b: unknown, path: string): string | null {
  if (a === b) return null
  if (a instanceof Rope && b instanceof Rope) return a.isLike(b) ? null : path
  if (a instanceof mx.Array && b instanceof mx.Array) return differenceOf(a.shape, b.shape, path)
  if (typeof a === "number" && typeof b === "number")
    return Math.abs(a - b) <= 1e-6 * Math.abs(b) ? null : path
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return path
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>]
  for (const key of new Set([...Object.keys(x), ...Object.keys(y)])) {
    const found = differenceOf(x[key], y[key], path === "" ? key : `${path}.${key}`)
    if (found !== null) return found
  }
  return null
}

/** The error that names the key whose value makes the difference. */
function refusal(own: JsonObject, read: Settings, field: string, network: Network): FormatError {
  const keys = field.split(".")
  const valueIn = (root: unknown): unknown =>
    keys.reduce((value, key) => (value as Record<string, unknown> | undefined)?.[key], root)
  const differs = (values: JsonObject): boolean =>
    differenceOf(valueIn(network), valueIn(made(values, read.source)), "") !== null
  // With the other's value, either the model gets the difference, or the file loses it.
  const makesIt = (key: string): boolean => {
    try {
      const taken = { ...own, [key]: read.values[key] ?? null }
      return differs(taken) || !differs({ ...read.values, [key]: own[key] ?? null })
    } catch {
      return false
    }
  }
  const key = [...new Set([...Object.keys(own), ...Object.keys(read.values)])].find(makesIt)
  const text = (value: Json | undefined): string => (value == null ? "missing" : JSON.stringify(value))
  return new FormatError(
    "save",
    key === undefined
      ? `"${field}" of the network would differ in ${read.source}`
      : `"${key}" is ${text(own[key])}, but would be ${text(read.values[key])} in ${read.source}`,
  )
}
