/**
 * Views that the same evaluation made, as of the part that a new one of it was computed from, show the memory that an update would write
 * over, and their handles may be dead. Small ones get memory of their own before the update, which then writes in place.
 */
import type { Backend } from "../graph/backend"
import type { Application, Node } from "../graph/graph"
import { overlays } from "./assignment"
import {
  type Evaluation,
  evaluated,
  type History,
  isWorthParting,
  overwritesFirst,
  SHARE,
  writesOver,
} from "./undo"

const NONE: readonly Node[] = []

export function bytesOfViews(views: readonly Node[]): number {
  let bytes = 0
  for (const view of views) bytes += view.nbytes
  return bytes
}

/** True if views of an array of so many bytes are so small that they rather get memory of their own. */
export const arePartsOf = (nbytes: number, views: readonly Node[]): boolean =>
  bytesOfViews(views) <= nbytes * SHARE

/**
 * The views, of those that the evaluation has `made`, that alone keep an update from being written over its first input, and get memory of
 * their own before it.
 */
export function viewsInTheWay(
  application: Application,
  backend: Backend,
  evaluation: Evaluation,
  made: readonly Node[],
  history: History = evaluated,
): readonly Node[] {
  const { inputs, nbytes, primitive, stream } = application
  if (!isWorthParting(application) || primitive.rules.undo === undefined) return NONE
  const [old] = inputs
  if (history.owns(old, application, 0)) return NONE
  const views = made.filter((view) => view !== old && history.shareMemory(view, old))
  if (views.length === 0 || !arePartsOf(nbytes, views) || views.some((view) => view.stream !== stream))
    return NONE
  const encoder = backend.queue.lower(application)
  const isGivenToIt =
    history.isSpent(old, application, views.length) &&
    overlays(history, application, old) &&
    overwritesFirst(encoder, application)
  return isGivenToIt || writesOver(application, backend, encoder, evaluation, history, views.length)
    ? views
    : NONE
}
