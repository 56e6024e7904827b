/**
 * A column of the table: one thing that must hold for every application of a primitive.
 */
import type { Application } from "./applications"

/** One check. It throws where something is wrong, and gives a reason where it has nothing to say. */
export interface Column {
  /** Its heading. */
  readonly name: string
  /** @returns null where all is well, or why the check does not apply */
  check(application: Application): string | null
}
