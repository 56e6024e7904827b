/**
 * Schedules: functions from the step to a learning rate or another hyperparameter.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe, isListOf, type Kind } from "@lazuli/core/engine"
import { named } from "../arguments"

/** A hyperparameter as a function of the step, which optimizers pass as a 0-d integer array. */
export type Schedule = (step: mx.Array) => mx.Array
/** A schedule that also accepts the step as a number. */
export type StepSchedule = (step: mx.Array | number) => mx.Array

/** The step in floating point, so that results are not integers. */
const real = (step: mx.Array): mx.Array => step.astype(mx.float32)

/** A schedule that computes `value` from the step. */
function schedule(op: string, value: Schedule): StepSchedule {
  return (step) => {
    if (typeof step === "number" && step >= 0 && Number.isSafeInteger(step))
      return value(mx.array(step, step < 2 ** 31 ? mx.int32 : mx.int64))
    if (step instanceof mx.Array) return value(step)
    throw new ArgumentError(
      op,
      `step must be an integer of at least 0 or an array, received ${describe(step)}`,
    )
  }
}

/**
 * init · decayRateˢᵗᵉᵖ.
 * @example
 * optim.exponentialDecay(8, 0.5)(2).item() // => 2
 */
export function exponentialDecay(init: number, decayRate: number): StepSchedule
export function exponentialDecay(options: { init: number; decayRate: number }): StepSchedule
export function exponentialDecay(...args: unknown[]): StepSchedule {
  const [init, decayRate] = named<[number, number]>(
    "exponentialDecay",
    { init: "nonNegative", decayRate: "nonNegative" },
    args,
  )
  return schedule("exponentialDecay", (step) => mx.power(decayRate, real(step)).multiply(init))
}

/**
 * init · decayRate^⌊step / stepSize⌋.
 * @example
 * optim.stepDecay(8, 0.5, 10)(25).item() // => 2
 */
export function stepDecay(init: number, decayRate: number, stepSize: number): StepSchedule
export function stepDecay(options: { init: number; decayRate: number; stepSize: number }): StepSchedule
export function stepDecay(...args: unknown[]): StepSchedule {
  const [init, decayRate, stepSize] = named<[number, number, number]>(
    "stepDecay",
    { init: "nonNegative", decayRate: "nonNegative", stepSize: "count" },
    args,
  )
  return schedule("stepDecay", (step) => mx.power(decayRate, real(step.floorDivide(stepSize))).multiply(init))
}

/**
 * Half a cosine from init down to end at step decaySteps, and end from there on.
 * @example
 * optim.cosineDecay(1, 10)(0).item() // => 1
 */
export function cosineDecay(init: number, decaySteps: number, end?: number | { end?: number }): StepSchedule
export function cosineDecay(options: { init: number; decaySteps: number; end?: number }): StepSchedule
export function cosineDecay(...args: unknown[]): StepSchedule {
  const [init, decaySteps, end = 0] = named<[number, number, number?]>(
    "cosineDecay",
    { init: "nonNegative", decaySteps: "count", end: "nonNegative?" },
    args,
  )
  return schedule("cosineDecay", (step) => {
    const angle = real(mx.minimum(step, decaySteps)).multiply(Math.PI / decaySteps)
    const decay = angle.cos().add(1).multiply(0.5)
    return decay.multiply(init - end).add(end)
  })
}

/**
 * A straight line from init to end at step `steps`, and end from there on. Joined before another schedule it is a warm-up.
 * @throws ArgumentError unless steps is at least 1
 * @example
 * optim.linearSchedule(0, 1, 4)(1).item() // => 0.25
 */
export function linearSchedule(init: number, end: number, steps: number): StepSchedule
export function linearSchedule(options: { init: number; end: number; steps: number }): StepSchedule
export function linearSchedule(...args: unknown[]): StepSchedule {
  const [init, end, steps] = named<[number, number, number]>(
    "linearSchedule",
    { init: "nonNegative", end: "nonNegative", steps: "count" },
    args,
  )
  return schedule("linearSchedule", (step) =>
    real(mx.minimum(step, steps))
      .multiply((end - init) / steps)
      .add(init),
  )
}

const functions: Kind = {
  expected: "a list of schedules",
  accepts: (value: unknown) => isListOf(value, (each) => typeof each === "function"),
  element: (value) => typeof value === "function",
}
const isStep = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0
const rising: Kind = {
  expected: "a list of steps, each after the one before",
  accepts: (value: unknown) =>
    isListOf(
      value,
      (n, i) => isStep(n) && (i === 0 || (n as number) > ((value as unknown[])[i - 1] as number)),
    ),
  element: isStep,
}

/**
 * One schedule after the other: schedule i + 1 begins, counting from 0, at step boundaries[i].
 * @throws ArgumentError unless there is one boundary less than schedules, each after the one before
 * @example
 * const schedule = optim.joinSchedules([optim.linearSchedule(0, 1, 2), optim.exponentialDecay(8, 0.5)], [2])
 * schedule(3).item() // => 4
 */
export function joinSchedules(schedules: readonly Schedule[], boundaries: readonly number[]): StepSchedule
export function joinSchedules(options: {
  schedules: readonly Schedule[]
  boundaries: readonly number[]
}): StepSchedule
export function joinSchedules(...args: unknown[]): StepSchedule {
  const [schedules, boundaries] = named<[readonly Schedule[], readonly number[]]>(
    "joinSchedules",
    { schedules: functions, boundaries: rising },
    args,
  )
  if (schedules.length === 0) throw new ArgumentError("joinSchedules", "needs at least one schedule")
  if (schedules.length !== boundaries.length + 1)
    throw new ArgumentError(
      "joinSchedules",
      `expected ${schedules.length - 1} boundaries for ${schedules.length} schedules, received ${boundaries.length}`,
    )
  return schedule("joinSchedules", (step) =>
    boundaries.reduce(
      (value, boundary, i) => mx.where(step.less(boundary), value, schedules[i + 1](step.subtract(boundary))),
      schedules[0](step),
    ),
  )
}
