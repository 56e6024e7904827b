/**
 * The cache of a step for several rows that have their own.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import type { AttentionRules, Pass } from "../models/attend"
import { cacheArrays, type LayerCache } from "../models/cache"

/** One layer's caches of several rows: each row attends over its own. */
export class RowsCache implements LayerCache {
  readonly offset = 0
  constructor(private readonly rows: readonly LayerCache[]) {}
  get nbytes(): number {
    return this.rows.reduce((sum, row) => sum + row.nbytes, 0)
  }
  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const n = this.rows.length
    const [qs, ks, vs] = [q, k, v].map((x) => mx.split(x, n, 0))
    return mx.concatenate(
      this.rows.map((row, i) => row.attend(qs[i], ks[i], vs[i], rules, pass)),
      0,
    )
  }
  held(): mx.Array[] {
    return cacheArrays(this.rows)
  }
  canTrim(): boolean {
    return false
  }
  trim(): never {
    throw new ArgumentError("batch", "a batch's cache cannot be trimmed")
  }
  clone(): RowsCache {
    return new RowsCache(this.rows.map((row) => row.clone()))
  }
  state(): never {
    throw new ArgumentError("batch", "a batch's cache cannot be saved")
  }
}
