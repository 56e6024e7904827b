/**
 * Schedules: settings as functions of the step, for the learning rate of any optimizer.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { named } from "../arguments"

/** A setting as a function of the step, which is an integer array without axes. */
export type Schedule = (step: mx.Array) => mx.Array

/** The step in floating point, so that no setting is taken for an integer. */
const real = (step: mx.Array): mx.Array => step.astype(mx.float32)

/**
 * init · decayRateˢᵗᵉᵖ.
 * @example
 * optim.exponentialDecay(8, 0.5)(mx.array(2, mx.int32)).item() // => 2
 */
export function exponentialDecay(init: number, decayRate: number): Schedule
export function exponentialDecay(options: { init: number; decayRate: number }): Schedule
export function exponentialDecay(...args: unknown[]): Schedule {
  const [init, decayRate] = named<[number, number]>("exponentialDecay", ["init", "decayRate"], args, 2)
  return (step) => mx.power(decayRate, real(step)).multiply(init)
}

/**
 * init · decayRate^⌊step / stepSize⌋.
 * @example
 * optim.stepDecay(8, 0.5, 10)(mx.array(25, mx.int32)).item() // => 2
 */
export function stepDecay(init: number, decayRate: number, stepSize: number): Schedule
export function stepDecay(options: { init: number; decayRate: number; stepSize: number }): Schedule
export function stepDecay(...args: unknown[]): Schedule {
  const names = ["init", "decayRate", "stepSize"]
  const [init, decayRate, stepSize] = named<[number, number, number]>("stepDecay", names, args, 3)
  return (step) => mx.power(decayRate, real(step.floorDivide(stepSize))).multiply(init)
}

/**
 * Half a cosine from init down to end at step decaySteps, and end from there on.
 * @example
 * optim.cosineDecay(1, 10)(mx.array(0, mx.int32)).item() // => 1
 */
export function cosineDecay(init: number, decaySteps: number, end?: number | { end?: number }): Schedule
export function cosineDecay(options: { init: number; decaySteps: number; end?: number }): Schedule
export function cosineDecay(...args: unknown[]): Schedule {
  const names = ["init", "decaySteps", "end"]
  const [init, decaySteps, end = 0] = named<[number, number, number?]>("cosineDecay", names, args, 2)
  return (step) => {
    const angle = real(mx.minimum(step, decaySteps)).multiply(Math.PI / decaySteps)
    const decay = angle.cos().add(1).multiply(0.5)
    return decay.multiply(init - end).add(end)
  }
}

/**
 * A straight line from init to end at step `steps`, and end from there on. Joined before another schedule it is a warm-up.
 * @throws ArgumentError unless steps is at least 1
 * @example
 * optim.linearSchedule(0, 1, 4)(mx.array(1, mx.int32)).item() // => 0.25
 */
export function linearSchedule(init: number, end: number, steps: number): Schedule
export function linearSchedule(options: { init: number; end: number; steps: number }): Schedule
export function linearSchedule(...args: unknown[]): Schedule {
  const names = ["init", "end", "steps"]
  const [init, end, steps] = named<[number, number, number]>("linearSchedule", names, args, 3)
  if (!(steps >= 1)) throw new ArgumentError("linearSchedule", `steps must be at least 1, received ${steps}`)
  return (step) =>
    real(mx.minimum(step, steps))
      .multiply((end - init) / steps)
      .add(init)
}

/**
 * One schedule after the other: schedule i + 1 begins, counting from 0, at step boundaries[i].
 * @throws ArgumentError unless there is one boundary less than schedules
 * @example
 * const schedule = optim.joinSchedules([optim.linearSchedule(0, 1, 2), optim.exponentialDecay(8, 0.5)], [2])
 * schedule(mx.array(3, mx.int32)).item() // => 4
 */
export function joinSchedules(schedules: readonly Schedule[], boundaries: readonly number[]): Schedule
export function joinSchedules(options: {
  schedules: readonly Schedule[]
  boundaries: readonly number[]
}): Schedule
export function joinSchedules(...args: unknown[]): Schedule {
  const [schedules, boundaries] = named<[readonly Schedule[], readonly number[]]>(
    "joinSchedules",
    ["schedules", "boundaries"],
    args,
    2,
  )
  if (schedules.length === 0) throw new ArgumentError("joinSchedules", "needs at least one schedule")
  if (schedules.length !== boundaries.length + 1)
    throw new ArgumentError(
      "joinSchedules",
      `expected ${schedules.length - 1} boundaries for ${schedules.length} schedules, received ${boundaries.length}`,
    )
  return (step) =>
    boundaries.reduce(
      (value, boundary, i) => mx.where(step.less(boundary), value, schedules[i + 1](step.subtract(boundary))),
      schedules[0](step),
    )
}
