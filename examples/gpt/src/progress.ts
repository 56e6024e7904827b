/**
 * Shows how training goes: a bar on a terminal, a line every few seconds anywhere else.
 */
import cliProgress from "cli-progress"

/** One moment of a run. */
export interface Moment {
  readonly step: number
  /** Smoothed, in nats a byte. */
  readonly loss: number
  readonly validation: number | null
}

/** Where progress goes. */
export interface Progress {
  update(moment: Moment): void
  /** Takes the bar away. Idempotent. */
  stop(): void
}

/** Seconds between lines. */
const LINE_EVERY = 5

export interface ProgressOptions {
  readonly first: number
  readonly last: number
  readonly tokensPerStep: number
  readonly stream: NodeJS.WriteStream
  /** Milliseconds, of any origin. */
  readonly now?: () => number
}

export function showProgress(options: ProgressOptions): Progress {
  return options.stream.isTTY ? bar(options) : lines(options)
}

function bar({ first, last, tokensPerStep, stream, now }: ProgressOptions): Progress {
  const format = "training [{bar}] {value}/{total}  loss {loss}{validation}  {speed} tokens/s  {left} left"
  const view = new cliProgress.SingleBar(
    { format, stream, barsize: 24, hideCursor: false, clearOnComplete: false, fps: 8 },
    cliProgress.Presets.rect,
  )
  const pace = paceOf(first, last, tokensPerStep, now)
  view.start(last, first, { loss: "–", validation: "", speed: "–", left: "–" })
  return {
    update: (moment) => view.update(moment.step, texts(moment, pace(moment.step))),
    stop: () => view.stop(),
  }
}

function lines({
  first,
  last,
  tokensPerStep,
  stream,
  now = () => performance.now(),
}: ProgressOptions): Progress {
  const pace = paceOf(first, last, tokensPerStep, now)
  let printed = now()
  return {
    update(moment) {
      if (now() - printed < LINE_EVERY * 1000 && moment.step !== last) return
      printed = now()
      const { loss, validation, speed, left } = texts(moment, pace(moment.step))
      stream.write(
        `step ${moment.step}/${last}  loss ${loss}${validation}  ${speed} tokens/s  ${left} left\n`,
      )
    },
    stop() {},
  }
}

interface Pace {
  readonly tokensPerSecond: number
  readonly secondsLeft: number
}

/** Speed over the last half minute or so, by exponential forgetting, so that a pause does not spoil it for good. */
function paceOf(first: number, last: number, tokensPerStep: number, now = () => performance.now()) {
  let at = now()
  let step = first
  let steps = 0
  let seconds = 0
  return (current: number): Pace => {
    const elapsed = (now() - at) / 1000
    const keep = Math.exp(-elapsed / 30)
    steps = steps * keep + (current - step)
    seconds = seconds * keep + elapsed
    at = now()
    step = current
    const rate = seconds > 0 ? steps / seconds : 0
    return {
      tokensPerSecond: rate * tokensPerStep,
      secondsLeft: rate > 0 ? (last - current) / rate : Infinity,
    }
  }
}

function texts({ loss, validation }: Moment, { tokensPerSecond, secondsLeft }: Pace) {
  return {
    loss: loss.toFixed(3),
    validation: validation === null ? "" : `  held out ${validation.toFixed(3)}`,
    speed: thousands(tokensPerSecond),
    left: duration(secondsLeft),
  }
}

/** 12345 → `12,345`. */
export const thousands = (value: number): string => Math.round(value).toLocaleString("en-US")

/** 75 → `1:15`. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "?"
  const whole = Math.round(seconds)
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`
}
